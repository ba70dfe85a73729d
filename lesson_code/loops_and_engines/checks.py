"""Checks of the exercises of lesson 23."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from course_utils.checking.checking import checks_exercise, require
from course_utils.checking.outputs import Output
from lesson_code.loops_and_engines.job import Job, find_gap, make_images, make_network
from lesson_code.loops_and_engines.plain import train_plain

__all__ = [
    "check_find_misnamed",
    "check_group_loops",
    "check_train_repaired",
    "check_weigh_losses",
]

# ---- ☆ Which loops agree?

NEAR = 4e-7  # within the tolerance of 1e-6
AGREEING = [["a", "b"], ["c", "e"], ["d"]]


def make_toy_loop(calls: list[Any], weight: float = 0.0, mean: float = 0.0) -> Callable:
    """A loop that returns a network of one BatchNorm at once, and notes its job."""

    def train(job: Any) -> nn.Module:
        calls.append(job)
        model = nn.BatchNorm1d(2)
        with torch.no_grad():
            model.weight.add_(weight)
            assert isinstance(model.running_mean, Tensor)
            model.running_mean.add_(mean)
        return model

    return train


def name_pairs(groups: list[list[str]]) -> set[frozenset[str]]:
    """All pairs of names that stand in one group."""
    return {frozenset((a, b)) for group in groups for a in group for b in group if a != b}


@checks_exercise()
def check_group_loops(answer: Callable) -> None:
    """``answer(loops, job) -> [[name, …], …]``: loops whose weights agree within 1e-6."""
    calls: list[Any] = []
    make = partial(make_toy_loop, calls)
    loops = {"a": make(), "b": make(NEAR), "c": make(0.5), "d": make(mean=0.5)}
    loops["e"] = make(0.5 - NEAR)
    job = object()
    found = answer(loops, job)
    require(
        isinstance(found, list)
        and all(isinstance(x, list) and all(isinstance(y, str) for y in x) for x in found),
        "Return a list of groups, each of which is a list of names.",
    )
    require(
        sorted(name for group in found for name in group) == sorted(loops),
        "Each loop belongs to one group, and one that agrees with no other is a group of its own.",
    )
    require(
        len(calls) == len(loops) and all(x is job for x in calls),
        f"There are {len(loops)} loops, and {len(calls)} trainings: train by each once, with the "
        "job.",
    )
    pairs = name_pairs(found)
    require(
        frozenset("ad") not in pairs,
        "d has the weights of a, and other running statistics: compare buffers, too.",
    )
    require(
        frozenset("ab") in pairs,
        f"a and b differ by {NEAR:g}, which is within the tolerance: they belong together.",
    )
    require(frozenset("ac") not in pairs, "a and c differ by 0.5: they do not belong together.")
    require(
        frozenset("ce") in pairs,
        "c and e agree: compare a loop with all groups, and not with the first loop alone.",
    )
    require(
        [sorted(group) for group in found] == AGREEING,
        "The group of the first loop comes first, and so on.",
    )
    print("three groups, by weights and running statistics")


# ---- ★ What does each micro-batch weigh?

SIZES = (
    ([32, 32, 32, 32], 2),
    ([32, 32, 32], 2),
    ([32, 32, 32, 20], 2),
    ([16, 16, 16, 16, 16, 16, 16, 4], 3),
    ([8, 4], 1),
)


@checks_exercise()
def check_weigh_losses(answer: Callable) -> Iterator[Output]:
    """``answer(sizes, accumulate) -> factors``, one for each micro-batch."""
    for sizes, accumulate in SIZES:
        found = answer(list(sizes), accumulate)
        require(
            isinstance(found, list) and len(found) == len(sizes),
            f"Return a list of {len(sizes)} factors, one for each micro-batch.",
        )
        case = f"Sizes {sizes} in groups of {accumulate}:"
        numbers = [float(x) for x in found]
        yield Output(numbers, "these are no shares of the examples of each group.", case)


# ---- ★★ Which methods does Lightning never call?


class Ordinary(L.LightningModule):
    """Has nothing to find: hooks, a helper, a number, and a method for its own use."""

    on_ice = 3  # no method

    def training_step(self, batch: Any, batch_idx: int) -> None: ...

    def on_train_epoch_end(self) -> None: ...

    def compute_loss(self) -> None: ...

    def _on_demand(self) -> None: ...


class WithTypo(Ordinary):
    def on_train_epoch_ends(self) -> None: ...


class Removed(Ordinary):
    def validation_epoch_end(self, outputs: Any) -> None: ...


class Singular(Ordinary):
    def configure_optimizer(self) -> None: ...


class Inherits(WithTypo):
    def test_step(self, batch: Any, batch_idx: int) -> None: ...


class Loading(L.LightningDataModule):
    def train_loader(self) -> None: ...

    def setup(self, stage: str) -> None: ...


class Calling(L.Callback):
    def on_batches_end(self) -> None: ...

    def on_train_end(self, trainer: Any, pl_module: Any) -> None: ...


MISNAMED: tuple[tuple[Any, type, list[str], str], ...] = (
    (Ordinary, L.LightningModule, [], "a module without a fault"),
    (WithTypo, L.LightningModule, ["on_train_epoch_ends"], "a method that begins with on_"),
    (Singular, L.LightningModule, ["configure_optimizer"], "a name that is nearly a hook's"),
    (Removed, L.LightningModule, ["validation_epoch_end"], "a hook that was removed"),
    (Inherits, L.LightningModule, ["on_train_epoch_ends"], "a method of your own base class"),
    (Loading, L.LightningDataModule, ["train_loader"], "a data module"),
    (Calling, L.Callback, ["on_batches_end"], "a callback"),
)


@checks_exercise()
def check_find_misnamed(answer: Callable) -> None:
    """``answer(thing, base) -> names``, sorted."""
    for kind, base, expected, words in MISNAMED:
        found = answer(kind(), base)
        require(isinstance(found, list), "Return a list of names.")
        missing = [name for name in expected if name not in found]
        require(not missing, f"{', '.join(missing)} is missing: {words}.")
        wrong = [name for name in found if name not in expected]
        require(not wrong, f"{', '.join(map(str, wrong))} should not be listed: {words}.")
    print("five misnamed methods are found, and no other one")


# ---- ★★★ Find the bugs in a loop.


class Noted(nn.Module):
    """Passes its inputs on, and notes the mode of each forward pass in which gradients flow."""

    def __init__(self) -> None:
        super().__init__()
        self.modes: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            self.modes.append(self.training)
        return x


@dataclass(frozen=True)
class SpiedJob(Job):
    """Keeps what an answer makes of it."""

    optimizers: list[Optimizer] = field(default_factory=list)
    schedules: list[LRScheduler] = field(default_factory=list)
    stepped: list[int] = field(default_factory=list)

    def make_optimizer(self, model: nn.Module) -> Optimizer:
        optimizer = super().make_optimizer(model)
        optimizer.register_step_post_hook(lambda *_: self.stepped.append(1))
        self.optimizers.append(optimizer)
        return optimizer

    def make_schedule(self, optimizer: Optimizer) -> LRScheduler:
        self.schedules.append(super().make_schedule(optimizer))
        return self.schedules[-1]


def make_linear() -> nn.Module:
    """Without BatchNorm, so that two halves of a batch do what the whole batch does."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4))


