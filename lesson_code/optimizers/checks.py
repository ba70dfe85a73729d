"""Checks of the exercises of lesson 16."""

import copy
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from course_utils.checking.checking import Faults, checks_exercise, diagnose, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import Batches, flatten_parameters

__all__ = [
    "check_measure_optimizer",
    "check_set_sam_gradient",
    "check_split_decay",
    "check_train_sam",
]


@checks_exercise()
def check_measure_optimizer(answer: Callable) -> None:
    """``answer(config, data) -> (adamw, other, low, high)``: two optimizers, the same seeds."""
    judge_experiment(run_experiment(answer))


# ---- ★ Who decays?

Named = list[tuple[str, nn.Parameter]]
DECAY = 0.3


def _make_named() -> Named:
    """Parameters of a small network with a norm; one is frozen, one has no dimension."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    model.register_parameter("temperature", nn.Parameter(torch.tensor(1.0)))
    model.register_parameter("tokens", nn.Parameter(torch.randn(1, 4)))
    model.add_module("texts", nn.Conv1d(2, 3, 2))
    model[3].requires_grad_(False)
    return list(model.named_parameters())


def _split(
    named_parameters: Named,
    weight_decay: float,
    decays: Callable[[str, nn.Parameter], bool] = lambda name, parameter: parameter.ndim >= 2,
    keeps: Callable[[nn.Parameter], bool] = lambda parameter: parameter.requires_grad,
) -> list[dict[str, Any]]:
    """A right answer, unless an argument plants a fault."""
    kept = [(name, p) for name, p in named_parameters if keeps(p)]
    return [
        {"params": [pair for pair in kept if decays(*pair)], "weight_decay": weight_decay},
        {"params": [pair for pair in kept if not decays(*pair)], "weight_decay": 0.0},
    ]


SPLIT_FAULTS: Faults = (
    ("Parameters that need no gradient are in the groups: leave them out.",
     partial(_split, keeps=lambda parameter: True)),
    ("Parameters that need no gradient are in the second group: leave them out of both.",
     partial(_split, keeps=lambda parameter: parameter.requires_grad or parameter.ndim < 2)),
    ("Only tensors with two or four dimensions decay: all with two or more do.",
     partial(_split, decays=lambda name, parameter: parameter.ndim in (2, 4))),
    ("The norm's weights decay: look at the number of dimensions, not at the name.",
     partial(_split, decays=lambda name, parameter: "bias" not in name)),
    ("Biases and norms are in the group that decays, and the weights are not.",
     partial(_split, decays=lambda name, parameter: parameter.ndim < 2)),
    ("Only tensors with two dimensions decay: filters have four.",
     partial(_split, decays=lambda name, parameter: parameter.ndim == 2)),
    ("Only tensors with four dimensions decay: matrices have two.",
     partial(_split, decays=lambda name, parameter: parameter.ndim == 4)),
)  # fmt: skip


def _read_groups(groups: Any) -> list[dict[str, Any]]:
    """Two groups with lists of pairs, or a sentence on what they are instead."""
    require(
        isinstance(groups, list | tuple) and len(groups) == 2,
        "Return a list of two groups, the one with decay first.",
    )
    for group in groups:
        require(
            isinstance(group, dict) and {"params", "weight_decay"} <= set(group),
            'A group is a dictionary with the keys "params" and "weight_decay".',
        )
        require(
            isinstance(group["params"], list)
            and all(
                isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)
                for pair in group["params"]
            ),
            '"params" is a list of (name, parameter) pairs.',
        )
    return list(groups)


@checks_exercise(faults=SPLIT_FAULTS)
def check_split_decay(answer: Callable) -> None:
    """``answer(named_parameters, weight_decay) -> two groups``."""
    named = _make_named()
    trained = [parameter.requires_grad for _, parameter in named]
    groups = _read_groups(answer(list(named), DECAY))
    decays = [float(group["weight_decay"]) for group in groups]
    require(
        decays == [DECAY, 0.0],
        f"The decays of the groups are {decays[0]:g} and {decays[1]:g}, not {DECAY:g} and 0.",
    )
    named.append(("head.weight", nn.Parameter(torch.randn(2, 3))))
    for pairs in (named, named[:2], []):
        found = _read_groups(answer(list(pairs), DECAY))
        require(
            [parameter.requires_grad for _, parameter in named][: len(trained)] == trained,
            "requires_grad has changed: only sort the parameters into groups.",
        )
        given = dict(pairs)
        for name, parameter in (pair for group in found for pair in group["params"]):
            require(
                given.get(name) is parameter,
                f"{name!r} is not paired with its own parameter: keep the pairs as they are.",
            )
        diagnose(
            _list_names(found),
            lambda other: _list_names(other(list(pairs), DECAY)),  # noqa: B023
            _split,
            SPLIT_FAULTS,
            "The groups hold other parameters, or in another order: those that are trained and "
            "have two dimensions or more decay.",
        )


def _list_names(groups: list[dict[str, Any]]) -> list[float]:
    """The names of both groups as numbers: -1 stands between them."""
    order = [name for name, _ in _make_named()] + ["head.weight"]
    first, second = (
        [float(1 + order.index(name)) if name in order else -2.0 for name, _ in group["params"]]
        for group in groups
    )
    return [*first, -1.0, *second]


# ---- ★★ SAM's gradient of a large batch.


def _set_mean_gradient(model: nn.Module, batches: Batches, divides: bool = True) -> None:
    for inputs, targets in batches:
        loss = F.cross_entropy(model(inputs), targets)
        (loss / len(batches) if divides else loss).backward()


def _move(weights: Sequence[nn.Parameter], rho: float, norms: str = "one") -> None:
    """Uphill by ``rho``, in place."""
    slopes = [weight.grad for weight in weights if weight.grad is not None]
    whole = get_total_norm(slopes)
    with torch.no_grad():
        for weight, slope in zip(weights, slopes, strict=True):
            norm = {"one": whole, "each": slope.norm(), "none": torch.tensor(1.0)}[norms]
            weight.add_(slope / norm, alpha=rho)


def _remember(model: nn.Module) -> tuple[list[nn.Parameter], list[Tensor]]:
    """The parameters, and a copy of each."""
    parameters = [*model.parameters()]
    return parameters, [parameter.detach().clone() for parameter in parameters]


def _restore(parameters: Sequence[nn.Parameter], start: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(parameters, start, strict=True):
            parameter.copy_(value)


def _set_sam_gradient(
    model: nn.Module,
    micro_batches: Batches,
    rho: float,
    norms: str = "one",
    zeroes: bool = True,
    zeroes_first: bool = True,
    divides: bool = True,
    restores: bool = True,
    climb_on: Callable[[Batches], Batches] = lambda batches: batches,
    take_on: Callable[[Batches], Batches] = lambda batches: batches,
) -> None:
    """A right answer, unless an argument plants a fault."""
    weights, start = _remember(model)
    if zeroes_first:
        model.zero_grad()
    _set_mean_gradient(model, climb_on(micro_batches))
    _move(weights, rho, norms)
    if zeroes:
        model.zero_grad()
    _set_mean_gradient(model, take_on(micro_batches), divides)
    if restores:
        _restore(weights, start)


def _climb_for_each(model: nn.Module, micro_batches: Batches, rho: float) -> None:
    weights = [*model.parameters()]
    sums = [torch.zeros_like(weight) for weight in weights]
    for batch in micro_batches:
        _set_sam_gradient(model, [batch], rho)
        for total, weight in zip(sums, weights, strict=True):
            assert weight.grad is not None
            total += weight.grad / len(micro_batches)
    for total, weight in zip(sums, weights, strict=True):
        weight.grad = total


def _descend_instead(model: nn.Module, micro_batches: Batches, rho: float) -> None:
    _set_sam_gradient(model, micro_batches, -rho)


def _leave_plain(model: nn.Module, micro_batches: Batches, rho: float) -> None:
    _set_sam_gradient(model, micro_batches, 0.0)


def _take_last(batches: Batches) -> Batches:
    return batches[-1:]


GRADIENT_FAULTS: Faults = (
    ("Each micro-batch climbs by itself: climb once, along the mean gradient of all.",
     _climb_for_each),
    ("The gradients of both passes are added: zero_grad before the second.",
     partial(_set_sam_gradient, zeroes=False)),
    ("Gradients from before count: zero_grad first.",
     partial(_set_sam_gradient, zeroes_first=False)),
    ("The weights are still uphill: put the old ones back.",
     partial(_set_sam_gradient, restores=False)),
    ("Each parameter is divided by its own norm: take the common one.",
     partial(_set_sam_gradient, norms="each")),
    ("The climb is not divided by the norm.", partial(_set_sam_gradient, norms="none")),
    ("The second gradient is a sum: divide each loss by the number of micro-batches.",
     partial(_set_sam_gradient, divides=False)),
    ("The second gradient is that of the last micro-batch only.",
     partial(_set_sam_gradient, take_on=_take_last)),
    ("The climb uses the last micro-batch only.",
     partial(_set_sam_gradient, climb_on=_take_last)),
    ("It goes downhill: add rho times the gradient.", _descend_instead),
    ("This is the plain gradient: take it uphill.", _leave_plain),
)  # fmt: skip


def _run_gradient(answer: Callable, rho: float, count: int) -> Tensor:
    """All gradients and all weights after the call."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    batches = [(2 * torch.randn(6, 5), torch.randint(3, (6,))) for _ in range(count)]
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter) if count > 1 else None  # from before
    answer(model, batches, rho)
    gradients = [
        torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten()
        for p in model.parameters()
    ]
    return torch.cat([*gradients, flatten_parameters(model)])


