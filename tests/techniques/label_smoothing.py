"""Label smoothing: a share of every target is spread evenly over all classes."""

from functools import partial

import torch
import torch.nn.functional as F

from tests.techniques.record import CLASSES, soften

SMOOTHING = 0.2
SEAM = {"loss": partial(F.cross_entropy, label_smoothing=SMOOTHING)}


def invariant(record):
    """The training loss is that of targets of which a share is spread over all C classes."""
    for logits, targets, loss in record.losses:
        smooth = (1 - SMOOTHING) * soften(targets) + SMOOTHING / CLASSES
        expected = -(smooth * logits.float().log_softmax(dim=1)).sum(dim=1).mean()
        torch.testing.assert_close(loss, expected, atol=1e-5, rtol=0)


def smooth_over_others(logits, targets):
    soft = soften(targets)
    return F.cross_entropy(logits, (1 - SMOOTHING) * soft + SMOOTHING * (1 - soft) / (CLASSES - 1))


def softmax_first(logits, targets):
    return F.cross_entropy(logits.softmax(dim=1), targets, label_smoothing=SMOOTHING)


def smooth_soft_targets_only(logits, targets):
    return F.cross_entropy(logits, targets, label_smoothing=SMOOTHING if targets.ndim > 1 else 0)


FAULTS = [("loss", smooth_over_others), ("loss", softmax_first)]
# Either of the two makes soft targets of all that there are.
MASKED_FAULTS = [("loss", smooth_soft_targets_only, ("cutmix", "mixup"))]
