"""Checks of the exercise of lesson 00."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import stats

from course_utils.checking.checking import Faults, checks_exercise, diagnose, require

__all__ = ["VERDICTS", "check_judge"]

VERDICTS = ("helps", "hurts", "equivalent", "inconclusive")
Edges = tuple[float, float]
Judge = Callable[[np.ndarray, np.ndarray, float], str]


class _Case(NamedTuple):
    """Differences with this mean and standard deviation, in points, and the margin."""

    mean: float
    std: float
    num_seeds: int
    margin: float


# Each fault below gets another row of verdicts over these cases; a test shows it.
CASES = (
    _Case(2.0, 0.1, 3, 1.0),  # helps
    _Case(-2.0, 0.5, 5, 1.0),  # hurts
    _Case(0.5, 0.1, 3, 1.0),  # equivalent, although the interval excludes zero
    _Case(0.1, 2.0, 5, 1.0),  # inconclusive, although the mean lies within the margin
    _Case(2.0, 0.95, 3, 1.0),  # inconclusive, but not for a standard deviation with ddof=0,
    _Case(2.0, 1.1, 3, 1.0),  # this one not for the quantile 0.95,
    _Case(2.0, 1.5, 3, 1.0),  # and this one not for the normal quantile
    _Case(2.0, 1.0, 4, 1.0),  # helps, but not for two unpaired samples
    _Case(1.2, 0.4, 5, 2.0),  # equivalent with this margin, not with 1
    _Case(-0.8, 0.3, 4, 0.5),  # hurts
    _Case(0.0, 0.6, 4, 1.0),  # equivalent
)


def _make_columns(case: _Case) -> tuple[np.ndarray, np.ndarray]:
    """Accuracies in percent of the baseline and of the technique: seeds share most of the luck."""
    n = case.num_seeds
    luck = np.linspace(-3, 3, n)
    own = np.where(np.arange(n) % 2, 1.0, -1.0)
    own = own - own.mean()
    differences = case.mean + case.std * own / own.std(ddof=1)
    baseline = np.round(60 + luck, 2)
    return baseline, baseline + differences


def _find_edges(
    baseline: np.ndarray,
    treated: np.ndarray,
    probability: float = 0.975,
    divisor: Callable[[int], float] = math.sqrt,
    ddof: int = 1,
) -> Edges:
    """The 95 % t-interval of the paired differences, unless a part of it is another one."""
    differences = treated - baseline
    n = len(differences)
    half_width = stats.t.ppf(probability, n - 1) * differences.std(ddof=ddof) / divisor(n)
    return differences.mean() - half_width, differences.mean() + half_width


def _find_unpaired_edges(baseline: np.ndarray, treated: np.ndarray) -> Edges:
    low, high = stats.ttest_ind(treated, baseline).confidence_interval(0.95)
    return low, high


def _find_normal_edges(baseline: np.ndarray, treated: np.ndarray) -> Edges:
    differences = treated - baseline
    half_width = 1.96 * differences.std(ddof=1) / math.sqrt(len(differences))
    return differences.mean() - half_width, differences.mean() + half_width


def _find_mean(baseline: np.ndarray, treated: np.ndarray) -> Edges:
    mean = (treated - baseline).mean()
    return mean, mean


def _choose(low: float, high: float, margin: float) -> str:
    """The verdict of an interval."""
    if -margin <= low and high <= margin:
        return "equivalent"
    if low > 0 or high < 0:
        return "helps" if low > 0 else "hurts"
    return "inconclusive"


def _judge(
    baseline: np.ndarray,
    treated: np.ndarray,
    margin: float,
    find_edges: Callable[[np.ndarray, np.ndarray], Edges] = _find_edges,
    choose: Callable[[float, float, float], str] = _choose,
) -> str:
    """The oracle, unless it finds the interval or chooses the word in another way."""
    return choose(*find_edges(baseline, treated), margin)


def _choose_zero_first(low: float, high: float, margin: float) -> str:
    return _choose(low, high, margin if low <= 0 <= high else -math.inf)


def _choose_by_the_mean(low: float, high: float, margin: float) -> str:
    return "equivalent" if abs(low + high) / 2 <= margin else _choose(low, high, margin)


def _never_inconclusive(low: float, high: float, margin: float) -> str:
    return _choose(low, high, math.inf if low <= 0 <= high else margin)


def _never_equivalent(low: float, high: float, margin: float) -> str:
    return _choose(low, high, -math.inf)


# fmt: off
JUDGE_FAULTS: Faults = (
    ("The sign is turned round: a difference is treated minus baseline.",
     lambda baseline, treated, margin: _judge(treated, baseline, margin)),
    ("That judges the mean alone: the verdict follows from the interval.",
     partial(_judge, find_edges=_find_mean)),
    ("That is the interval of two unpaired samples: take the differences, seed by seed.",
     partial(_judge, find_edges=_find_unpaired_edges)),
    ("The width is wrong. 1.96 is the normal quantile: with n − 1 degrees of freedom t is larger.",
     partial(_judge, find_edges=_find_normal_edges)),
    ("The width is wrong. 95 % inside leaves 2.5 % on each side, so 0.975.",
     partial(_judge, find_edges=partial(_find_edges, probability=0.95))),
    ("The width is wrong. The standard deviation divides by n: use ddof=1.",
     partial(_judge, find_edges=partial(_find_edges, ddof=0))),
    ("The width is wrong. That of one difference: the mean of n scatters less, divide by √n.",
     partial(_judge, find_edges=partial(_find_edges, divisor=lambda n: 1))),
    ("Zero comes before the margin: an interval within ±margin is equivalent even where it "
     "excludes zero, because such a difference does not matter.",
     partial(_judge, choose=_choose_zero_first)),
    ("The mean lies within the margin, the interval does not: only the whole interval shows that "
     "two variants are equivalent.",
     partial(_judge, choose=_choose_by_the_mean)),
    ("An interval that contains zero is not yet equivalent: if it is wider than the margin, it is "
     "inconclusive.",
     partial(_judge, choose=_never_inconclusive)),
    ("An interval within ±margin is equivalent: ask that first.",
     partial(_judge, choose=_never_equivalent)),
    ("The margin is an argument: you compare with ±1 point.",
     lambda baseline, treated, margin: _judge(baseline, treated, 1.0)),
)
# fmt: on


@checks_exercise(faults=JUDGE_FAULTS)
def check_judge(answer: Judge) -> None:
    """``answer(baseline, treated, margin)``: one of four words, from the paired interval."""
    columns = [_make_columns(case) for case in CASES]

    def run(judge: Judge) -> list[int]:
        pairs = zip(columns, CASES, strict=True)
        return [VERDICTS.index(judge(*pair, case.margin)) for pair, case in pairs]

    found = []
    for (baseline, treated), case in zip(columns, CASES, strict=True):
        given = baseline.copy(), treated.copy()
        word = answer(*given, case.margin)
        require(word is not None, "Nothing came back: is there a return for every case?")
        known = isinstance(word, str) and word in VERDICTS
        require(known, f"Return one of the words {', '.join(VERDICTS)}, not {word!r}.")
        untouched = np.array_equal(given, (baseline, treated))
        require(untouched, "It changes the columns that it is given: compute new ones.")
        found.append(VERDICTS.index(word))
    diagnose(found, run, _judge, JUDGE_FAULTS, _describe_first_mistake(found, run(_judge), columns))


def _describe_first_mistake(
    found: list[int], right: list[int], columns: list[tuple[np.ndarray, np.ndarray]]
) -> str:
    """One sentence on the first case that got another word; empty if there is none."""
    for word, expected, (baseline, treated), case in zip(found, right, columns, CASES, strict=True):
        if word != expected:
            low, high = _find_edges(baseline, treated)
            return (
                f"For the differences {np.round(treated - baseline, 2).tolist()} and a margin of "
                f"{case.margin:g} the interval is {low:+.2f} to {high:+.2f}: "
                f"{VERDICTS[expected]}, not {VERDICTS[word]}."
            )
    return ""
