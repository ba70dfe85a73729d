"""The stored result of a study: every training of it, and what a lesson reads of them.

``course study NAME`` keeps each training in ``lesson_code/NAME/study.json``, which is a
`StudyResult` in JSON. `read_study` reads it for a lesson, as soon as nothing of it is missing.
"""

import difflib
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import FiniteFloat

from course_utils.config import Config
from course_utils.errors import CourseError
from course_utils.measure.paired import METRICS, PairedDifference, paired_difference
from course_utils.results import STUDIES, Seconds, validate

__all__ = [
    "ACCURACY",
    "RegimeResult",
    "StudyResult",
    "Training",
    "TrainingResult",
    "read_study",
    "read_study_file",
]

ACCURACY = "val_accuracy"  # what a study is about, and what chooses the trial of a variant


@dataclass(frozen=True)
class Training:
    """One training: names of what is declared, and a seed. ``key`` changes with what they mean."""

    study: str
    regime: str
    variant: str
    trial: str
    seed: int
    key: str


@dataclass(frozen=True)
class TrainingResult(Training):
    """A training that has ended, and what it measured.

    Args:
        metrics: after the last epoch; accuracies in [0, 1]. None: it was not a finite number.
        trained_parameters: how many numbers were trained.
        saved_bytes: by one training step for the backward pass; None: not counted.
        seconds: of one thread, validation included.
    """

    metrics: dict[str, int | FiniteFloat | None]
    trained_parameters: int
    saved_bytes: int | None
    seconds: Seconds

    @property
    def diverged(self) -> bool:
        """Whether validation found a loss or another metric that is not a finite number.

        The accuracy is a number even then: a network that answers NaN is counted as one that
        always answers the first class.
        """
        return any(x is None for name, x in self.metrics.items() if name.startswith("val_"))

    def read_metric(self, name: str) -> float:
        """A metric by its name; NaN where it was not a finite number.

        Raises:
            CourseError: the training has no such metric.
        """
        value = self.metrics[_choose("metric", name, self.metrics)]
        return float("nan") if value is None else float(value)


@dataclass(frozen=True)
class RegimeResult:
    """A setting in which variants were compared: why, with which config, on how many examples."""

    about: str
    config: Config
    few: int | None  # training on the first few examples only; None: on all of the config


