"""Checks of the exercises of lesson 16."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from course_utils.checking.checking import checks_exercise, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import flatten_parameters
from course_utils.checking.outputs import Output

__all__ = [
    "check_compare_tuned",
    "check_measure_optimizer",
    "check_set_sam_gradient",
    "check_split_decay",
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


BEST = {"baseline": -2.2, "rival": -1.6}  # where each is best, in decades
DIVERGED_ABOVE = {"baseline": 0.05, "rival": 0.2}
CASES = (
    ((0.0005, 0.002, 0.008, 0.03), (0, 1, 2)),
    ((0.4, 0.03, 0.001, 0.01, 0.004), (5, 7, 9)),
)


def _train(name: str, lr: float, seed: int) -> float:
    """Accuracy in percent: a parabola over the decades, and luck that the seed decides."""
    if lr > DIVERGED_ABOVE[name] and seed % 2 == 0:  # and the trial number 0 has seed 100
        return math.nan
    luck = 2.5 * math.sin(12.9898 * seed + 78.233 * BEST[name] + 1000 * lr)
    return 50 + (name == "rival") - 6 * (math.log10(lr) - BEST[name]) ** 2 + luck


@checks_exercise()
def check_compare_tuned(answer: Callable) -> Iterator[Output]:
    """``answer(train, learning_rates, seeds) -> (baseline's best, rival's best, mean gain)``."""
    for learning_rates, seeds in CASES:
        found = answer(_train, list(learning_rates), list(seeds))
        require(
            isinstance(found, tuple | list) and len(found) == 3,
            "Return three numbers: both best learning rates and the mean gain.",
        )
        yield Output(
            [float(number) for number in found],
            "The best learning rates or the gain are others: tune both alike at seeds of their "
            "own, then subtract seed by seed at the reported seeds.",
        )
