"""Checks of the exercises of lesson 91."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy import stats

from course_utils.checking.checking import Faults, checks_exercise, diagnose, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment

__all__ = ["check_ablate", "check_plan_minutes", "check_plan_seeds", "check_worth_of_a_part"]


@checks_exercise()
def check_worth_of_a_part(answer: Callable) -> None:
    """``answer(config, data) -> (without, full, low, high)``: an ablation of one part."""
    judge_experiment(run_experiment(answer))


# ---- ★ How long a project takes

# parts of the recipe, seeds, seconds of one training
PLANS = ((4, 5, 7.5), (2, 3, 20.0), (3, 10, 60.0), (6, 2, 30.0))


def _minutes(parts: int, seeds: int, training_s: float) -> float:
    """The oracle: the baseline, the recipe, and the recipe without each part."""
    return seeds * training_s * (2 + parts) / 60


# fmt: off
MINUTES_FAULTS: Faults = (
    ("The baseline is forgotten: it is trained at each seed too.",
     lambda parts, seeds, training_s: seeds * training_s * (1 + parts) / 60),
    ("The baseline and the full recipe are forgotten.",
     lambda parts, seeds, training_s: seeds * training_s * parts / 60),
    ("The variants without one part are forgotten.",
     lambda parts, seeds, training_s: seeds * training_s * 2 / 60),
    ("That is for one seed.",
     lambda parts, seeds, training_s: training_s * (2 + parts) / 60),
    ("That is in seconds: give minutes.",
     lambda parts, seeds, training_s: seeds * training_s * (2 + parts)),
    ("Leave-one-out trains one variant per part, not one per combination of parts.",
     lambda parts, seeds, training_s: seeds * training_s * 2**parts / 60),
)
# fmt: on


@checks_exercise(faults=MINUTES_FAULTS)
def check_plan_minutes(answer: Callable) -> None:
    """``answer(parts, seeds, training_s)``: minutes of all trainings, one after the other."""
    for plan in PLANS:
        parts, seeds, training_s = plan
        case = f"{parts} parts, {seeds} seeds, {training_s:g} s for each training:"
        found = answer(*plan)
        require(isinstance(found, Real), f"{case} return a number, not {found!r}.")
        diagnose(
            found,
            lambda other: other(*plan),  # noqa: B023
            _minutes,
            MINUTES_FAULTS,
            f"it takes {_minutes(*plan):g} minutes, not {found:g}.",
            case=case,
            tolerance=1e-9,
        )


# ---- ★★ How many seeds a project needs

MOST_SEEDS = 10_000
# paired differences of a pilot, and the half width that is wanted
PILOTS: tuple[tuple[tuple[float, ...], float], ...] = (
    ((0.007, -0.015, -0.015, -0.005), 0.005),  # here each fault has a number of its own
    ((0.010, 0.030, 0.011), 0.010),
    ((0.02, -0.01, 0.05, 0.00), 0.02),
    ((-0.031, 0.004, -0.012, 0.020, 0.008), 0.008),
    ((0.010, 0.012, 0.011, 0.009, 0.012), 0.05),
)


def _smallest(half_width_at: Callable[[int], float], wanted: float) -> int:
    counts = range(2, MOST_SEEDS)
    return next((n for n in counts if half_width_at(n) <= wanted), MOST_SEEDS)


def _seeds(differences: Sequence[float], half_width: float) -> int:
    """The oracle: the first n whose t-interval is as narrow as wanted."""
    std = _std(differences)
    return _smallest(lambda n: _t_half(std, n), half_width)


def _t_half(std: float, n: int, share: float = 0.975, df: int | None = None) -> float:
    return float(stats.t.ppf(share, n - 1 if df is None else df)) * std / math.sqrt(n)


def _std(differences: Sequence[float]) -> float:
    return float(np.std(differences, ddof=1))


# fmt: off
SEEDS_FAULTS: Faults = (
    ("1.96 is for many seeds: with few of them take Student's t with n - 1 degrees of freedom.",
     lambda d, w: _smallest(lambda n: 1.96 * _std(d) / math.sqrt(n), w)),
    ("The standard deviation of a few values divides by their number minus one: ddof=1.",
     lambda d, w: _smallest(lambda n: _t_half(float(np.std(d)), n), w)),
    ("That interval holds 90 %: leave 2.5 % on each side.",
     lambda d, w: _smallest(lambda n: _t_half(_std(d), n, 0.95), w)),
    ("The half width falls with the root of n, not with n.",
     lambda d, w: _smallest(lambda n: _t_half(_std(d), n) / math.sqrt(n), w)),
    ("The degrees of freedom are those of the planned seeds, not of the pilot.",
     lambda d, w: _smallest(lambda n: _t_half(_std(d), n, df=len(d) - 1), w)),
    ("That is the whole width of the interval: the half is asked for.",
     lambda d, w: _smallest(lambda n: 2 * _t_half(_std(d), n), w)),
)
# fmt: on


@checks_exercise(faults=SEEDS_FAULTS)
def check_plan_seeds(answer: Callable) -> None:
    """``answer(differences, half_width)``: the seeds that make the interval so narrow."""
    for differences, wanted in PILOTS:
        case = f"differences {list(differences)}, half width {wanted}:"
        given = list(differences)
        found = answer(given, wanted)
        require(given == list(differences), "The list was changed: leave it as it is.")
        whole = isinstance(found, Integral)
        require(whole, f"{case} return a whole number of seeds, not {found!r}.")
        right = _seeds(differences, wanted)
        diagnose(
            found,
            lambda other: other(differences, wanted),  # noqa: B023
            _seeds,
            SEEDS_FAULTS,
            f"{right} seeds are needed, not {found}.",
            case=case,
            tolerance=1e-9,
        )


# ---- ★★★ Find the bug: an ablation

Parts = dict[str, Any]
PARTS: Parts = {"learning rate": 3, "schedule": 5, "smoothing": 11}
SEEDS = (4, 8, 15)


class _Trainings:
    """A made-up ``train(parts, seed)``: the accuracy depends on every part and on the seed."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[tuple[str, ...], int]] = Counter()

    def __call__(self, parts: Parts, seed: int) -> float:
        self.calls[tuple(sorted(parts)), seed] += 1
        total = sum(parts.values())
        # parts help each other, so the order of removing them is seen in the result
        return (
            0.5 + 0.01 * total + 0.001 * total * total / 19 + 0.002 * math.sin(seed * (1 + total))
        )


