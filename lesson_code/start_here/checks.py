"""Checks of the exercise of lesson 00."""

from collections.abc import Callable, Iterator

import numpy as np

from course_utils.checking.checking import checks_exercise, require
from course_utils.checking.outputs import Output
from course_utils.measure.paired import paired_difference

__all__ = ["check_judge"]

VERDICTS = ("helps", "hurts", "equivalent", "inconclusive")

# Mean and standard deviation of the differences in points, number of seeds, margin, and verdict.
# Each planted fault gets another row of verdicts.
CASES = (
    (2.0, 0.1, 3, 1.0, "helps"),
    (-2.0, 0.5, 5, 1.0, "hurts"),
    (0.5, 0.1, 3, 1.0, "equivalent"),  # although the interval excludes zero
    (0.1, 2.0, 5, 1.0, "inconclusive"),  # although the mean lies within the margin
    (2.0, 0.95, 3, 1.0, "inconclusive"),  # but not for a standard deviation with ddof=0,
    (2.0, 1.1, 3, 1.0, "inconclusive"),  # this one not for the quantile 0.95,
    (2.0, 1.5, 3, 1.0, "inconclusive"),  # and this one not for the normal quantile
    (2.0, 1.0, 4, 1.0, "helps"),  # but not for two unpaired samples
    (1.2, 0.4, 5, 2.0, "equivalent"),  # with this margin, not with 1
    (-0.8, 0.3, 4, 0.5, "hurts"),
    (0.0, 0.6, 4, 1.0, "equivalent"),
)


def _make_columns(mean: float, std: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Accuracies in percent of the baseline and of the technique: seeds share most of the luck."""
    luck = np.linspace(-3, 3, n)
    own = np.where(np.arange(n) % 2, 1.0, -1.0)
    own = own - own.mean()
    baseline = np.round(60 + luck, 2)
    return baseline, baseline + mean + std * own / own.std(ddof=1)


@checks_exercise()
def check_judge(answer: Callable[[np.ndarray, np.ndarray, float], str]) -> Iterator[Output]:
    """``answer(baseline, treated, margin)``: one of four words, from the paired interval."""
    found, mistakes = [], []
    for mean, std, num_seeds, margin, verdict in CASES:
        baseline, treated = _make_columns(mean, std, num_seeds)
        given = baseline.copy(), treated.copy()
        word = answer(*given, margin)
        require(word is not None, "Nothing came back: is there a return for every case?")
        known = isinstance(word, str) and word in VERDICTS
        require(known, f"Return one of the words {', '.join(VERDICTS)}, not {word!r}.")
        untouched = np.array_equal(given, (baseline, treated))
        require(untouched, "It changes the columns that it is given: compute new ones.")
        found.append(VERDICTS.index(word))
        if word != verdict:
            edges = paired_difference(baseline, treated)
            mistakes.append(
                f"For the differences {np.round(treated - baseline, 2).tolist()} and a margin of "
                f"{margin:g} the interval is {edges.low:+.2f} to {edges.high:+.2f}: "
                f"{verdict}, not {word}."
            )
    yield Output(found, mistakes[0] if mistakes else "")
