"""What the study found of each change: paired differences from the network as it was trained."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from course_utils.measure.paired import METRICS, PairedDifference, paired_difference

__all__ = ["Changes"]

AS_TRAINED = "fp32"
MARGIN = 0.01  # of an accuracy or a calibration error, in [0, 1]
FAULT = "fault: "  # before the name of another preprocessing


class Changes:
    """The study of lesson 24, for a reader.

    Args:
        study: the content of ``study.json``.
    """

    def __init__(self, study: Mapping[str, Any]):
        self.study = study

    def values(self, kind: str, change: str, metric: str = "accuracy") -> np.ndarray:
        """One value for each seed that has it, in the metric's own unit (accuracy in [0, 1])."""
        rows = self._list_rows(kind, change)
        return np.array([row["found"][change][metric] for row in rows])

    def _list_rows(self, kind: str, *changes: str) -> list[Mapping[str, Any]]:
        """The rows of the networks that have all these changes."""
        rows = [row for row in self.study["rows"] if row["kind"] == kind]
        return [row for row in rows if all(change in row["found"] for change in changes)]

    def difference(
        self, kind: str, change: str, metric: str = "accuracy", baseline: str = AS_TRAINED
    ) -> PairedDifference:
        """Of a change from the baseline, over the same networks."""
        rows = self._list_rows(kind, change, baseline)
        return paired_difference(
            [row["found"][baseline][metric] for row in rows],
            [row["found"][change][metric] for row in rows],
        )

    def list_faults(self, kind: str) -> list[str]:
        """Names of the faults of preprocessing, the one that costs most last."""
        first = next(row for row in self.study["rows"] if row["kind"] == kind)
        names = [name for name in first["found"] if name.startswith(FAULT)]
        return sorted(names, key=lambda name: -self.difference(kind, name).mean)

    def describe(self, kind: str, change: str, metric: str = "accuracy") -> str:
        """Mean difference in points, its interval and the verdict."""
        found = self.difference(kind, change, metric)
        is_better = METRICS[f"val_{metric}"].more_is_better
        verdict = found.describe_verdict(is_better, MARGIN)
        return f"{100 * found.mean:+.2f} ({found.format_interval(100)}), {verdict}"

    def table(self, kind: str, changes: list[str]) -> pd.DataFrame:
        """A row for each change: accuracy, calibration error, equal answers, megabytes."""
        rows = {}
        for change in changes:
            first = self._list_rows(kind, change)[0]["found"][change]
            agreement = 100 * self.values(kind, change, "agreement").mean()
            rows[change] = {
                "accuracy (%)": f"{100 * self.values(kind, change).mean():.1f}",
                "difference (points)": self.describe(kind, change),
                "calibration error (points)": self.describe(kind, change, "calibration_error"),
                "same answers (%)": f"{agreement:.1f}",
                "file (MB)": f"{first['bytes'] / 1e6:.2f}" if "bytes" in first else "–",
            }
        return pd.DataFrame(rows).T

    def describe_provenance(self) -> str:
        """One line: how many networks, on which machine, and when."""
        about = self.study
        seeds = len({row["seed"] for row in about["rows"]})
        return (
            f"{seeds} networks of each kind, {about['num_val']:,} validation examples; "
            f"{about['hardware']['cpu']}, 1 thread; {about['made']}"
        )
