"""The file of a study: which of its trainings are there, and which are missing."""

import json
from dataclasses import asdict, fields
from datetime import date
from pathlib import Path

import numpy as np

from course_tools.study.declare import load_study
from course_tools.study.trainings import Training, list_trainings
from course_utils.files import write_atomically
from course_utils.measure.provenance import describe_hardware, read_commit, read_versions
from course_utils.results import STUDIES, read_file

__all__ = ["METRIC", "StudyFile"]

METRIC = "val_accuracy"


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
        kept = read_file(self.path).get("trainings", []) if self.path.exists() else []
        found = {(row["key"], row["seed"]): row for row in kept}
        self.rows = {x: found[x.key, x.seed] for x in self.declared if (x.key, x.seed) in found}

    def list_missing(self) -> list[Training]:
        """What to train next: of each variant the search for its best trial, then that trial."""
        return [x for part in self._list_parts() for x in part]

    def count_left(self) -> int:
        """How many trainings are left until the study is complete."""
        parts = self._list_parts()
        in_search = [part for part in parts if part and part[0].seed in self.study.search_seeds]
        return sum(map(len, parts)) + len(in_search) * len(self.study.seeds)

    def _list_parts(self) -> list[list[Training]]:
        """For each variant, what can be trained next."""
        best, search_seeds, parts = self.choose_best(), self.study.search_seeds, []
        for regime, trials in best.items():
            for variant, trial in trials.items():
                own = [x for x in self.declared if (x.regime, x.variant) == (regime, variant)]
                search = [x for x in own if x.seed in search_seeds and x not in self.rows]
                reported = [x for x in own if x.seed not in search_seeds and x.trial == trial]
                parts.append(search or [x for x in reported if x not in self.rows])
        return parts

    def choose_best(self) -> dict[str, dict[str, str]]:
        """By regime and variant, the trial with the best mean accuracy on the search seeds.

        A training that diverged counts as an accuracy of zero. Of equal trials the first is taken.
        """
        found: dict[tuple[str, str, str], list[float]] = {}
        for x, row in self.rows.items():
            if x.seed in self.study.search_seeds:
                accuracy = float(np.nan_to_num(row["metrics"][METRIC]))
                found.setdefault((x.regime, x.variant, x.trial), []).append(accuracy)
        means = {place: float(np.mean(accuracies)) for place, accuracies in found.items()}
        return {
            regime: {
                variant: max(trials, key=lambda trial: means.get((regime, variant, trial), 0.0))
                for variant, trials in declared.variants.items()
            }
            for regime, declared in self.study.regimes.items()
        }

    def add(self, row: dict) -> None:
        """Keep the row of a training, in the file too; it has ``best`` when nothing is missing."""
        self.rows[Training(**{field.name: row[field.name] for field in fields(Training)})] = row
        content = {
            "question": self.study.question,
            "margin": self.study.margin,
            "seeds": list(self.study.seeds),
            "search_seeds": list(self.study.search_seeds),
            "regimes": {
                name: {"about": regime.about, "config": asdict(regime.config), "few": regime.few}
                for name, regime in self.study.regimes.items()
            },
            "command": f"course study {self.name}",
            "made": date.today().isoformat(),
            "hardware": describe_hardware(),
            "threads": 1,
            "versions": read_versions(),
            "commit": read_commit(),
        }
        if not self.list_missing():
            content["best"] = self.choose_best()
        head = json.dumps(content, ensure_ascii=False, indent=1)[:-2]
        rows = [self.rows[x] for x in self.declared if x in self.rows]
        lines = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in rows)
        write_atomically(self.path, f'{head},\n "trainings": [\n  {lines}\n ]\n}}\n')
