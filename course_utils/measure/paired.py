"""Two variants over the same seeds: their paired difference, its interval, and the verdict."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
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

MAX_SEEDS = 10_000  # `seeds_needed` does not look further


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

    def seeds_needed(self, margin: float = 0.01) -> int | None:
        """How many paired seeds would decide, if mean and spread stayed as they are.

        The smallest number at which the interval would exclude zero or lie within ±``margin``.
        Two or three pairs give a rough spread, so this is an order of magnitude. None: one pair
        has no spread.
        """
        if self.n < 2 or not np.isfinite(self.high):
            return None
        half_width = (self.high - self.low) / 2
        std = half_width * np.sqrt(self.n) / stats.t.ppf(0.975, self.n - 1)
        # the interval excludes zero if it is narrower than the mean's distance to zero, and lies
        # within the margin if it is narrower than the mean's distance to the margin
        widest = max(abs(self.mean), margin - abs(self.mean))
        counts = np.arange(2, MAX_SEEDS + 1)
        decided = stats.t.ppf(0.975, counts - 1) * std / np.sqrt(counts) < widest
        return int(counts[decided.argmax()]) if decided.any() else MAX_SEEDS


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
