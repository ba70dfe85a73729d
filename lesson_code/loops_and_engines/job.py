"""The small training that every loop of lesson 23 does: the same weights, batches and settings."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, TensorDataset

from course_utils.config import load_config
from course_utils.data.load import load_data
from course_utils.models.create import create_model

__all__ = [
    "FULL",
    "INCOMPLETE",
    "Job",
    "find_gap",
    "make_images",
    "make_network",
    "make_photograph_jobs",
    "measure_loss",
]


SGD_WITH_MOMENTUM = partial(SGD, momentum=0.9)


@dataclass(frozen=True)
class Job:
    """What is trained, on the CPU and in fp32, so that two loops can be compared bit by bit.

    Args:
        make_model: gives the network with its initial weights, the same at each call.
        inputs: (N, …), in the order in which they are read in every epoch.
        targets: classes (N,).
        batch_size: of a micro-batch; the last one of an epoch may be smaller.
        epochs: at least 1.
        accumulate: micro-batches per optimizer step, at least 1; 1: off.
        max_norm: the gradient of a step is clipped to this norm; some steps have a larger one.
        lr: the peak of the schedule.
        warmup_steps: optimizer steps before the peak.
        optimizer: called with the parameters and ``lr``.
    """

    make_model: Callable[[], nn.Module]
    inputs: Tensor
    targets: Tensor
    batch_size: int = 8
    epochs: int = 2
    accumulate: int = 2
    max_norm: float = 15.0
    lr: float = 0.01
    warmup_steps: int = 2
    optimizer: Callable[..., Optimizer] = SGD_WITH_MOMENTUM

    def make_loader(self) -> DataLoader:
        """Batches ``(inputs, targets)``, never shuffled."""
        return DataLoader(TensorDataset(self.inputs, self.targets), self.batch_size)

    def count_batches(self) -> int:
        """Micro-batches of an epoch."""
        return math.ceil(len(self.inputs) / self.batch_size)

    def count_steps(self) -> int:
        """Optimizer steps of the whole training; the last group of an epoch may be incomplete."""
        return self.epochs * math.ceil(self.count_batches() / self.accumulate)

    def make_optimizer(self, model: nn.Module) -> Optimizer:
        return self.optimizer(model.parameters(), lr=self.lr)

    def make_schedule(self, optimizer: Optimizer) -> LRScheduler:
        """Warm-up and cosine, to be stepped once per optimizer step."""
        from course_utils.training.schedules import warmup_cosine  # brings Lightning: seconds

        return warmup_cosine(optimizer, self.count_steps(), self.warmup_steps)


Loop = Callable[[Job], nn.Module]  # trains, and returns the trained network


def make_network(seed: int = 0, width: int = 8, side: int = 8, classes: int = 4) -> nn.Module:
    """A small convolutional network with BatchNorm; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False),  # (N, width, side, side)
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.AvgPool2d(side // 2),  # (N, width, 2, 2)
            nn.Flatten(),
            nn.Linear(4 * width, classes),
        )


def make_images(count: int, side: int = 8, classes: int = 4) -> tuple[Tensor, Tensor]:
    """Noise ``(count, 3, side, side)`` whose mean colour depends on the class ``(count,)``."""
    generator = torch.Generator().manual_seed(1)
    targets = torch.arange(count) % classes
    images = torch.randn(count, 3, side, side, generator=generator)
    return images + 0.3 * targets[:, None, None, None], targets


def make_convnet() -> nn.Module:
    """The course's network for photographs, with the same initial weights at each call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return create_model("convnet_small", 10)


FULL, INCOMPLETE = "full groups", "incomplete last group"


def make_photograph_jobs(count: int = 64) -> dict[str, Job]:
    """Two trainings of convnet_small on embedded photographs, in groups of two micro-batches.

    An epoch has eight micro-batches, which are four groups. In the second training the last
    micro-batch is left out, so that the last group has one alone. It clips nothing, because
    clipping would hide by which number a loss was divided.
    """
    data = load_data(load_config("quick", dataset="photos", first_seed=0).replace(num_train=count))
    images, targets = (torch.cat(parts) for parts in zip(*data.train_loader(0), strict=True))
    job = Job(make_convnet, images, targets, batch_size=count // 8)
    left = count - job.batch_size
    incomplete = replace(job, inputs=images[:left], targets=targets[:left], max_norm=1e6)
    return {FULL: job, INCOMPLETE: incomplete}


def find_gap(model: nn.Module, other: nn.Module) -> float:
    """The largest difference between two networks, over all weights and running statistics."""
    ours, theirs = model.state_dict(), other.state_dict()
    if list(ours) != list(theirs):
        raise ValueError(f"two different networks: {list(ours)} and {list(theirs)}")
    named = [name for name, value in ours.items() if value.is_floating_point()]
    return max((ours[n].double() - theirs[n].double()).abs().max().item() for n in named)


@torch.no_grad()
def measure_loss(model: nn.Module, job: Job) -> float:
    """Cross-entropy of a trained network on the job's examples, in eval mode."""
    was_training = model.training
    loss = nn.functional.cross_entropy(model.eval()(job.inputs), job.targets).item()
    model.train(was_training)
    return loss
