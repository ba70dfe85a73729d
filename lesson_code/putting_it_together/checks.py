"""Checks of the exercises of lesson 12."""

from collections.abc import Callable, Iterator
from numbers import Real

import numpy as np

from course_utils.checking.checking import checks_exercise, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.outputs import Output

__all__ = ["check_pareto_front", "check_recipe_experiment", "check_speed_up", "check_study"]


SEEDS = (3, 5, 4)
# variant to the accuracies for these seeds, on validation and on test
Table = dict[str, tuple[tuple[float, ...], tuple[float, ...]]]

# fmt: off
# shares of the time, and how many times as fast each part has become
SPEED_UPS: tuple[tuple[list[float], list[float]], ...] = (
    ([0.5, 0.25], [5.0, 2.0]), ([0.75], [3.0]), ([0.25, 0.75], [2.0, 4.0]),
    ([0.5, 0.5], [1.0, 0.5]), ([0.5, 0.2, 0.1], [2.0, 4.0, 5.0]), ([], []),
)
# recipes, their front, and what the case is about
FRONTS: tuple[tuple[dict[str, tuple[float, float]], list[str], str], ...] = (
    ({"a": (3.0, 0.7)}, ["a"], "A single recipe is not dominated by any other."),
    ({"slow": (9.0, 0.9), "fast": (1.0, 0.5), "middle": (4.0, 0.8)}, ["fast", "middle", "slow"],
     "Where more seconds always give more accuracy all stay, the fastest first."),
    ({"slow": (9.0, 0.6), "fast": (1.0, 0.5), "middle": (4.0, 0.8)}, ["fast", "middle"],
     "A recipe that is slower and less accurate than another one is dominated."),
    ({"a": (1.0, 0.9), "b": (2.0, 0.5), "c": (3.0, 0.6)}, ["a"],
     "A recipe must be compared with all others, not with its neighbour only."),
    ({"a": (2.0, 0.6), "b": (2.0, 0.7), "c": (5.0, 0.7)}, ["b"],
     "No worse in one and better in the other is enough to dominate."),
    ({"z": (2.0, 0.7), "b": (1.0, 0.4), "a": (2.0, 0.7)}, ["b", "z", "a"],
     "Recipes that are equal in both do not dominate each other, and keep their order."),
    ({}, [], "No recipes have an empty front."),
)
# the best variant on validation, and all of them, the baseline first
STUDIES: tuple[tuple[str, Table], ...] = (
    ("steady", {  # neither the best single model nor the best on test
        "plain": ((0.50, 0.70, 0.60), (0.52, 0.66, 0.61)),
        "steady": ((0.58, 0.80, 0.75), (0.64, 0.75, 0.70)),
        "middling": ((0.30, 0.79, 0.77), (0.30, 0.70, 0.70)),
        "even": ((0.62, 0.62, 0.79), (0.60, 0.63, 0.66)),
        "lucky": ((0.55, 0.90, 0.58), (0.60, 0.85, 0.55)),
        "optimistic": ((0.60, 0.61, 0.62), (0.90, 0.91, 0.92)),
    }),
    ("plain", {"plain": ((0.7, 0.9, 0.8), (0.7, 0.8, 0.8)),
               "worse": ((0.6, 0.8, 0.7), (0.9, 0.8, 0.9))}),
    ("plain", {"plain": ((0.8, 0.8, 0.8), (0.7, 0.9, 0.8)),  # equal means: the first
               "equal": ((0.8, 0.8, 0.8), (0.9, 0.9, 0.9))}),
    ("only", {"only": ((0.4, 0.5, 0.6), (0.3, 0.5, 0.4))}),
)
# fmt: on


@checks_exercise()
def check_recipe_experiment(answer: Callable) -> None:
    """``answer(config, data) -> (recipe, changed, low, high)``: a step of the student's own."""
    judge_experiment(run_experiment(answer))


