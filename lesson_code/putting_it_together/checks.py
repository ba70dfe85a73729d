"""Checks of the exercises of lesson 12."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from statistics import fmean
from typing import Any

import numpy as np

from course_utils.checking.checking import Faults, checks_exercise, diagnose, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment

__all__ = ["check_pareto_front", "check_recipe_experiment", "check_speed_up", "check_study"]


@checks_exercise()
def check_recipe_experiment(answer: Callable) -> None:
    """``answer(config, data) -> (recipe, changed, low, high)``: a step of the student's own."""
    judge_experiment(run_experiment(answer))


# shares of the time, and how many times as fast each part has become
SPEED_UPS: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...] = (
    ((0.5, 0.25), (5.0, 2.0)),
    ((0.75,), (3.0,)),
    ((0.25, 0.75), (2.0, 4.0)),
    ((0.5, 0.5), (1.0, 0.5)),
    ((0.5, 0.2, 0.1), (2.0, 4.0, 5.0)),
    ((), ()),
)


def _speed_up(shares: Sequence[float], factors: Sequence[float]) -> float:
    """The oracle: the rest takes the time that it took."""
    return 1 / (1 - sum(shares) + sum(np.divide(shares, factors)))


# fmt: off
SPEED_UP_FAULTS: Faults = (
    ("The rest is forgotten, though it takes what it took.",
     lambda shares, factors: 1 / sum(np.divide(shares, factors)) if shares else 1.0),
    ("That is the new time: the speed-up is the old time over it.",
     lambda shares, factors: 1 / _speed_up(shares, factors)),
    ("Times add up, speeds do not: divide each share by its factor.",
     lambda shares, factors: 1 - sum(shares) + np.dot(shares, factors)),
    ("Factors multiply only where each speeds up the whole step.",
     lambda shares, factors: math.prod(factors)),
    ("One fast part does not make the whole as fast.",
     lambda shares, factors: max(factors, default=1.0)),
    ("The rest is sped up like the parts: it takes what it took.",
     lambda shares, factors: sum(shares) / sum(np.divide(shares, factors)) if shares else 1.0),
    ("For each part the others count as unchanged: add up the new times of all.",
     lambda shares, factors: math.prod(map(_speed_up, zip(shares), zip(factors)))),
    ("The rest counts as gained: it still takes its time.",
     lambda shares, factors: sum(np.divide(shares, factors))),
)
# fmt: on


@checks_exercise(faults=SPEED_UP_FAULTS)
def check_speed_up(answer: Callable) -> None:
    """``answer(shares, factors)``: the old time of a step over the new one."""
    for shares, factors in SPEED_UPS:
        case = f"shares {list(shares)}, factors {list(factors)}:"
        given = (list(shares), list(factors))
        found = answer(*given)
        unchanged = given == (list(shares), list(factors))
        require(unchanged, "The lists were changed: leave them as they are.")
        require(isinstance(found, Real), f"{case} return a number, not {found!r}.")
        right = _speed_up(shares, factors)
        diagnose(
            found,
            lambda other: other(shares, factors),  # noqa: B023
            _speed_up,
            SPEED_UP_FAULTS,
            f"the step is {right:.7g} times as fast, not {found:.7g}.",
            case=case,
            tolerance=1e-9,
        )


