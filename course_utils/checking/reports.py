"""What checks of ☆ exercises share that ask for two variants, their interval and a verdict."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from course_utils.checking.checking import require
from course_utils.checking.experiment import MIN_SEEDS, read_accuracies
from course_utils.checking.outputs import Output, is_near
from course_utils.measure.paired import PairedDifference, paired_difference

__all__ = ["compare_planted", "describe_place", "judge_report"]

# mean difference and spread of changed minus baseline, in points, for each verdict
PLANTED = ((6.0, 1.0), (-6.0, 1.0), (0.0, 0.1), (1.0, 4.0))
REASONS = {  # why an interval has this verdict
    "helps": "helps needs the whole interval above 0",
    "hurts": "hurts needs the whole interval below 0",
    "equivalent": "an interval within ±1 point is equivalent",
    "inconclusive": "equivalent needs the whole interval within ±1 point, and this one contains 0",
}
Description = tuple[str, Mapping[str, Any]]  # of a training: its kind, and its other options


def _require_verdict(told: Any, found: PairedDifference) -> None:
    require(told in REASONS, f"The verdict is one of {', '.join(REASONS)}.")
    verdict, interval = found.verdict(), f"{found.format_interval(100)} points"
    why = f"The interval {interval} is {verdict}, not {told}: {REASONS[verdict]}."
    require(told == verdict, why)


def judge_report(found: Any, baseline: str, changed: str) -> PairedDifference:
    """Check what a student measured, and print it.

    Args:
        found: ``(accuracies, accuracies, verdict)`` of ``baseline`` and ``changed``, one accuracy
            in [0, 1] per seed.
        baseline, changed: what they are, in words.

    Returns:
        The difference, changed minus baseline.

    Raises:
        CheckFailed: it is not that, or the verdict is not that of the accuracies.
    """
    require(
        isinstance(found, tuple | list) and len(found) == 3,
        f"Return three things: the accuracies of {baseline}, those of {changed}, and the verdict.",
    )
    first, second = (read_accuracies(values) for values in found[:2])
    require(
        len(first) == len(second),
        f"There are {len(first)} and {len(second)} accuracies: train both at the same seeds.",
    )
    why = f"With {len(first)} paired seeds the interval says little: take {MIN_SEEDS} or more."
    require(len(first) >= MIN_SEEDS, why)
    same = np.array_equal(first, second)
    require(not same, "Both variants have the same accuracies, seed by seed.")
    gap = paired_difference(first, second)
    _require_verdict(found[2], gap)
    interval = f"{100 * gap.mean:+.1f}, {gap.format_interval(100)} points"
    print(f"{changed} minus {baseline}, {gap.n} seeds: {interval}")
    return gap


def describe_place(mean: float, interval: PairedDifference) -> str:
    """Whether a study's mean lies in the student's interval."""
    return f"{'inside' if interval.low <= mean <= interval.high else 'outside'} your interval"


class _Trained(NamedTuple):
    kind: str
    others: Mapping[str, Any]  # options that are no part of its kind
    seeds: tuple[int, ...]
    accuracies: np.ndarray


class _PlantedTrainings:
    """In place of trainings, ``train(options, seeds)``: accuracies that are known."""

    def __init__(
        self, describe: Callable[[Mapping], Description], baseline: str, mean: float, spread: float
    ) -> None:
        self.describe, self.baseline = describe, baseline
        self.mean, self.spread = mean, spread
        self.calls: list[_Trained] = []

    def __call__(self, options: Mapping, seeds: Sequence[int]) -> np.ndarray:
        kind, others = self.describe(options)
        points = np.random.default_rng(17).normal(60, 5, len(seeds))
        if kind != self.baseline:
            points += self.mean + self.spread * (-1.0) ** np.arange(len(seeds))
        self.calls.append(_Trained(kind, others, tuple(seeds), points / 100))
        return points / 100

    def find(self, kind: str, values: object) -> list[_Trained]:
        """The trainings of this kind that gave these accuracies."""
        own = [x for x in self.calls if x.kind == kind]
        same = [x for x in own if is_near(values, x.accuracies, 1e-9)]
        why = f"{kind} does not hold the accuracies of its training, one per seed in [0, 1]."
        require(same, why)
        return same


def compare_planted(
    run: Callable[[Callable], Any],
    describe: Callable[[Mapping], Description],
    names: tuple[str, str],
    require_kinds: Callable[[set[str]], None],
) -> Iterator[Output]:
    """Check an answer that trains two variants, over planted trainings of each verdict.

    Args:
        run: calls the answer with ``train(options, seeds) -> accuracies``; it returns a dictionary
            with the accuracies of both, ``low``, ``high`` in points, and ``verdict``.
        describe: the kind of training that options of `fit` make, and their other options.
        names: of the kinds baseline and changed, which are keys of the dictionary, too.
        require_kinds: fails unless these kinds of trainings are the right ones.

    Raises:
        CheckFailed: in the first case that is not as it should be.
    """
    baseline, changed = names
    for mean, spread in PLANTED:
        train = _PlantedTrainings(describe, baseline, mean, spread)
        found = run(train)
        require(isinstance(found, dict), "Return a dictionary: is there a return?")
        missing = sorted({*names, "low", "high", "verdict"} - found.keys())
        require(not missing, f"The dictionary lacks {', '.join(missing)}.")
        kinds = {trained.kind for trained in train.calls}
        require(kinds, "Nothing was trained: call train(options, seeds) for both variants.")
        require_kinds(kinds)
        _require_pairs(*(train.find(name, found[name]) for name in names))
        right = paired_difference(found[baseline], found[changed])
        half = 50 * (right.high - right.low)
        yield Output(
            # from -1 to 1, whatever the accuracies are
            [(found[edge] - 100 * right.mean) / half for edge in ("low", "high")],
            "low and high are not the 95 % interval of the accuracies that you return: that is "
            f"{right.format_interval(100)} points.",
            fault_tolerance=1e-4,
        )
        _require_verdict(found["verdict"], right)


def _require_pairs(baseline: list[_Trained], changed: list[_Trained]) -> None:
    """A training of each kind have the same seeds, three or more, and the same other options."""
    both = [(x, y) for x in baseline for y in changed if x.seeds == y.seeds]
    one, other = baseline[0], changed[0]
    why = f"{one.kind} has the seeds {one.seeds}, {other.kind} {other.seeds}: pair them."
    require(both, why)
    one, other = both[0]
    options = one.others | other.others  # type: ignore[operator]
    differing = [x for x in options if one.others.get(x) != other.others.get(x)]
    require(
        not differing,
        f"The two variants differ in {', '.join(differing)}, too: the interval is about both "
        "changes.",
    )
    once = len(set(one.seeds)) == len(one.seeds)
    require(once, "A seed is there twice: its accuracy counts twice.")
    require(len(one.seeds) >= MIN_SEEDS, "An interval needs three seeds or more.")
