"""Two variants over the same seeds: their paired difference, its interval, and the verdict."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import stats

__all__ = ["METRICS", "Metric", "PairedDifference", "paired_difference"]


class Metric(NamedTuple):
    """How a value of `Run.metrics` is shown and judged."""

    name: str  # in words
    factor: float  # shown value = factor × value
    unit: str
    more_is_better: bool
    margin: float  # differences up to this size count as equivalent; unit of the value itself


METRICS = {
    "val_accuracy": Metric("accuracy", 100, "points", True, 0.01),
    "val_loss": Metric("validation loss", 1, "nats", False, 0.02),
    "val_calibration_error": Metric("calibration error", 100, "points", False, 0.01),
}

MAX_SEEDS = 10_000  # `seeds_needed` and `seeds_range` do not look further


@dataclass(frozen=True)
class PairedDifference:
    """Mean of the differences of n pairs, and its 95 % confidence interval ``[low, high]``."""

    mean: float
    low: float
    high: float
    n: int

    def format_interval(self, factor: float = 1) -> str:
        """The interval in words, in units of 1 / ``factor``; one pair has none."""
        if self.n == 1:
            return "one seed: no interval"
        digits = 2 if factor == 100 else 3
        return f"{factor * self.low:+.{digits}f} to {factor * self.high:+.{digits}f}"

    def verdict(self, more_is_better: bool = True, margin: float = 0.01) -> str:
        """One of four words, decided by the interval alone.

        ``"equivalent"``: the interval lies within ±``margin``. Else ``"helps"`` or ``"hurts"``:
        it excludes zero. Else ``"inconclusive"``: it contains zero and differences that matter;
        see `seeds_needed`. An effect inside the margin is called equivalent even where it is
        statistically different from zero: it is too small to matter.

        Args:
            margin: the largest difference that does not matter, ≥ 0; 0: nothing is equivalent,
                unless the interval is exactly zero.
        """
        if -margin <= self.low and self.high <= margin:
            return "equivalent"
        if self.low > 0:
            return "helps" if more_is_better else "hurts"
        if self.high < 0:
            return "hurts" if more_is_better else "helps"
        return "inconclusive"

    def describe_verdict(
        self,
        more_is_better: bool = True,
        margin: float = 0.01,
        factor: float = 100,
        unit: str = "points",
    ) -> str:
        """`verdict` for a reader: *equivalent* says within which margin, in the shown unit."""
        word = self.verdict(more_is_better, margin)
        if word != "equivalent":
            return word
        shown = round(factor * margin, 6)
        return f"{word} (±{shown:g} {unit.removesuffix('s') if shown == 1 else unit})"

    def p_value(self) -> float:
        """Of the two-sided paired t-test that the mean is zero, as `scipy.stats.ttest_rel` has it.

        It is below 0.05 where the interval excludes zero. For a family of comparisons give all of
        their p-values to `course_utils.measure.statistics.adjust_holm`. One pair: 1.
        """
        if self.n < 2 or not np.isfinite(self.high) or self.mean == 0:
            return 1.0
        if self.low == self.high:  # no spread
            return 0.0
        t = self.mean * np.sqrt(self.n) / self._std()
        return float(2 * stats.t.sf(abs(t), self.n - 1))

    def seeds_needed(self, margin: float = 0.01) -> int | None:
        """How many paired seeds would decide, if mean and spread stayed as they are.

        The smallest number at which the interval would exclude zero or lie within ±``margin``.
        Two or three pairs give a rough spread, so `seeds_range` belongs to this number. None: one
        pair has no spread.
        """
        if self.n < 2 or not np.isfinite(self.high):
            return None
        return self._count_seeds(self._std(), margin)

    def seeds_range(self, margin: float = 0.01) -> tuple[int, int] | None:
        """`seeds_needed` at both ends of the 95 % interval of the spread, ``(low, high)``.

        n normal differences with the standard deviation s have a true one between
        s √((n - 1) / χ²(0.975)) and s √((n - 1) / χ²(0.025)), with n - 1 degrees of freedom. For
        three seeds that is 0.52 s to 6.3 s. The mean is taken as it is, so the range is too
        narrow where the mean is uncertain, too. The low end may be below n: with a spread that
        small, so few seeds would usually have decided. None: one pair has no spread.
        """
        if self.n < 2 or not np.isfinite(self.high):
            return None
        df = self.n - 1
        low, high = self._std() * np.sqrt(df / stats.chi2.ppf([0.975, 0.025], df))
        return self._count_seeds(low, margin), self._count_seeds(high, margin)

    def _std(self) -> float:
        """Standard deviation of the differences, from the width of their interval; n ≥ 2."""
        half_width = (self.high - self.low) / 2
        return half_width * np.sqrt(self.n) / stats.t.ppf(0.975, self.n - 1)

    def _count_seeds(self, std: float, margin: float) -> int:
        """The smallest number of seeds that decides with this spread, at most `MAX_SEEDS`."""
        # the interval excludes zero if it is narrower than the mean's distance to zero, and lies
        # within the margin if it is narrower than the mean's distance to the margin
        widest = max(abs(self.mean), margin - abs(self.mean))
        decided = _half_widths() * std < widest
        return 2 + int(decided.argmax()) if decided.any() else MAX_SEEDS


@cache
def _half_widths() -> np.ndarray:
    """Half the width of the interval of 2, 3, … `MAX_SEEDS` pairs, in standard deviations."""
    counts = np.arange(2, MAX_SEEDS + 1)
    return stats.t.ppf(0.975, counts - 1) / np.sqrt(counts)


def paired_difference(
    baseline: Sequence[float] | np.ndarray, treated: Sequence[float] | np.ndarray
) -> PairedDifference:
    """Treated minus baseline, pair by pair, with a 95 % t-interval over the n differences.

    What both members of a pair share (initial weights, order of the images) cancels in their
    difference. The interval is that of `scipy.stats.ttest_rel`. One pair has no spread, so its
    interval is infinite.

    Raises:
        ValueError: when the two do not have the same length ≥ 1.
    """
    if len(baseline) != len(treated) or not len(baseline):
        raise ValueError(
            f"{len(baseline)} baseline and {len(treated)} treated values: give one of each per seed"
        )
    baseline, treated = np.asarray(baseline, dtype=float), np.asarray(treated, dtype=float)
    mean, n = float((treated - baseline).mean()), len(baseline)
    if n == 1:
        return PairedDifference(mean, -np.inf, np.inf, n)
    with warnings.catch_warnings():  # equal differences have no spread: the interval is a point
        warnings.simplefilter("ignore", RuntimeWarning)
        low, high = stats.ttest_rel(treated, baseline).confidence_interval(0.95)
    return PairedDifference(mean, float(low), float(high), n)