@checks_exercise(faults=GRADIENT_FAULTS)
def check_set_sam_gradient(answer: Callable) -> None:
    """``answer(model, micro_batches, rho)``: SAM's gradient in ``.grad``."""
    for rho, count in ((0.8, 3), (0.3, 1)):
        diagnose(
            _run_gradient(answer, rho, count),
            lambda other: _run_gradient(other, rho, count),  # noqa: B023
            _set_sam_gradient,
            GRADIENT_FAULTS,
            "The gradients are not those of the mean loss at w + rho g / |g|, or the weights are "
            "not the old ones.",
        )


# ---- ★★★ Finding the bugs.


def _train_sam(
    model: nn.Module,
    optimizer: Optimizer,
    schedule: LambdaLR,
    batches: Batches,
    rho: float,
    norms: str = "one",
    zeroes: bool = True,
    zeroes_first: bool = True,
    restores: str = "before",
    schedules: int = 1,
    schedule_first: bool = False,
    steps: bool = True,
) -> None:
    """A right answer, unless an argument plants a fault."""
    for inputs, targets in batches:
        weights, start = _remember(model)
        if zeroes_first:
            optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        _move(weights, rho, norms)
        if schedule_first:
            schedule.step()
        if zeroes:
            optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        if restores == "before":
            _restore(weights, start)
        if steps:
            optimizer.step()
        if restores == "back":
            _move(weights, -rho, norms)
        for _ in range(schedules):
            schedule.step()