@checks_exercise()
def check_speed_up(answer: Callable) -> Iterator[Output]:
    """``answer(shares, factors)``: the old time of a step over the new one."""
    for shares, factors in SPEED_UPS:
        case = f"shares {shares}, factors {factors}:"
        given = (shares.copy(), factors.copy())
        found = answer(*given)
        require(given == (shares, factors), "The lists were changed: leave them as they are.")
        require(isinstance(found, Real), f"{case} return a number, not {found!r}.")
        otherwise = f"the step is {{right}} times as fast, not {found:.7g}."
        yield Output(found, otherwise, case, tolerance=1e-6)


@checks_exercise()
def check_pareto_front(answer: Callable) -> None:
    """``answer({name: (seconds, accuracy)})``: the names not dominated, the fastest first."""
    for recipes, front, about in FRONTS:
        given = dict(recipes)
        found = answer(given)
        require(given == recipes, "The dictionary was changed: leave it as it is.")
        require(isinstance(found, list), f"Return a list of names, not {type(found).__name__}.")
        case = f"{recipes}: {found} should be {front}."
        # Whatever a list may hold is compared as text.
        require(sorted(found, key=str) == sorted(front), f"{about} {case}")
        require(found == front, f"The order is wrong: fastest first, equal ones as given. {case}")


class _Model:
    """Stands in for a trained model of `STUDIES`: writes down in ``events`` what is read of it."""

    def __init__(self, events: list[tuple], table: Table, arm: str, seed: int) -> None:
        self._events, self._key = events, (arm, seed)
        self._val, self._tested = (values[SEEDS.index(seed)] for values in table[arm])

    @property
    def val(self) -> float:
        self._events.append(("val", *self._key))
        return self._val

    def test(self) -> float:
        self._events.append(("test", *self._key))
        return self._tested


@checks_exercise()
def check_study(answer: Callable) -> Iterator[Output]:
    """``answer(train, arms, seeds) -> (chosen variant, gains on the test split, one per seed)``."""
    for best, table in STUDIES:
        events: list[tuple] = []  # what was done, of which variant, at which seed

        def train(arm: str, seed: int) -> _Model:
            require(arm in table, f"There is no variant {arm!r} to train.")  # noqa: B023
            require(seed in SEEDS, f"{arm} was trained at seed {seed}: use the same for each one.")
            events.append(("train", arm, seed))  # noqa: B023
            return _Model(events, table, arm, seed)  # noqa: B023

        arms = list(table)
        found = answer(train, arms.copy(), list(SEEDS))
        require(isinstance(found, tuple) and len(found) == 2, "Return two things: variant, gains.")
        chosen, gains = found
        for arm in arms:
            trained = [events.count(("train", arm, seed)) for seed in SEEDS]
            require(all(trained), f"{arm} was not trained at every seed.")
            require(max(trained) == 1, f"{arm} was trained again at the same seed: once each.")
        require(chosen in table, f"{chosen!r} is no variant.")
        otherwise = f"The highest mean on validation is that of {best}."
        yield Output(arms.index(chosen), otherwise, case=f"{chosen} was chosen, not {best}.")
        looks = [event for event in events if event[0] == "test"]
        for _, arm, _ in looks:
            why = "only the chosen one and the baseline need it."
            require(arm in (chosen, arms[0]), f"The test split was opened for {arm}: {why}")
        require(len(set(looks)) == len(looks), "The test split was opened twice for one model.")
        first = events.index(looks[0]) if looks else len(events)
        # What is done first after a look cannot have been part of the choice.
        late = {event[0] for event in events[first:] if event not in events[:first]}
        before = "The test split was opened before the choice:"
        require("train" not in late, f"{before} train everything first.")
        require("val" not in late, f"{before} choose first.")
        require(isinstance(gains, list), f"The gains are a list, not {type(gains).__name__}.")
        require(len(gains) == 3, f"3 seeds have as many gains, not {len(gains)}.")
        rule = f"The gains should be test accuracies, those of {chosen} minus those of {arms[0]}"
        yield Output(sorted(gains), f"{rule}, not {np.round(gains, 3).tolist()}.")
        yield Output(gains, "The gains are not in seed order.")
