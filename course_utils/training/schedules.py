"""Warm-up and cosine, put together from PyTorch's schedulers, for the optimizer seam."""

from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR

__all__ = ["warmup_cosine"]


def warmup_cosine(
    optimizer: Optimizer, total_steps: int, warmup_steps: int = 0, min_lr: float = 0.0
) -> LRScheduler:
    """Rise for ``warmup_steps`` steps to the optimizer's learning rate, then fall to ``min_lr``.

    The rise is linear, the fall half a cosine.

    With W warm-up steps of T in total and the peak p, step s (from 0) is taken with
    p (s + 1) / (W + 1) up to s = W, and from there with
    m + (p − m) (1 + cos(π (s − W) / (T − W))) / 2: the peak is reached at step W, and the
    minimum m would be reached at step T, so that the last step, T − 1, is small and not m (with no
    step after the peak, T = W + 1, it ends at the peak). To be stepped after every optimizer step.

    Args:
        total_steps: T, optimizer steps of the whole training, more than W.
        warmup_steps: W; 0: off, plain cosine.
        min_lr: m, one step after the last, for every parameter group; not above any group's own.

    Raises:
        ValueError: when warm-up leaves no step at the peak, or a group would rise to ``min_lr``.

    Source: I. Loshchilov and F. Hutter, SGDR, 2017; P. Goyal et al., 2017 (warm-up).
    """
    if warmup_steps < 0 or total_steps <= warmup_steps:
        raise ValueError(
            f"{warmup_steps} warm-up steps of {total_steps}: need 0 or more, and fewer than all"
        )
    lowest = min(group["lr"] for group in optimizer.param_groups)
    if not 0 <= min_lr <= lowest:
        raise ValueError(
            f"min_lr {min_lr} is not between 0 and the optimizer's learning rate {lowest}"
        )
    cosine = CosineAnnealingLR(optimizer, total_steps - warmup_steps, eta_min=min_lr)
    if not warmup_steps:
        return cosine
    warmup = LinearLR(optimizer, start_factor=1 / (warmup_steps + 1), total_iters=warmup_steps)
    return SequentialLR(optimizer, [warmup, cosine], milestones=[warmup_steps])
