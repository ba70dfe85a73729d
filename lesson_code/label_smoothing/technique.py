"""Label smoothing: a share of every target is spread evenly over all classes."""

import copy
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from tests.combinations.record import CLASSES, soften

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


def make_overconfident(factor):
    """Logits that are calibrated after a division by ``factor``, and their targets."""
    honest = 2 * torch.randn(4000, 6)
    targets = torch.multinomial(honest.softmax(dim=1), 1)[:, 0]
    return factor * honest, targets


def check_pytorch_card(card):
    """Its loss is PyTorch's with ε = 0.1, its T is found in both directions, and is divided by."""
    logits, targets = make_overconfident(1)
    expected = F.cross_entropy(logits, targets, label_smoothing=0.1)
    torch.testing.assert_close(card["training_loss"](logits, targets), expected)
    expected = F.cross_entropy(logits, targets, label_smoothing=0.3)
    torch.testing.assert_close(card["training_loss"](logits, targets, 0.3), expected)
    for factor in (3, 0.5):
        found = card["find_temperature"](*make_overconfident(factor))
        assert abs(found / factor - 1) < 0.1
    logits, targets = make_overconfident(3)
    net = nn.Sequential(nn.Dropout(0.5), nn.Identity()).train()
    batches = list(zip(logits.split(1500), targets.split(1500), strict=True))
    found_logits, found_targets = card["collect_logits"](net, batches, "cpu")
    assert found_targets.equal(targets)
    torch.testing.assert_close(found_logits, logits.double())  # evaluation mode: nothing is dropped
    assert card["T"] == card["find_temperature"](card["logits"], card["targets"])


def check_lightning_card(card):
    """It trains with the smoothed loss, validates with the plain one, and predicts with T."""
    model = nn.Linear(6, 6)
    lit = card["LitSmoothed"](copy.deepcopy(model), smoothing=0.2, lr=0.25)
    logged = {}
    lit.log = logged.__setitem__
    batch = torch.randn(9, 6), torch.arange(9) % 6
    smoothed = F.cross_entropy(model(batch[0]), batch[1], label_smoothing=0.2)
    torch.testing.assert_close(lit.training_step(batch, 0), smoothed)
    lit.validation_step(batch, 0)
    torch.testing.assert_close(logged["val_loss"], F.cross_entropy(model(batch[0]), batch[1]))
    lit.temperature.fill_(2.5)
    assert lit.state_dict()["temperature"] == 2.5, "a checkpoint holds it"
    torch.testing.assert_close(lit.predict_step(batch, 0), model(batch[0]) / 2.5)
    assert lit.configure_optimizers().param_groups[0]["lr"] == 0.25

    assert (card["lit"].smoothing, card["lit"].lr) == (0.1, 1e-3)
    inputs, y = (torch.cat(part) for part in zip(*card["loader"], strict=True))
    found = card["lit"].model.cpu().eval()
    with torch.no_grad():
        z = found(inputs)
    losses = [F.cross_entropy(z / t, y) for t in torch.logspace(-1, 1, 400)]
    temperature = card["lit"].temperature.clone()
    torch.testing.assert_close(F.cross_entropy(z / temperature, y), min(losses))
    card["find_temperature"](card["lit"], card["trainer"], card["loader"])
    torch.testing.assert_close(card["lit"].temperature, temperature)  # not one relative to it
    saved = torch.load("calibrated.ckpt", weights_only=True)["state_dict"]["temperature"]
    assert saved == card["lit"].temperature