# recipes, their front, and what the case is about
FRONTS: tuple[tuple[dict[str, tuple[float, float]], list[str], str], ...] = (
    ({"a": (3.0, 0.7)}, ["a"], "A single recipe is not dominated by any other."),
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
        {"a": (1.0, 0.9), "b": (2.0, 0.5), "c": (3.0, 0.6)},
        ["a"],
        "A recipe must be compared with all others, not with its neighbour only.",
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


SEEDS = (3, 5, 4)
# variant to the accuracies for these seeds, on validation and on test
Table = dict[str, tuple[tuple[float, ...], tuple[float, ...]]]
STUDIES: tuple[Table, ...] = (
    {  # the best mean on validation is neither the best single model nor the best on test
        "plain": ((0.50, 0.70, 0.60), (0.52, 0.66, 0.61)),
        "steady": ((0.58, 0.80, 0.75), (0.64, 0.75, 0.70)),
        "middling": ((0.30, 0.79, 0.77), (0.30, 0.70, 0.70)),
        "even": ((0.62, 0.62, 0.79), (0.60, 0.63, 0.66)),
        "lucky": ((0.55, 0.90, 0.58), (0.60, 0.85, 0.55)),
        "optimistic": ((0.60, 0.61, 0.62), (0.90, 0.91, 0.92)),
    },
    {  # the baseline itself
        "plain": ((0.7, 0.9, 0.8), (0.7, 0.8, 0.8)),
        "worse": ((0.6, 0.8, 0.7), (0.9, 0.8, 0.9)),
    },
    {  # equal means: the first, not the first in the alphabet
        "plain": ((0.8, 0.8, 0.8), (0.7, 0.9, 0.8)),
        "equal": ((0.8, 0.8, 0.8), (0.9, 0.9, 0.9)),
    },
    {"only": ((0.4, 0.5, 0.6), (0.3, 0.5, 0.4))},
)


class _Case:
    """A table to choose from, and what an answer did with it, in order."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.trained: list[tuple[str, int]] = []  # variant and seed of each training
        self.tested: list[tuple[str, int]] = []  # of each look at the test split
        self.trained_before: list[int] = []  # how many trainings came before each of these looks
        self.rated: set[tuple[str, int]] = set()  # those whose validation accuracy was read
        self.rated_before: set[tuple[str, int]] = set()  # before the first look

    def run(self, answer: Callable) -> Any:
        """What the answer returns."""
        return answer(self.train, list(self.table), list(SEEDS))

    def train(self, arm: str, seed: int) -> "_Model":
        require(arm in self.table, f"There is no variant {arm!r} to train.")
        require(seed in SEEDS, f"{arm} was trained at the seed {seed}: use the same for each one.")
        self.trained.append((arm, seed))
        return _Model(self, arm, seed)


class _Model:
    """Stands in for a trained model: writes down when its test split is opened."""

    def __init__(self, case: _Case, arm: str, seed: int) -> None:
        val, tested = case.table[arm]
        place = SEEDS.index(seed)
        self._val = val[place]
        self._tested = tested[place]
        self._case = case
        self._key = (arm, seed)

    @property
    def val(self) -> float:
        self._case.rated.add(self._key)
        return self._val

    def test(self) -> float:
        if not self._case.tested:
            self._case.rated_before = set(self._case.rated)
        self._case.tested.append(self._key)
        self._case.trained_before.append(len(self._case.trained))
        return self._tested


def _average_val(models: list[_Model]) -> float:
    return fmean(model.val for model in models)


def _study(
    train: Callable[[str, int], _Model],
    arms: list[str],
    seeds: list[int],
    choose: Callable = max,
    rate: Callable[[list[_Model]], float] = _average_val,
    subtract: Callable = np.subtract,
    look: Callable[[_Model], float] = lambda model: model.test(),
) -> tuple[str, list[float]]:
    """The oracle; another value of an argument from ``choose`` on is a fault."""
    models = {name: [train(name, number) for number in seeds] for name in arms}
    chosen = choose(arms, key=lambda name: rate(models[name]))
    baseline = [look(model) for model in models[arms[0]]]
    if chosen == arms[0]:  # a test split is opened once
        return chosen, list(subtract(baseline, baseline))
    return chosen, list(subtract([look(model) for model in models[chosen]], baseline))


UNPAIRED = "Subtract from each model the baseline of its own seed."

# fmt: off
CHOICE_FAULTS: Faults = (
    ("Of equal variants the first is chosen.",
     partial(_study, choose=lambda arms, key: max(arms[::-1], key=key))),
    ("The baseline may be chosen too.",
     partial(_study, choose=lambda arms, key: max(arms[1:] or arms, key=key))),
    ("Its test accuracy chose it: choose on validation.",
     partial(_study, rate=lambda models: fmean(m.test() for m in models))),
    ("Its best seed chose it: the mean over the seeds should.",
     partial(_study, rate=lambda models: max(m.val for m in models))),
    ("A single seed chose it: the mean over the seeds should.",
     partial(_study, rate=lambda models: min(m.val for m in models))),
)
GAIN_FAULTS: Faults = (
    ("The sign is turned round: chosen minus baseline.",
     partial(_study, subtract=lambda chosen, base: np.subtract(base, chosen))),
    # one number of the baseline for all seeds
    (UNPAIRED, partial(_study, subtract=lambda chosen, base: np.subtract(chosen, min(base)))),
    (UNPAIRED, partial(_study, subtract=lambda chosen, base: np.subtract(chosen, max(base)))),
    (UNPAIRED, partial(_study, subtract=lambda chosen, base: np.subtract(chosen, np.mean(base)))),
    ("These are the gains on validation: report those on the test split.",
     partial(_study, look=lambda model: model.val)),
)
# fmt: on


@checks_exercise(faults=(*CHOICE_FAULTS, *GAIN_FAULTS))
def check_study(answer: Callable) -> None:
    """``answer(train, arms, seeds) -> (chosen variant, gains on the test split, one per seed)``."""
    for table in STUDIES:
        _check_one_study(answer, table)


def _check_one_study(answer: Callable, table: Table) -> None:
    case = _Case(table)
    found = case.run(answer)
    require(
        isinstance(found, tuple) and len(found) == 2, "Return two things: the variant, its gains."
    )
    chosen, gains = found
    trained = Counter(case.trained)
    for arm in table:
        counts = [trained[arm, seed] for seed in SEEDS]
        require(all(counts), f"{arm} was not trained at every seed.")
        require(max(counts) == 1, f"{arm} was trained {max(counts)} times at one seed: once each.")
    require(chosen in table, f"{chosen!r} is no variant.")
    expected, right_gains = _Case(table).run(_study)
    arms = list(table)
    diagnose(
        arms.index(chosen),
        lambda other: arms.index(_Case(table).run(other)[0]),
        _study,
        CHOICE_FAULTS,
        f"The highest mean on validation is that of {expected}.",
        case=f"{chosen} was chosen, not {expected}.",
    )
    _require_looks(case, (chosen, arms[0]))
    _require_gains(table, gains, right_gains)


def _require_looks(case: _Case, needed: tuple[str, str]) -> None:
    """The test split is opened once for each model of the two variants, after all trainings."""
    opened = Counter(case.tested)
    for arm, _ in opened:
        why = f"The test split was opened for {arm}: only the chosen one and the baseline need it."
        require(arm in needed, why)
    require(max(opened.values(), default=0) <= 1, "The test split was opened twice for one model.")
    early = any(number < len(case.trained) for number in case.trained_before)
    require(not early, "The test split was opened before the choice: train everything first.")
    # What is read first after a look cannot have been part of the choice.
    chosen_first = not case.tested or case.rated == case.rated_before
    require(chosen_first, "The test split was opened before the choice: choose first.")


def _require_gains(table: Table, gains: object, right: list[float]) -> None:
    """``right``: those of the oracle, one per seed."""
    if not isinstance(gains, list):
        fail(f"The gains are a list, not {type(gains).__name__}.")
    require(len(gains) == len(SEEDS), f"{len(SEEDS)} seeds have as many gains, not {len(gains)}.")
    ordered = np.allclose(gains, right) or not np.allclose(np.sort(gains), np.sort(right))
    require(ordered, "The gains are not in seed order.")
    diagnose(
        gains,
        lambda other: _Case(table).run(other)[1],
        _study,
        GAIN_FAULTS,
        f"The gains should be {np.round(right, 3).tolist()}, not {np.round(gains, 3).tolist()}.",
    )
