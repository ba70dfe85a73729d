"""Checks of the exercises of lesson 12."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np

from course_utils.exercises.checking import checks_exercise, fail, require

__all__ = ["check_pareto_front", "check_speed_up", "check_study"]

# shares of the time, and how many times as fast each part has become
SPEED_UPS: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...] = (
    ((0.5, 0.25), (5.0, 2.0)),
    ((0.75,), (3.0,)),
    ((0.25, 0.75), (2.0, 4.0)),
    ((0.5, 0.5), (1.0, 0.5)),
    ((), ()),
)


def _mistaken_speed_ups(shares: Sequence[float], factors: Sequence[float]) -> dict[str, float]:
    """What usual mistakes make of the speed-up; each sentence names the fix."""
    pairs = list(zip(shares, factors, strict=True))
    rest = 1 - sum(shares)  # the share of the time that stays as it was
    new_time = sum(share / factor for share, factor in pairs)  # of the parts that are faster
    multiplied = sum(share * factor for share, factor in pairs)
    return {
        "The rest is forgotten, though it takes what it took.": 1 / new_time if new_time else 1.0,
        "That is the new time: the speed-up is the old time over it.": new_time + rest,
        "Times add up, speeds do not: divide each share by its factor.": rest + multiplied,
        "Factors multiply only where each speeds up the whole step.": math.prod(factors),
        "One fast part does not make the whole as fast.": max(factors, default=1.0),
        "The rest counts as gained: it still takes its time.": new_time,
    }


@checks_exercise()
def check_speed_up(answer: Callable) -> None:
    """``answer(shares, factors)``: the old time of a step over the new one."""
    for shares, factors in SPEED_UPS:
        case = f"shares {list(shares)}, factors {list(factors)}"
        found = answer(list(shares), list(factors))
        require(isinstance(found, Real), f"{case}: return a number, not {found!r}.")
        rest = 1 - sum(shares)
        new_time = rest + sum(share / factor for share, factor in zip(shares, factors, strict=True))
        if math.isclose(found, 1 / new_time, rel_tol=1e-9):
            continue
        for sentence, value in _mistaken_speed_ups(shares, factors).items():
            require(not math.isclose(found, value, rel_tol=1e-9), f"{case}: {sentence}")
        fail(f"{case}: the step is {1 / new_time:.3g} times as fast, not {found:.3g}.")


# recipes, their front, and what the case is about
FRONTS: tuple[tuple[dict[str, tuple[float, float]], list[str], str], ...] = (
    ({"a": (3.0, 0.7)}, ["a"], "A single recipe is dominated by nobody."),
    (
        {"slow": (9.0, 0.9), "fast": (1.0, 0.5), "middle": (4.0, 0.8)},
        ["fast", "middle", "slow"],
        "Where more seconds always give more accuracy all stay, the fastest first.",
    ),
    (
        {"slow": (9.0, 0.6), "fast": (1.0, 0.5), "middle": (4.0, 0.8)},
        ["fast", "middle"],
        "A recipe that is slower and less accurate than another one is dominated.",
    ),
    (
        {"a": (2.0, 0.6), "b": (2.0, 0.7), "c": (5.0, 0.7)},
        ["b"],
        "No worse in one and better in the other is enough to dominate.",
    ),
    (
        {"z": (2.0, 0.7), "b": (1.0, 0.4), "a": (2.0, 0.7)},
        ["b", "z", "a"],
        "Recipes that are equal in both do not dominate each other, and keep their order.",
    ),
    (
        {"a": (1.0, 0.9), "b": (2.0, 0.5), "c": (3.0, 0.6)},
        ["a"],
        "A recipe must be compared with all others, not with its neighbour only.",
    ),
    ({}, [], "No recipes have an empty front."),
)


@checks_exercise()
def check_pareto_front(answer: Callable) -> None:
    """``answer({name: (seconds, accuracy)})``: the names not dominated, the fastest first."""
    for recipes, front, about in FRONTS:
        given = dict(recipes)
        found = answer(given)
        require(given == recipes, "The dictionary was changed: leave it as it is.")
        require(isinstance(found, list), f"Return a list of names, not {type(found).__name__}.")
        case = f"{recipes}: {found} should be {front}."
        if found == front:
            continue
        # The right names in another order; whatever else a list may hold is compared as text.
        ordered = sorted(found, key=str) == sorted(front)
        require(not ordered, f"The order is wrong: the fastest first, equal ones as given. {case}")
        fail(f"{about} {case}")


@dataclass(frozen=True)
class _Looks:
    """What an answer did, in order."""

    trained: list[tuple[str, int]]  # arm and seed of each training
    tested: list[tuple[str, int]]  # of each look at the test split
    trained_before: list[int]  # how many trainings came before each of these looks


class _Model:
    """Stands in for a trained model: writes down when its test split is opened."""

    def __init__(self, looks: _Looks, arm: str, seed: int, val: float, tested: float) -> None:
        self.val = val
        self._looks = looks
        self._key = (arm, seed)
        self._tested = tested

    def test(self) -> float:
        self._looks.tested.append(self._key)
        self._looks.trained_before.append(len(self._looks.trained))
        return self._tested


SEEDS = (3, 5, 4)
# arm to the accuracies for these seeds, on validation and on test
Table = dict[str, tuple[tuple[float, ...], tuple[float, ...]]]
# a table, and the arm to choose
STUDIES: tuple[tuple[Table, str], ...] = (
    (  # the best mean on validation is neither the best single model nor the best on test
        {
            "plain": ((0.50, 0.70, 0.60), (0.52, 0.66, 0.61)),
            "steady": ((0.58, 0.80, 0.75), (0.64, 0.75, 0.70)),
            "middling": ((0.30, 0.79, 0.77), (0.30, 0.70, 0.70)),
            "even": ((0.62, 0.62, 0.79), (0.60, 0.63, 0.66)),
            "lucky": ((0.55, 0.90, 0.58), (0.60, 0.85, 0.55)),
            "flattered": ((0.60, 0.61, 0.62), (0.90, 0.91, 0.92)),
        },
        "steady",
    ),
    (  # equal means: the first
        {
            "first": ((0.8, 0.8, 0.8), (0.7, 0.9, 0.8)),
            "same": ((0.8, 0.8, 0.8), (0.9, 0.9, 0.9)),
        },
        "first",
    ),
    ({"only": ((0.4, 0.5, 0.6), (0.3, 0.5, 0.4))}, "only"),  # the baseline itself
)


@checks_exercise()
def check_study(answer: Callable) -> None:
    """``answer(train, arms, seeds) -> (chosen arm, gains on the test split, one a seed)``."""
    for table, expected in STUDIES:
        _check_one_study(answer, table, expected)


def _check_one_study(answer: Callable, table: Table, expected: str) -> None:
    looks = _Looks([], [], [])

    def train(arm: str, seed: int) -> _Model:
        require(arm in table, f"There is no arm {arm!r} to train.")
        require(seed in SEEDS, f"{arm} was trained at the seed {seed}: use the same for each arm.")
        looks.trained.append((arm, seed))
        val, tested = table[arm]
        place = SEEDS.index(seed)
        return _Model(looks, arm, seed, val[place], tested[place])

    found = answer(train, list(table), list(SEEDS))
    require(isinstance(found, tuple) and len(found) == 2, "Return two things: the arm, its gains.")
    chosen, gains = found
    trained = Counter(looks.trained)
    for arm in table:
        counts = [trained[arm, seed] for seed in SEEDS]
        require(all(counts), f"{arm} was not trained at every seed.")
        require(max(counts) == 1, f"{arm} was trained {max(counts)} times at one seed: once each.")
    _require_choice(table, chosen, expected)
    base = next(iter(table))
    _require_looks(looks, (chosen, base))
    _, tested_chosen = table[chosen]
    _, tested_base = table[base]
    _require_gains(gains, tested_chosen, tested_base)


def _require_looks(looks: _Looks, needed: tuple[str, str]) -> None:
    """The test split is opened once for each model of the two arms, after all trainings."""
    opened = Counter(looks.tested)
    for arm, _ in opened:
        why = f"The test split was opened for {arm}: only the chosen arm and the baseline need it."
        require(arm in needed, why)
    require(max(opened.values(), default=0) <= 1, "The test split was opened twice for one model.")
    early = any(number < len(looks.trained) for number in looks.trained_before)
    require(not early, "The test split was opened before the choice: train everything first.")


def _require_choice(table: Table, chosen: str, expected: str) -> None:
    """Fail, in the words of the wrong way to choose, unless ``expected`` was chosen."""
    if chosen == expected:
        return
    require(chosen in table, f"{chosen!r} is no arm.")
    means = {arm: np.mean(val) for arm, (val, _) in table.items()}
    equal = np.isclose(means[chosen], means[expected])
    require(not equal, f"Of equal arms the first is chosen: {expected}.")
    # sentence to what is made largest
    faults: dict[str, dict[str, float]] = {
        "Its test accuracy chose it: choose on validation.": {
            arm: float(np.mean(tested)) for arm, (_, tested) in table.items()
        },
        "Its best seed chose it: the mean over the seeds should.": {
            arm: max(val) for arm, (val, _) in table.items()
        },
        "A single seed chose it: the mean over the seeds should.": {
            arm: min(val) for arm, (val, _) in table.items()
        },
    }
    for sentence, values in faults.items():
        picked = max(table, key=values.__getitem__)
        require(picked != chosen, f"{chosen} was chosen, not {expected}. {sentence}")
    fail(f"{chosen} was chosen, but {expected} has the highest mean on validation.")


def _require_gains(gains: object, chosen: Sequence[float], base: Sequence[float]) -> None:
    """``chosen`` and ``base``: test accuracies in the order of the seeds."""
    if not isinstance(gains, list):
        fail(f"The gains are a list, not {type(gains).__name__}.")
    require(len(gains) == len(SEEDS), f"{len(SEEDS)} seeds have as many gains, not {len(gains)}.")
    right = np.subtract(chosen, base)  # (seeds,)
    if np.allclose(gains, right, atol=1e-9):
        return
    require(not np.allclose(gains, -right), "The sign is turned round: chosen minus baseline.")
    require(not np.allclose(np.sort(gains), np.sort(right)), "The gains are not in seed order.")
    # One number of the baseline for all seeds.
    for number in (min(base), max(base), np.mean(base)):
        unpaired = np.allclose(gains, np.subtract(chosen, number))
        require(not unpaired, "Subtract from each model the baseline of its own seed.")
    fail(f"The gains should be {right.round(3).tolist()}, not {gains}.")
