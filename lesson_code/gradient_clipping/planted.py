"""What lesson 15 plants into a training: one gradient that is far too large, or heavy tails.

`RecordNorms` plants nothing: it measures the gradients of a training.
"""

import numpy as np
import torch.nn.functional as F
from lightning.pytorch import Callback
from torch import Tensor
from torch.distributions import HalfCauchy
from torch.nn.utils import get_total_norm

from course_utils.measure.timing import ends_epoch

__all__ = ["OneSpike", "RecordNorms", "heavy_tailed_cross_entropy"]


class OneSpike(Callback):
    """The gradient of one step is multiplied by ``factor``, before Lightning clips it.

    Args:
        step: how many optimizer steps are taken before it.
        factor: 1000 is what a batch of 1,000 losses gives that are added and not averaged.
    """

    def __init__(self, step: int, factor: float = 1000.0):
        self.step, self.factor = step, factor

    def on_before_optimizer_step(self, trainer, pl_module, optimizer) -> None:
        if trainer.global_step == self.step:
            for parameter in pl_module.parameters():
                if parameter.grad is not None:
                    parameter.grad *= self.factor


class RecordNorms(Callback):
    """Logs median, 0.9 quantile and maximum of the norms of all gradients, before clipping."""

    def __init__(self):
        self.norms: list[float] = []

    def on_before_optimizer_step(self, trainer, pl_module, optimizer) -> None:
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        self.norms.append(get_total_norm(gradients).item())

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        if ends_epoch(trainer):
            found = np.quantile(self.norms, (0.5, 0.9, 1.0)).tolist()
            names = ("norm_median", "norm_quantile_90", "norm_max")
            logged = dict(zip(names, found, strict=True))
            pl_module.log_dict(logged, on_step=False, on_epoch=True, batch_size=1)


def heavy_tailed_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy, in which each example has a random weight with heavy tails.

    The weights are half-Cauchy, the absolute value of Student's t with one degree of freedom.
    Their median is 1, one in a hundred is above 64, and they have no finite mean. They do not
    depend on the example, so they are pure noise.

    Args:
        logits: ``(N, C)``.
        targets: ``(N,)`` int64.
    """
    losses = F.cross_entropy(logits, targets, reduction="none")  # (N,)
    weights = HalfCauchy(losses.new_ones(())).sample(losses.shape)  # (N,)
    return (weights * losses).mean()
