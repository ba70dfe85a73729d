"""``leaderboard.json``: the settings of a race, and a row for each recipe."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from course_utils.errors import CourseError
from course_utils.files import write_atomically
from course_utils.measure.places import find_places, mean_interval
from course_utils.measure.provenance import describe_hardware, read_commit, read_versions

__all__ = ["Leaderboard", "Row", "read_leaderboard", "summarize_rows"]


@dataclass(frozen=True)
class Row:
    """One recipe: an accuracy in [0, 1] and seconds for each seed, or why it is refused."""

    name: str
    sha256: str  # of its file
    accuracies: tuple[float, ...] = ()
    times_s: tuple[float, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Leaderboard:
    """What all rows share (data, budget, seeds), and the rows."""

    settings: dict[str, Any]
    rows: tuple[Row, ...] = ()

    def put(self, row: Row) -> "Leaderboard":
        """With this row, in place of an earlier one of the same name."""
        others = tuple(other for other in self.rows if other.name != row.name)
        return Leaderboard(self.settings, (*others, row))

    def write(self, path: Path) -> None:
        """Write it in one step: a reader, or the next race, never finds half of it."""
        content = {
            "made_by": "course race",
            "settings": self.settings,
            "commit": read_commit(),
            "hardware": describe_hardware(),
            "versions": read_versions(),
            "rows": summarize_rows(self.rows),
        }
        write_atomically(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    def make_table(self) -> Table:
        """For the terminal, the best mean first and what is refused last."""
        table = Table("place", "recipe", "accuracy (%)", "95 % interval", "seeds", "seconds")
        table.box = None
        for row in summarize_rows(self.rows):
            name = Text(row["name"])
            if row["problem"]:
                table.add_row("–", name, "refused", "", "", "")
                continue
            width = (
                "–" if row["low"] is None else f"{100 * row['low']:.1f} to {100 * row['high']:.1f}"
            )
            mean, seeds = f"{100 * row['accuracy']:.1f}", str(len(row["accuracies"]))
            table.add_row(_format_place(row), name, mean, width, seeds, f"{row['time_s']:.0f}")
        return table


def _format_place(row: dict[str, Any]) -> str:
    best, worst = row["best_place"], row["worst_place"]
    return str(best) if best == worst else f"{best} to {worst}"


def summarize_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as they are stored, the best mean first.

    ``place`` is a number where the interval overlaps with no other one, else None; then the
    recipe's place is one from ``best_place`` to ``worst_place``. ``low`` and ``high`` are None
    for one seed. A refused recipe has a ``problem`` and no place.
    """
    finished = [row for row in rows if not row.problem]
    intervals = {row.name: mean_interval(row.accuracies) for row in finished}
    places = find_places(intervals)
    found = []
    for row in finished:
        low, high = intervals[row.name]
        best, worst = places[row.name]
        known = math.isfinite(low)
        found.append(
            asdict(row)
            | {
                "accuracy": sum(row.accuracies) / len(row.accuracies),
                "low": low if known else None,
                "high": high if known else None,
                "time_s": sum(row.times_s) / len(row.times_s),
                "place": best if best == worst else None,
                "best_place": best,
                "worst_place": worst,
            }
        )
    found.sort(key=lambda row: -row["accuracy"])
    return found + [asdict(row) for row in rows if row.problem]


def read_leaderboard(path: Path, settings: dict[str, Any]) -> Leaderboard:
    """The leaderboard in the file, to which rows are added; an empty one if there is no file.

    Raises:
        CourseError: it is of another race, whose rows cannot be compared, or of none.
    """
    if not path.exists():
        return Leaderboard(settings)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        there = dict(found["settings"])
        rows = tuple(_parse_row(entry) for entry in found["rows"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise CourseError(f"{path} is no leaderboard: name another file with --output") from None
    for name, value in settings.items():
        if there.get(name) != value:
            raise CourseError(
                f"{path} is of another race ({name} is {there.get(name)}, not {value}): name "
                "another file with --output"
            )
    return Leaderboard(settings, rows)


def _parse_row(entry: dict) -> Row:
    accuracies, times_s = (tuple(map(float, entry[name])) for name in ("accuracies", "times_s"))
    problem = str(entry["problem"])
    if not problem and (not accuracies or len(accuracies) != len(times_s)):
        raise ValueError("a row without results")
    return Row(str(entry["name"]), str(entry["sha256"]), accuracies, times_s, problem)
