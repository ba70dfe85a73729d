"""The file of a study: which of its trainings are there, and which are missing."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path

import numpy as np

from course_tools.study.declare import load_study
from course_tools.study.trainings import list_trainings
from course_utils.errors import CourseError
from course_utils.files import write_atomically
from course_utils.measure.provenance import read_commit, read_versions
from course_utils.results import STUDIES
from course_utils.study_results import (
    ACCURACY,
    RegimeResult,
    StudyResult,
    Training,
    TrainingResult,
    read_study_file,
)

__all__ = ["StudyFile"]


class StudyFile:
    """The trainings of a study in ``<folder>/<name>/study.json``.

    Those of another declaration than today's are left out, here and when it is written again.

    Args:
        name: of the lesson's folder.
        folder: of the folders of lessons.

    Raises:
        CourseError: no such study, or a damaged file.
    """

    def __init__(self, name: str, folder: Path = STUDIES):
        self.name, self.study = name, load_study(name, folder)
        self.path = folder / name / "study.json"
        self.declared = list_trainings(name, self.study)
        self.stored = read_study_file(self.path) if self.path.exists() else None
        kept = self.stored.trainings if self.stored else ()
        found = {(row.key, row.seed): row for row in kept}
        self.rows: dict[Training, TrainingResult] = {
            x: replace(found[x.key, x.seed], **asdict(x))  # called as it is declared today
            for x in self.declared
            if (x.key, x.seed) in found
        }

    def list_missing(self) -> list[Training]:
        """What to train next: of each variant the search for its best trial, then that trial."""
        return [x for part in self._list_parts().values() for x in part]

    def count_left(self) -> dict[str, int]:
        """How many trainings of each regime are left until the study is complete."""
        left = dict.fromkeys(self.study.regimes, 0)
        for (regime, _), part in self._list_parts().items():
            is_search = bool(part) and part[0].seed in self.study.search_seeds
            left[regime] += len(part) + (len(self.study.seeds) if is_search else 0)
        return left

    def _list_parts(self) -> dict[tuple[str, str], list[Training]]:
        """For each regime and variant, what can be trained next."""
        search_seeds, parts = self.study.search_seeds, {}
        for regime, trials in self.choose_best().items():
            for variant, trial in trials.items():
                own = [x for x in self.declared if (x.regime, x.variant) == (regime, variant)]
                search = [x for x in own if x.seed in search_seeds and x not in self.rows]
                reported = [x for x in own if x.seed not in search_seeds and x.trial == trial]
                parts[regime, variant] = search or [x for x in reported if x not in self.rows]
        return parts

    def choose_best(self) -> dict[str, dict[str, str]]:
        """By regime and variant, the trial with the best mean accuracy on the search seeds.

        A training that diverged counts as an accuracy of zero. Of equal trials the first is taken.
        """
        found: dict[tuple[str, str, str], list[float]] = {}
        for x, row in self.rows.items():
            if x.seed in self.study.search_seeds:
                accuracy = 0.0 if row.diverged else row.read_metric(ACCURACY)
                found.setdefault((x.regime, x.variant, x.trial), []).append(accuracy)
        means = {place: float(np.mean(accuracies)) for place, accuracies in found.items()}
        return {
            regime: {
                variant: max(trials, key=lambda trial: means.get((regime, variant, trial), 0.0))
                for variant, trials in declared.variants.items()
            }
            for regime, declared in self.study.regimes.items()
        }

    def add(self, row: TrainingResult, hardware: Mapping[str, str | int | None]) -> None:
        """Keep a training, in the file too; it has ``best`` when nothing is missing.

        Args:
            row: of a training that is declared.
            hardware: of the machine that trained it, see `describe_hardware`.

        Raises:
            CourseError: the file cannot be written, such as on a full disk. It is as it was.
        """
        same = [x for x in self.declared if (x.key, x.seed) == (row.key, row.seed)]
        self.rows |= {x: replace(row, **asdict(x)) for x in same}  # two regimes may share it
        self._write(
            StudyResult(
                **self._describe_declaration(),
                made=date.today(),
                hardware=dict(hardware),
                threads=1,
                versions=read_versions(),
                commit=read_commit(),
            )
        )

    def is_current(self) -> bool:
        """Whether the file says what is declared today: margin, names, order of the variants."""
        if self.stored is None:
            return False
        return (
            replace(self.stored, **self._describe_declaration()).to_json() == self.stored.to_json()
        )

    def update(self) -> None:
        """Write the file again if only its declaration has changed; no training is repeated.

        Raises:
            CourseError: the file cannot be written. It is as it was.
        """
        if self.stored is not None and not self.is_current():
            self._write(replace(self.stored, **self._describe_declaration()))

    def _describe_declaration(self) -> dict:
        """The fields of `StudyResult` that do not depend on where and when it was made."""
        return {
            "question": self.study.question,
            "margin": self.study.margin,
            "seeds": self.study.seeds,
            "search_seeds": self.study.search_seeds,
            "regimes": {
                name: RegimeResult(regime.about, regime.config, regime.few)
                for name, regime in self.study.regimes.items()
            },
            "command": f"course study {self.name}",
            "best": None if self.list_missing() else self.choose_best(),
            "trainings": tuple(self.rows[x] for x in self.declared if x in self.rows),
        }

    def _write(self, result: StudyResult) -> None:
        try:
            write_atomically(self.path, result.to_json())
        except OSError as error:
            raise CourseError(
                f"cannot write {self.path} ({error.strerror}): make room there, and go on with "
                f"`course study {self.name}`; the trainings in it are kept"
            ) from None
        self.stored = result