def _ablate(train: Callable, parts: Parts, seeds: Sequence[int]) -> dict[str, list[float]]:
    """The oracle: the full recipe minus the one without a part, at each seed."""
    complete = [train(dict(parts), seed) for seed in seeds]
    worth = {}
    for left_out in parts:
        rest = {name: value for name, value in parts.items() if name != left_out}
        worth[left_out] = [full - train(rest, s) for full, s in zip(complete, seeds, strict=True)]
    return worth


def _ablate_one_after_the_other(train: Callable, parts: Parts, seeds: Sequence[int]) -> dict:
    complete = [train(dict(parts), seed) for seed in seeds]
    rest, worth = dict(parts), {}
    for left_out in parts:
        del rest[left_out]
        worth[left_out] = [
            full - train(dict(rest), s) for full, s in zip(complete, seeds, strict=True)
        ]
    return worth


def _ablate_unpaired(train: Callable, parts: Parts, seeds: Sequence[int]) -> dict:
    complete = [train(dict(parts), seed) for seed in seeds]
    worth = {}
    for left_out in parts:
        rest = {name: value for name, value in parts.items() if name != left_out}
        worth[left_out] = [
            full - train(rest, s + 1) for full, s in zip(complete, seeds, strict=True)
        ]
    return worth


def _ablate_against_best(train: Callable, parts: Parts, seeds: Sequence[int]) -> dict:
    best = max(train(dict(parts), seed) for seed in seeds)
    return {
        left_out: [
            best - train({n: v for n, v in parts.items() if n != left_out}, s) for s in seeds
        ]
        for left_out in parts
    }


def _ablate_turned(train: Callable, parts: Parts, seeds: Sequence[int]) -> dict:
    return {name: [-x for x in gains] for name, gains in _ablate(train, parts, seeds).items()}


ABLATE_FAULTS: Faults = (
    (
        "Each variant lacks the parts before it too: leave out one part only.",
        _ablate_one_after_the_other,
    ),
    ("The variants have seeds of their own: train each at the same seeds.", _ablate_unpaired),
    ("Each gain is from the best full recipe: take that of the same seed.", _ablate_against_best),
    ("The sign is turned round: full recipe minus the one without the part.", _ablate_turned),
)


@checks_exercise(faults=ABLATE_FAULTS)
def check_ablate(answer: Callable) -> None:
    """``answer(train, parts, seeds)``: what each part is worth at each seed."""
    train, given = _Trainings(), dict(PARTS)
    found = answer(train, given, SEEDS)
    require(given == PARTS, "The dictionary of parts was changed: leave it as it is.")
    require(
        isinstance(found, dict) and set(found) == set(PARTS),
        "Return a dictionary with one entry per part.",
    )
    try:
        values = [[float(x) for x in found[name]] for name in PARTS]
    except (TypeError, ValueError):
        fail("Each entry has to be a list of numbers, one per seed.")
    require(
        all(len(row) == len(SEEDS) for row in values),
        f"Give {len(SEEDS)} differences for each part, one per seed.",
    )

    def run(other: Callable) -> list[list[float]]:
        worth = other(_Trainings(), dict(PARTS), SEEDS)
        return [worth[name] for name in PARTS]

    diagnose(
        values,
        run,
        _ablate,
        ABLATE_FAULTS,
        "The differences are not those of the full recipe and the one without the part.",
        tolerance=1e-9,
    )
    most = max(train.calls.values())
    require(
        most == 1,
        f"A training was run {most} times: the full recipe needs one training per seed.",
    )
