"""`compare` trains variants over the same seeds; `Comparison` reports the paired differences."""

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from tqdm import tqdm

from course_utils.config import Config
from course_utils.data.load import Data
from course_utils.errors import CourseError
from course_utils.measure.paired import METRICS, Metric, PairedDifference, paired_difference
from course_utils.training.fit import check_options, fit
from course_utils.training.run import Run

__all__ = [
    "METRICS",
    "Comparison",
    "Metric",
    "PairedDifference",
    "compare",
    "paired_difference",
]


@dataclass(frozen=True)
class Comparison:
    """Runs of several variants over the same seeds; the first one is the baseline."""

    name: str
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    runs: tuple[Run, ...]
    margin: float | None = None  # for accuracy, in [0, 1]; None: one point

    def of_arm(self, arm: str) -> list[Run]:
        """The runs of one variant, one per seed, in the order of ``seeds``."""
        return [run for run in self.runs if run.arm == arm]

    def values(self, arm: str, metric: str = "val_accuracy") -> np.ndarray:
        """One value per seed, in the order of ``seeds``."""
        return np.array([run.metrics[metric] for run in self.of_arm(arm)])

    def against(self, arm: str) -> "Comparison":
        """The same runs with ``arm`` as the baseline."""
        if arm not in self.arms:
            raise CourseError(f"no variant {arm!r} here: choose from {', '.join(self.arms)}")
        return replace(self, arms=(arm, *(other for other in self.arms if other != arm)))

    def difference(self, arm: str, metric: str = "val_accuracy") -> PairedDifference:
        """Of ``arm`` from the baseline, in the metric's own unit (accuracy in [0, 1])."""
        return paired_difference(self.values(self.arms[0], metric), self.values(arm, metric))

    def noise_floor(self, metric: str = "val_accuracy") -> float:
        """Standard deviation of the baseline over its seeds; not a number for one seed."""
        values = self.values(self.arms[0], metric)
        return float(values.std(ddof=1)) if len(values) > 1 else float("nan")

    def _margin(self, metric: str) -> float:
        given = self.margin if metric == "val_accuracy" else None
        return METRICS[metric].margin if given is None else given

    def judge(self, arm: str, metric: str = "val_accuracy") -> str:
        """*helps*, *hurts*, *equivalent* or *inconclusive*, see `PairedDifference.verdict`."""
        found = self.difference(arm, metric)
        return found.verdict(METRICS[metric].more_is_better, self._margin(metric))

    def describe_judgement(self, arm: str, metric: str = "val_accuracy") -> str:
        """`judge` for a reader, with the margin of *equivalent*."""
        _, factor, unit, more_is_better, _ = METRICS[metric]
        found = self.difference(arm, metric)
        return found.describe_verdict(more_is_better, self._margin(metric), factor, unit)

    def table(self, metric: str = "val_accuracy") -> pd.DataFrame:
        """One row per variant: mean, standard deviation, paired difference, interval, verdict.

        Numbers, in the unit that the column names; not a number where there is none.
        """
        name, factor, unit, _, _ = METRICS[metric]
        rows = []
        for arm in self.arms:
            values = factor * self.values(arm, metric)
            is_baseline = arm == self.arms[0]
            found = self.difference(arm, metric)
            rows.append(
                {
                    "variant": arm,
                    f"{name} (mean)": values.mean(),
                    "std": values.std(ddof=1) if len(values) > 1 else np.nan,
                    "seeds": len(values),
                    f"difference ({unit})": np.nan if is_baseline else factor * found.mean,
                    "95 % from": np.nan if is_baseline else factor * found.low,
                    "to": np.nan if is_baseline else factor * found.high,
                    "verdict": "baseline" if is_baseline else self.judge(arm, metric),
                }
            )
        return pd.DataFrame(rows).set_index("variant").round(2 if factor == 100 else 4)

    def show(self, metric: str = "val_accuracy") -> pd.DataFrame:
        """`table` for a reader: a dash where there is no number, *equivalent* with its margin."""
        table = self.table(metric).replace([-np.inf, np.inf], np.nan)
        shown = table.astype(object).where(table.notna(), "–")
        for arm in self.arms[1:]:
            shown.loc[arm, "verdict"] = self.describe_judgement(arm, metric)
        return shown

    def verdict(self, arm: str, metric: str = "val_accuracy") -> str:
        """One sentence that follows from the interval, and from nothing else."""
        name, factor, unit, _, _ = METRICS[metric]
        found = self.difference(arm, metric)
        seeds = "1 paired seed" if found.n == 1 else f"{found.n} paired seeds"
        interval = found.format_interval(factor)
        width = "no interval" if found.n == 1 else f"95 % interval {interval}"
        judged = self.describe_judgement(arm, metric)
        if judged == "inconclusive":
            judged += _describe_seeds(found, self._margin(metric))
        return (
            f"{arm}: {name} {factor * found.mean:+.2f} {unit} against {self.arms[0]} "
            f"({seeds}, {width}): {judged}."
        )

    def summarize(self, arm: str) -> pd.Series:
        """Every metric in short: mean difference with its 95 % interval, unit, verdict."""
        rows = {}
        for metric, (name, factor, unit, _, _) in METRICS.items():
            found = self.difference(arm, metric)
            interval = found.format_interval(factor)
            mean = f"{factor * found.mean:+.2f}"
            rows[name] = f"{mean} ({interval}) {unit}: {self.describe_judgement(arm, metric)}"
        return pd.Series(rows, name=arm)