SAM_FAULTS: Faults = (
    ("The schedule is stepped twice for each step of the optimizer.",
     partial(_train_sam, schedules=2)),
    ("The schedule is stepped twice, and once before the optimizer: step it once, after it.",
     partial(_train_sam, schedules=1, schedule_first=True)),
    ("The schedule is stepped before the optimizer.",
     partial(_train_sam, schedules=0, schedule_first=True)),
    ("The schedule is never stepped.", partial(_train_sam, schedules=0)),
    ("The optimizer steps from the weights uphill: put the old ones back before step.",
     partial(_train_sam, restores="never")),
    ("The way back uses the second gradient: keep copies of the weights.",
     partial(_train_sam, restores="back")),
    ("The gradients of both passes are added: zero_grad before the second.",
     partial(_train_sam, zeroes=False)),
    ("The gradients of the last batch are still there: zero_grad before the first pass.",
     partial(_train_sam, zeroes_first=False)),
    ("Gradients are never set to zero.", partial(_train_sam, zeroes=False, zeroes_first=False)),
    ("Each weight is divided by its own norm: take the common one.",
     partial(_train_sam, norms="each")),
    ("The climb is not divided by the norm.", partial(_train_sam, norms="none")),
    ("The weights never move: step the optimizer, after the old weights are back.",
     partial(_train_sam, steps=False)),
)  # fmt: skip


def _run_sam(answer: Callable, momentum: float | None, rho: float) -> Tensor:
    """The weights and the steps of the schedule after a training of five batches."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    batches = [(2 * torch.randn(8, 6), torch.randint(3, (8,))) for _ in range(5 if rho else 7)]
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)  # from before
    groups = [{"params": [*part.parameters()]} for part in (model[0], model[2])]
    optimizer = (
        AdamW(groups, lr=0.03)
        if momentum is None
        else SGD(groups, lr=0.3, momentum=momentum, weight_decay=0.1)
    )
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        schedule = LambdaLR(optimizer, lambda step: 1 / (1 + step))
        answer(model, optimizer, schedule, copy.deepcopy(batches), rho)
    steps = torch.tensor([float(schedule.last_epoch)])
    return torch.nan_to_num(torch.cat([flatten_parameters(model), steps]), 1e6)


@checks_exercise(faults=SAM_FAULTS)
def check_train_sam(answer: Callable) -> None:
    """``answer(model, optimizer, schedule, batches, rho)``, in place."""
    for momentum, rho in ((0.0, 0.5), (0.9, 0.5), (0.9, 0.0), (None, 0.5)):
        found = _run_sam(answer, momentum, rho)
        right = _run_sam(_train_sam, momentum, rho)
        diagnose(
            found,
            lambda other: _run_sam(other, momentum, rho),  # noqa: B023
            _train_sam,
            SAM_FAULTS,
            "The weights are not those of SAM's steps: the gradient from uphill, the step from "
            "the old weights."
            if found[-1] == right[-1]
            else f"The schedule is stepped {int(found[-1])} times, not {int(right[-1])}: once for "
            "each step of the optimizer.",
            tolerance=1e-4,
        )
