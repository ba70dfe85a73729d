"""fastai's loss and its schedule in a plain PyTorch loop, against PyTorch's own."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from lesson_code.loops_and_engines.job import find_gap, make_images, make_network

__all__ = ["compare_fastai", "has_fastai", "train_parts"]

STEPS, WARM_UP, SMOOTHING = 20, 5, 0.1
Loss = Callable[[Tensor, Tensor], Tensor]


def has_fastai() -> bool:
    """Whether it can be imported; the import itself takes seconds."""
    return find_spec("fastai") is not None


def train_parts(loss: Loss, factor: Callable[[int], float]) -> nn.Module:
    """A plain loop with a loss and a schedule: the factor of the learning rate at each step."""
    images, targets = make_images(64)
    model = make_network().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = LambdaLR(optimizer, factor)
    for _ in range(STEPS):
        loss(model(images), targets).backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return model


def use_pytorch_parts() -> tuple[Loss, Callable[[int], float]]:
    """Smoothed cross-entropy; half a cosine up, and half a cosine down."""

    def factor(step: int) -> float:
        first = step < WARM_UP
        done = step / WARM_UP if first else (step - WARM_UP) / (STEPS - WARM_UP)
        low, high = (0.04, 1.0) if first else (1.0, 0.0)
        return low + (high - low) * (1 - torch.cos(torch.tensor(torch.pi * done)).item()) / 2

    return partial(nn.functional.cross_entropy, label_smoothing=SMOOTHING), factor


def use_fastai_parts() -> tuple[Loss, Callable[[int], float]]:
    """The same from fastai."""
    from fastai.callback.schedule import combined_cos
    from fastai.losses import LabelSmoothingCrossEntropy

    cosine = combined_cos(WARM_UP / STEPS, 0.04, 1.0, 0.0)  # a function of the share that is done
    return LabelSmoothingCrossEntropy(eps=SMOOTHING), lambda step: float(cosine(step / STEPS))


def compare_fastai() -> dict[str, Any]:
    """The largest difference of a weight, and the steps; empty without fastai."""
    if not has_fastai():
        return {}
    ours, theirs = (train_parts(*parts()) for parts in (use_pytorch_parts, use_fastai_parts))
    return {"steps": STEPS, "gap": find_gap(ours, theirs)}