def _describe_seeds(found: PairedDifference, margin: float) -> str:
    """How many seeds would decide, with the range that the spread of the seeds leaves."""
    needed, between = found.seeds_needed(margin), found.seeds_range(margin)
    if needed is None or between is None:
        return ""
    low, high = between
    return f", about {needed:,} seeds would decide (95 % range {low:,} to {high:,})"


def _check_plan(arms: Mapping[str, Mapping], seeds: Sequence[int]) -> None:
    if not arms or not seeds or len(set(seeds)) != len(seeds):
        raise CourseError(f"compare needs variants and different seeds: got {list(arms)}, {seeds}")
    for arm, options in arms.items():
        check_options(arm, options)


def _fit_one(options: dict) -> Run:
    """One training of a comparison, in whatever process it runs, without its model."""
    return replace(fit(**options), model=None)  # many models would fill the memory


def _run_all(trainings: list[dict], executor: Executor | None) -> Iterator[tuple[int, Run]]:
    """``(number, run)`` of every training, each as soon as it has ended."""
    if executor is None:
        for number, options in enumerate(trainings):
            yield number, _fit_one(options)
        return
    numbers = {executor.submit(_fit_one, options): i for i, options in enumerate(trainings)}
    try:
        for future in as_completed(numbers):
            yield numbers[future], future.result()
    finally:
        for future in numbers:
            future.cancel()  # one failed: do not start those that wait


def compare(
    config: Config,
    data: Data,
    arms: Mapping[str, Mapping],
    *,
    seeds: Sequence[int] | None = None,
    name: str = "comparison",
    margin: float | None = None,
    executor: Executor | None = None,
) -> Comparison:
    """Train every variant at every seed; each run is stored as soon as it has ended.

    Args:
        arms: the variants, name to keyword arguments of `fit`; the first one is the baseline. A
            variant may bring a ``config`` or ``data`` of its own.
        seeds: the same for every variant; None: ``config.seeds``.
        name: of this comparison, in stored runs and in the report.
        margin: accuracies that differ by less count as equivalent; in [0, 1], None: one point.
        executor: spreads the trainings over processes or machines, for instance a
            `concurrent.futures.ProcessPoolExecutor`; None: one after the other, here. The runs are
            the same, in the same order. With processes, whatever the variants hold must be
            picklable (no lambda, no function defined in the notebook), and each process should
            use one thread: on two cores, two processes with two threads each are slower than one.

    Raises:
        CourseError: no variant, no seed, a seed given twice, a misspelt option.
    """
    seeds = tuple(config.seeds if seeds is None else seeds)
    _check_plan(arms, seeds)
    trainings = [
        {"config": config, "data": data}
        | dict(options)
        | {"seed": seed, "arm": arm, "comparison": name, "save": False}
        for seed, (arm, options) in itertools.product(seeds, arms.items())
    ]
    runs: dict[int, Run] = {}
    with tqdm(
        total=len(trainings),
        desc=name,
        leave=False,
        file=sys.stdout,
        unit="training",
        disable=not config.progress,
    ) as bar:
        for number, run in _run_all(trainings, executor):
            run.save()
            runs[number] = run
            bar.update()
    return Comparison(
        name, tuple(arms), seeds, tuple(runs[number] for number in sorted(runs)), margin
    )
