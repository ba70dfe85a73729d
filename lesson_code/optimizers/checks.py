"""Checks of the exercises of lesson 16."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import LambdaLR

from course_utils.checking.checking import checks_exercise, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import flatten_parameters
from course_utils.checking.outputs import Output

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
    """Parameters of a small network with a norm; two are frozen, one has no dimension."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    model.register_parameter("temperature", nn.Parameter(torch.tensor(1.0)))
    model.register_parameter("tokens", nn.Parameter(torch.randn(1, 4)))
    model.add_module("texts", nn.Conv1d(2, 3, 2))
    model[3].requires_grad_(False)
    return [*model.named_parameters(), ("head.weight", nn.Parameter(torch.randn(2, 3)))]


def _read_groups(groups: Any) -> tuple[Named, Named]:
    """The pairs of both groups, or a sentence on what the answer returned instead."""
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
    decays = [float(group["weight_decay"]) for group in groups]
    require(
        decays == [DECAY, 0.0],
        f"The decays of the groups are {decays[0]:g} and {decays[1]:g}, not {DECAY:g} and 0.",
    )
    return groups[0]["params"], groups[1]["params"]


@checks_exercise()
def check_split_decay(answer: Callable) -> Iterator[Output]:
    """``answer(named_parameters, weight_decay) -> two groups``."""
    named = _make_named()
    trained = [parameter.requires_grad for _, parameter in named]
    for pairs in (named, named[:2], []):
        first, second = _read_groups(answer(list(pairs), DECAY))
        require(
            [parameter.requires_grad for _, parameter in named] == trained,
            "requires_grad has changed: only sort the parameters into groups.",
        )
        given = dict(pairs)
        for name, parameter in [*first, *second]:
            require(
                given.get(name) is parameter,
                f"{name!r} is not paired with its own parameter: keep the pairs as they are.",
            )
        places = {name: place for place, (name, _) in enumerate(named)}
        yield Output(  # -1 stands between the groups
            [*(places[name] for name, _ in first), -1, *(places[name] for name, _ in second)],
            "The groups hold other parameters, or in another order: those that are trained and "
            "have two dimensions or more decay.",
        )


# ---- ★★ SAM's gradient of a large batch.


@checks_exercise()
def check_set_sam_gradient(answer: Callable) -> Iterator[Output]:
    """``answer(model, micro_batches, rho)``: SAM's gradient in ``.grad``."""
    for rho, count in ((0.8, 3), (0.3, 1)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
        batches = [(2 * torch.randn(6, 5), torch.randint(3, (6,))) for _ in range(count)]
        parameters = [*model.parameters()]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter) if count > 1 else None  # from before
        answer(model, batches, rho)
        gradients = [0 * p.flatten() if p.grad is None else p.grad.flatten() for p in parameters]
        yield Output(
            torch.cat([*gradients, flatten_parameters(model)]),
            "The gradients are not those of the mean loss at w + rho g / |g|, or the weights are "
            "not the old ones.",
        )


# ---- ★★★ Finding the bugs.


@checks_exercise()
def check_train_sam(answer: Callable) -> Iterator[Output]:
    """``answer(model, optimizer, schedule, batches, rho)``, in place."""
    for momentum, rho in ((0.0, 0.5), (0.9, 0.5), (0.9, 0.0), (None, 0.5)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
        count = 5 if rho else 7
        batches = [(2 * torch.randn(8, 6), torch.randint(3, (8,))) for _ in range(count)]
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
            answer(model, optimizer, schedule, batches, rho)
        steps = schedule.last_epoch
        yield Output(
            torch.cat([flatten_parameters(model), torch.tensor([float(steps)])]),
            "The weights are not those of SAM's steps: the gradient from uphill, the step from "
            "the old weights."
            if steps == count
            else f"The schedule is stepped {steps} times, not {count}: once for each step of the "
            "optimizer.",
            tolerance=1e-4,
        )
