"""Checks of the exercises of lesson 91."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from numbers import Integral, Real

from course_utils.checking.checking import checks_exercise, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.outputs import Output

__all__ = ["check_ablate", "check_plan_minutes", "check_plan_seeds", "check_worth_of_a_part"]


@checks_exercise()
def check_worth_of_a_part(answer: Callable) -> None:
    """``answer(config, data) -> (without, full, low, high)``: an ablation of one part."""
    judge_experiment(run_experiment(answer))


# ---- ★ How long a project takes

# parts of the recipe, seeds, seconds of one training
PLANS = ((4, 5, 7.5), (2, 3, 20.0), (3, 10, 60.0), (6, 2, 30.0))


@checks_exercise()
def check_plan_minutes(answer: Callable) -> Iterator[Output]:
    """``answer(parts, seeds, training_s)``: minutes of all trainings, one after the other."""
    for parts, seeds, training_s in PLANS:
        case = f"{parts} parts, {seeds} seeds, {training_s:g} s for each training:"
        found = answer(parts, seeds, training_s)
        require(isinstance(found, Real), f"{case} return a number, not {found!r}.")
        yield Output(found, f"it takes {{right}} minutes, not {found:g}.", case)


# ---- ★★ How many seeds a project needs

# paired differences of a pilot, and the half width that is wanted
PILOTS = (
    ((0.007, -0.015, -0.015, -0.005), 0.005),  # here each fault has a number of its own
    ((0.010, 0.030, 0.011), 0.010),
    ((0.02, -0.01, 0.05, 0.00), 0.02),
    ((-0.031, 0.004, -0.012, 0.020, 0.008), 0.008),
    ((0.010, 0.012, 0.011, 0.009, 0.012), 0.05),
)


@checks_exercise()
def check_plan_seeds(answer: Callable) -> Iterator[Output]:
    """``answer(differences, half_width)``: the seeds that make the interval so narrow."""
    for differences, wanted in PILOTS:
        case = f"differences {list(differences)}, half width {wanted}:"
        given = list(differences)
        found = answer(given, wanted)
        require(given == list(differences), "The list was changed: leave it as it is.")
        whole = isinstance(found, Integral)
        require(whole, f"{case} return a whole number of seeds, not {found!r}.")
        yield Output(int(found), f"{{right}} seeds are needed, not {found}.", case)


# ---- ★★★ Find the bug: an ablation

PARTS = {"learning rate": 3, "schedule": 5, "smoothing": 11}
SEEDS = (4, 8, 15)


class _Trainings:
    """A made-up ``train(parts, seed)``: the accuracy depends on every part and on the seed."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[tuple[str, ...], int]] = Counter()

    def __call__(self, parts: dict[str, int], seed: int) -> float:
        self.calls[tuple(sorted(parts)), seed] += 1
        total = sum(parts.values())
        # parts help each other, so the order of removing them is seen in the result
        return 0.5 + 0.01 * total + total**2 / 19_000 + 0.002 * math.sin(seed * (1 + total))


@checks_exercise()
def check_ablate(answer: Callable) -> Iterator[Output]:
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
    lengths = {len(row) for row in values}
    require(lengths == {3}, "Give 3 differences for each part, one per seed.")
    yield Output(
        values, "The differences are not those of the full recipe and the one without the part."
    )
    most = max(train.calls.values())
    again = f"A training was run {most} times: the full recipe needs one training per seed."
    require(most == 1, again)
