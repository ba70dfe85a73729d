"""`compare` trains arms over the same seeds and says what the paired differences allow to say."""

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import stats
from tqdm import tqdm

from course_utils.config import Config
from course_utils.data.image_data import ImageData
from course_utils.errors import CourseError
from course_utils.training.fit import fit
from course_utils.training.run import Run

__all__ = ["Comparison", "PairedDifference", "compare", "paired_difference"]

# metric: (name in words, factor, unit, is more better)
METRICS = {
    "val_accuracy": ("accuracy", 100, "points", True),
    "val_loss": ("validation loss", 1, "nats", False),
    "val_calibration_error": ("calibration error", 100, "points", False),
}


@dataclass(frozen=True)
class PairedDifference:
    """Mean of the differences of pairs, and its 95 % confidence interval ``[low, high]``."""

    mean: float
    low: float
    high: float
    n: int

    def span(self, factor: float = 1) -> str:
        """The interval in words, in units of 1 / ``factor``."""
        digits = 2 if factor == 100 else 3
        return f"{factor * self.low:+.{digits}f} to {factor * self.high:+.{digits}f}"

    def verdict(self, more_is_better: bool = True) -> str:
        """``"helps"``, ``"hurts"``, or ``"no evidence"`` where the interval contains zero."""
        if self.low > 0:
            return "helps" if more_is_better else "hurts"
        if self.high < 0:
            return "hurts" if more_is_better else "helps"
        return "no evidence"


def paired_difference(baseline: Sequence[float], treated: Sequence[float]) -> PairedDifference:
    """Treated minus baseline, pair by pair, with a 95 % t-interval over the n differences.

    What both members of a pair share (weights at the start, order of the images) cancels in
    their difference; the interval is of what is left. One pair has no interval: it is infinite.

    Raises:
        ValueError: when the two are not of one length ≥ 1.
    """
    if len(baseline) != len(treated) or not len(baseline):
        raise ValueError(
            f"{len(baseline)} baseline and {len(treated)} treated values: give one of each a seed"
        )
    difference = np.asarray(treated, dtype=float) - np.asarray(baseline, dtype=float)
    n, mean = len(difference), float(difference.mean())
    if n == 1:
        return PairedDifference(mean, -np.inf, np.inf, n)
    half = float(stats.t.ppf(0.975, n - 1) * stats.sem(difference))
    return PairedDifference(mean, mean - half, mean + half, n)


@dataclass(frozen=True)
class Comparison:
    """Runs of several arms over the same seeds; the first arm is the baseline."""

    name: str
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    runs: tuple[Run, ...]

    def values(self, arm: str, metric: str = "val_accuracy") -> np.ndarray:
        """One value a seed, in the order of ``seeds``."""
        return np.array([run.metrics[metric] for run in self.runs if run.arm == arm])

    def difference(self, arm: str, metric: str = "val_accuracy") -> PairedDifference:
        """Of ``arm`` from the baseline, in the metric's own unit (accuracy in [0, 1])."""
        return paired_difference(self.values(self.arms[0], metric), self.values(arm, metric))

    def noise_floor(self, metric: str = "val_accuracy") -> float:
        """Standard deviation of the baseline over its seeds; not a number for one seed."""
        values = self.values(self.arms[0], metric)
        return float(values.std(ddof=1)) if len(values) > 1 else float("nan")

    def table(self, metric: str = "val_accuracy") -> pd.DataFrame:
        """One row an arm: mean, standard deviation, paired difference, interval, verdict."""
        name, factor, unit, more_is_better = METRICS[metric]
        rows = []
        for arm in self.arms:
            values = factor * self.values(arm, metric)
            row = {
                "arm": arm,
                f"{name} (mean)": values.mean(),
                "std": values.std(ddof=1) if len(values) > 1 else np.nan,
                "seeds": len(values),
            }
            if arm != self.arms[0]:
                found = self.difference(arm, metric)
                row |= {
                    f"difference ({unit})": factor * found.mean,
                    "95 % from": factor * found.low,
                    "to": factor * found.high,
                    "verdict": found.verdict(more_is_better),
                }
            rows.append(row)
        table = pd.DataFrame(rows).set_index("arm").round(2 if factor == 100 else 4)
        return table.astype(object).where(table.notna(), "–")

    def verdict(self, arm: str, metric: str = "val_accuracy") -> str:
        """One sentence that follows from the interval, and from nothing else."""
        name, factor, unit, more_is_better = METRICS[metric]
        found = self.difference(arm, metric)
        width = "one seed, no interval" if found.n == 1 else f"95 % interval {found.span(factor)}"
        return (
            f"{arm}: {name} {factor * found.mean:+.2f} {unit} against {self.arms[0]} "
            f"({found.n} paired seed{'s' * (found.n > 1)}, {width}): "
            f"{found.verdict(more_is_better)}."
        )

    def summarize(self, arm: str) -> pd.Series:
        """Every metric in short: mean difference with its 95 % interval, unit, verdict."""
        found = {metric: self.difference(arm, metric) for metric in METRICS}
        rows = {
            name: f"{factor * found[metric].mean:+.2f} ({found[metric].span(factor)}) {unit}: "
            + found[metric].verdict(more_is_better)
            for metric, (name, factor, unit, more_is_better) in METRICS.items()
        }
        return pd.Series(rows, name=arm)


def compare(
    arms: dict[str, dict],
    config: Config,
    data: ImageData,
    *,
    seeds: Sequence[int] | None = None,
    name: str = "comparison",
) -> Comparison:
    """Train every arm at every seed and keep the runs (each is stored as soon as it ends).

    Args:
        arms: name to keyword arguments of `fit`; the first arm is the baseline. An arm may bring
            a ``config`` or ``data`` of its own.
        seeds: the same for every arm; None: ``config.seeds``.
        name: of this comparison, in stored runs and in the report.

    Raises:
        CourseError: no arm, no seed, or a seed given twice.
    """
    seeds = tuple(config.seeds if seeds is None else seeds)
    if not arms or not seeds or len(set(seeds)) != len(seeds):
        raise CourseError(f"compare needs arms and different seeds: got {list(arms)}, {seeds}")
    runs = []
    trainings = list(itertools.product(seeds, arms.items()))
    for seed, (arm, options) in tqdm(
        trainings, name, leave=False, file=sys.stdout, unit="training", disable=not config.progress
    ):
        options = {"config": config, "data": data} | options
        run = fit(**options, seed=seed, arm=arm, comparison=name)
        runs.append(replace(run, model=None))  # many models would fill the memory
    return Comparison(name, tuple(arms), seeds, tuple(runs))