def gap_to_whole_batches(answer: Callable, job: Job) -> float:
    """The largest difference from a training whose batches are the job's whole groups."""
    whole = replace(job, batch_size=job.batch_size * job.accumulate, accumulate=1)
    return find_gap(answer(job), train_plain(whole))


@checks_exercise()
def check_train_repaired(answer: Callable) -> None:
    """``answer(job) -> model``, against trainings with whole batches."""
    images, targets = make_images(44)
    noted = nn.Sequential(Noted(), make_network())
    spied = SpiedJob(lambda: noted, images[:36], targets[:36])  # micro-batches of 8, 8, 8, 8, 4
    model = answer(spied)
    require(isinstance(model, nn.Module), "Return the trained network.")
    modes = noted[0].modes
    assert isinstance(modes, list)
    require(
        all(modes),
        f"{modes.count(False)} of {len(modes)} micro-batches were trained in eval mode: who calls "
        "model.train() after the validation?",
    )
    steps, expected = len(spied.stepped), spied.count_steps()
    require(
        steps == expected,
        f"{steps} optimizer steps, where the job has {expected}: the last group of an epoch may "
        "be incomplete, and needs its step, too.",
    )
    times = spied.schedules[-1].last_epoch if spied.schedules else 0
    require(
        times == expected,
        f"The schedule was stepped {times} times, and the optimizer {expected} times.",
    )
    job = Job(make_linear, images[:32], targets[:32], max_norm=1e6, optimizer=partial(SGD))
    gap = gap_to_whole_batches(answer, job)
    require(
        gap < 1e-5,
        f"With full groups, and without clipping, a weight differs from that of whole batches by "
        f"{gap:.1e}: look at the size of the gradient.",
    )
    gap = gap_to_whole_batches(answer, replace(job, max_norm=0.5))
    require(
        gap < 1e-5,
        f"Where gradients are clipped, a weight differs from that of whole batches by {gap:.1e}: "
        "clip once per optimizer step, when the group is complete.",
    )
    for count, words in ((40, "has one micro-batch"), (44, "ends with a smaller micro-batch")):
        changed = replace(job, inputs=images[:count], targets=targets[:count])
        gap = gap_to_whole_batches(answer, changed)
        require(
            gap < 1e-5,
            f"Where the last group {words}, a weight differs from that of whole batches by "
            f"{gap:.1e}: each micro-batch has the weight of its share in the group's examples.",
        )
    print("train mode, steps, schedule, clipping and weights are those of whole batches")