@dataclass(frozen=True)
class StudyResult:
    """A study with its trainings, and where they were made. Made by ``course study NAME``.

    Args:
        question: one sentence.
        margin: accuracies that differ by less count as equivalent, in [0, 1].
        seeds: those that are reported, the same for every variant.
        search_seeds: those on which the best trial of each variant was found.
        regimes: by name.
        command: that makes it.
        made, hardware, threads, versions, commit: of the training that ended last.
        best: by regime and variant, in the order of the declaration, the trial that is reported;
            None: trainings are missing.
        trainings: in the order of the declaration.
    """

    question: str
    margin: float
    seeds: tuple[int, ...]
    search_seeds: tuple[int, ...]
    regimes: dict[str, RegimeResult]
    command: str
    made: date
    hardware: dict[str, str | int | None]
    threads: int
    versions: dict[str, str]
    commit: str | None
    best: dict[str, dict[str, str]] | None
    trainings: tuple[TrainingResult, ...]

    def is_complete(self) -> bool:
        """Whether every variant of every regime has its best trial at all reported seeds."""
        if self.best is None or set(self.best) != set(self.regimes):
            return False
        reported = {
            (regime, variant, trial, seed)
            for regime, trials in self.best.items()
            for variant, trial in trials.items()
            for seed in self.seeds
        }
        return reported <= {(x.regime, x.variant, x.trial, x.seed) for x in self.trainings}

    def values(self, regime: str, variant: str, metric: str = ACCURACY) -> np.ndarray:
        """The metric of a variant's best trial, in its own unit (accuracy in [0, 1]).

        Returns:
            float64 ``(S,)``: one value for each of the S ``seeds``, in their order, so that two
            variants are paired. NaN where a training diverged and the metric is not a number.

        Raises:
            CourseError: no such regime, variant or metric.
        """
        return np.array([x.read_metric(metric) for x in self._list_reported(regime, variant)])

    def difference(
        self, regime: str, treated: str, baseline: str | None = None, metric: str = ACCURACY
    ) -> PairedDifference:
        """Of one variant from another over the same seeds, in the metric's own unit.

        Args:
            treated, baseline: variants of the regime; None: its first one is the baseline.

        Raises:
            CourseError: no such regime, variant or metric.
        """
        baseline = next(iter(self._choose_trials(regime))) if baseline is None else baseline
        return paired_difference(
            self.values(regime, baseline, metric), self.values(regime, treated, metric)
        )

    def table(self, regime: str, metric: str = ACCURACY) -> pd.DataFrame:
        """One row for each variant, for a reader: a dash where there is no number.

        Returns:
            The index has the variants, the first of which is the baseline. Columns are the mean
            over the seeds (``"accuracy (mean)"``, in percent), the paired difference from the
            baseline (``"difference (points)"``), its ``"95 % interval"``, the ``"verdict"`` with
            its margin, the ``"seeds"`` and how many of them diverged, and the chosen ``"trial"``.
            For another metric than the accuracy, its name and its unit stand in their place.

        Raises:
            CourseError: no such regime; a metric for which there are no margin and no unit.
        """
        name, factor, unit, more_is_better, margin = METRICS[_choose("metric", metric, METRICS)]
        margin = self.margin if metric == ACCURACY else margin
        digits = 2 if factor == 100 else 4

        def show(value: float) -> float | str:
            return round(factor * value, digits) if math.isfinite(value) else "–"

        rows: list[dict[str, object]] = []
        for variant, trial in self._choose_trials(regime).items():
            found = self.difference(regime, variant, metric=metric)
            judged = found.describe_verdict(more_is_better, margin, factor, unit)
            interval = found.format_interval(factor) if math.isfinite(found.mean) else "–"
            num_diverged = sum(x.diverged for x in self._list_reported(regime, variant))
            rows.append(
                {
                    "variant": variant,
                    f"{name} (mean)": show(float(self.values(regime, variant, metric).mean())),
                    f"difference ({unit})": show(found.mean) if rows else "–",
                    "95 % interval": interval if rows else "–",
                    "verdict": judged if rows else "baseline",
                    "seeds": f"{found.n}, {num_diverged} diverged" if num_diverged else found.n,
                    "trial": trial,
                }
            )
        return pd.DataFrame(rows).set_index("variant")

    def describe_machine(self) -> str:
        """Processor, cores and GPU, in words."""
        about = self.hardware
        gpu = about.get("gpu") or "no GPU"
        return f"{about.get('cpu', 'unknown processor')}, {about.get('cores', '?')} cores, {gpu}"

    def describe_provenance(self) -> str:
        """One line: how many seeds, on which machine, with how many threads, and when."""
        seeds = "1 seed" if len(self.seeds) == 1 else f"{len(self.seeds)} paired seeds"
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{seeds}; {self.describe_machine()}; {threads} for each training; {self.made}"

    def to_json(self) -> str:
        """The text of its file: one line for each training."""
        content = asdict(self)
        rows = [json.dumps(row, ensure_ascii=False) for row in content.pop("trainings")]
        head = json.dumps(content, ensure_ascii=False, indent=1, default=str)[:-2]
        lines = ",\n  ".join(rows)
        return f'{head},\n "trainings": [\n  {lines}\n ]\n}}\n'

    def _choose_trials(self, regime: str) -> dict[str, str]:
        """For each variant of a regime, the trial that is reported."""
        best = self.best or {}
        return best[_choose("regime", regime, best)]

    def _list_reported(self, regime: str, variant: str) -> list[TrainingResult]:
        """The trainings of a variant's best trial, one for each seed, in the order of ``seeds``."""
        trials = self._choose_trials(regime)
        place = (regime, variant, trials[_choose("variant", variant, trials)])
        found = {x.seed: x for x in self.trainings if (x.regime, x.variant, x.trial) == place}
        return [found[seed] for seed in self.seeds]


def _choose(kind: str, name: str, known: Iterable[str]) -> str:
    """The name, if it is known.

    Raises:
        CourseError: it is not; the message has the nearest name, or all of them.
    """
    known = list(known)
    if name in known:
        return name
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}"
    raise CourseError(f"no {kind} {name!r}: {hint}")


def read_study_file(path: Path) -> StudyResult:
    """A file that ``course study`` writes; trainings of it may be missing.

    Raises:
        CourseError: it is damaged, or holds NaN, or was made in another way.
    """
    try:
        return validate(StudyResult, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:  # a CourseError of `validate` is a ValueError
        raise CourseError(
            f"{path} is damaged, or no file of `course study` ({error}): restore it with "
            f"`git checkout {path}`, or delete it and run `course study {path.parent.name}`"
        ) from None


def read_study(name: str, folder: Path = STUDIES) -> StudyResult:
    """What ``course study name`` has measured, when nothing of it is missing.

    A lesson that calls it depends on ``lesson_code/<name>/study.json``. Give the name as a
    literal, so that it depends on no other study.

    >>> study = read_study("text")                                       # doctest: +SKIP
    >>> study.difference("few texts", "warm-up").describe_verdict(margin=study.margin)

    Args:
        name: of the lesson's folder.
        folder: of the folders of lessons.

    Raises:
        CourseError: there is no such study; trainings are missing; the file is damaged.
    """
    path = folder / name / "study.json"
    if not path.is_file():
        raise CourseError(f"no study {path}: train it with `course study {name}`")
    study = read_study_file(path)
    if not study.is_complete():
        raise CourseError(f"the study {name} is not complete: go on with `course study {name}`")
    return study
