"""A training script of nine parts, for an exercise: profile it before you read it.

Three of the parts are slow, and the profile says which. All of them compute what they should.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import record_function

__all__ = ["CLASSES", "PARTS", "Batch", "Training", "make_batch", "run_step"]

CLASSES = 10
SIDE = 16  # pixels
DECAY = 0.99  # of the averaged weights
MAX_NORM = 1.0
Parts = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class Batch:
    """Images ``(N, 3, 16, 16)`` in [0, 1], a factor ``(N,)`` and a flip ``(N,)`` bool of each
    image, classes ``(N,)``."""

    images: Tensor
    factors: Tensor
    flips: Tensor
    targets: Tensor


def make_batch(size: int = 64, seed: int = 0) -> Batch:
    """Random images, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return Batch(
        torch.rand(size, 3, SIDE, SIDE, generator=generator),
        0.8 + 0.4 * torch.rand(size, generator=generator),
        torch.rand(size, generator=generator) < 0.5,
        torch.randint(CLASSES, (size,), generator=generator),
    )


class Training:
    """What changes from step to step: network, optimizer, averaged weights, counted answers."""

    def __init__(self, seed: int = 0):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.model = nn.Sequential(
                nn.Conv2d(3, 16, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(16 * (SIDE // 2) ** 2, 128),
                nn.ReLU(),
                nn.Linear(128, CLASSES),
            )
        self.averaged = copy.deepcopy(self.model).requires_grad_(False)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        # row: the true class, column: the predicted one
        self.confusions = torch.zeros(CLASSES, CLASSES, dtype=torch.int64)


# ---- The nine parts of a step.


def flip(images: Tensor, flips: Tensor) -> Tensor:
    """The images, mirrored where ``flips`` says so."""
    return torch.where(flips[:, None, None, None], images.flip(3), images)


def brighten(images: Tensor, factors: Tensor) -> Tensor:
    """Each image times its factor, at most 1."""
    brighter = []
    for image, factor in zip(images, factors, strict=True):
        channels = [channel * factor.item() for channel in image]
        brighter.append(torch.stack(channels).clamp(max=1.0))
    return torch.stack(brighter)


def normalise(images: Tensor) -> Tensor:
    """The images with mean 0 and standard deviation 1, per channel of the batch."""
    mean = images.mean(dim=(0, 2, 3), keepdim=True)
    return (images - mean) / images.std(dim=(0, 2, 3), keepdim=True)


def forward(model: nn.Module, images: Tensor) -> Tensor:
    """Images ``(N, 3, 16, 16)`` to logits ``(N, 10)``."""
    return model(images)


def backward(logits: Tensor, targets: Tensor) -> None:
    """The gradients of the mean cross-entropy."""
    F.cross_entropy(logits, targets, label_smoothing=0.1).backward()


def clip(model: nn.Module) -> None:
    """The gradients, at most `MAX_NORM` long together."""
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def update(optimizer: torch.optim.Optimizer) -> None:
    """One step of the optimizer, and no gradients afterwards."""
    optimizer.step()
    optimizer.zero_grad()


def average(model: nn.Module, averaged: nn.Module) -> None:
    """The averaged weights, moved towards the model's by a share of 1 - `DECAY`."""
    current = copy.deepcopy(model).state_dict()
    moved = copy.deepcopy(averaged).state_dict()
    for name, value in current.items():
        moved[name] = (DECAY * moved[name].double() + (1 - DECAY) * value.double()).float()
    averaged.load_state_dict(moved)


def count_confusions(logits: Tensor, targets: Tensor, confusions: Tensor) -> None:
    """Add to ``confusions[i, j]`` how many examples of class i were called class j."""
    predicted = logits.argmax(dim=1)
    for i in range(CLASSES):
        for j in range(CLASSES):
            confusions[i, j] += ((targets == i) & (predicted == j)).sum().item()


PARTS: Parts = {
    "flip": flip,
    "brighten": brighten,
    "normalise": normalise,
    "forward": forward,
    "backward": backward,
    "clip": clip,
    "update": update,
    "average": average,
    "count_confusions": count_confusions,
}


def run_step(training: Training, batch: Batch, parts: Parts = PARTS) -> None:
    """One training step; the profiler sees each part under its name.

    Args:
        parts: a function for each name in `PARTS`.
    """

    def run(name: str, *arguments: Any) -> Any:
        with record_function(name):
            return parts[name](*arguments)

    images = run("flip", batch.images, batch.flips)
    images = run("brighten", images, batch.factors)
    images = run("normalise", images)
    logits = run("forward", training.model, images)
    run("backward", logits, batch.targets)
    run("clip", training.model)
    run("update", training.optimizer)
    run("average", training.model, training.averaged)
    run("count_confusions", logits.detach(), batch.targets, training.confusions)
