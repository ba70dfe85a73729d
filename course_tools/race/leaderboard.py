"""``leaderboard.json``: the settings of a race, a row for each recipe, and the records."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import filelock
from pydantic import TypeAdapter, ValidationError
from rich.table import Table
from rich.text import Text

from course_tools.console import make_printable
from course_tools.grade.strangers import read_regular
from course_tools.race.budget import LONGEST_S
from course_tools.race.records import Record, challenge
from course_utils.errors import CourseError
from course_utils.files import write_atomically
from course_utils.measure.places import find_places, mean_interval
from course_utils.measure.provenance import describe_hardware, read_commit, read_versions

__all__ = ["Leaderboard", "Row", "put_rows", "read_leaderboard", "summarize_rows"]

MOST_BYTES = 2**24  # of the file: thousands of rows
MOST_STEPS = 10**12  # as many digits as a race reads
LONGEST_ROW_S = 2 * LONGEST_S  # a budget, and what comes on top of it
NO_RECORD = "that no race has measured: name another file with --output"
RECORDS = TypeAdapter(tuple[Record, ...])
WAITING_S = 60  # for another race, which holds the file while it adds one row


@dataclass(frozen=True)
class Row:
    """One recipe: an accuracy in [0, 1] and seconds for each seed, or why it is refused."""

    name: str
    sha256: str  # of its file
    accuracies: tuple[float, ...] = ()
    times_s: tuple[float, ...] = ()
    steps: tuple[int, ...] = ()  # of all optimizers, on trust
    problem: str = ""


@dataclass(frozen=True)
class Leaderboard:
    """What all rows share (data, budget, seeds), the rows, and the records, the oldest first."""

    settings: dict[str, Any]
    rows: tuple[Row, ...] = ()
    records: tuple[Record, ...] = ()

    def put(self, row: Row, source: str = "") -> "Leaderboard":
        """With this row, in place of an earlier one of the same name; it may be a record.

        Args:
            source: the text of its file, which is kept with a record.
        """
        others = tuple(other for other in self.rows if other.name != row.name)
        new = None
        if not row.problem:
            about = (row.name, row.sha256, source, row.accuracies, row.steps)
            new = challenge(self.records, *about, reach=self.settings.get("reach"))
        records = (*self.records, new) if new else self.records
        return Leaderboard(self.settings, (*others, row), records)

    def write(self, path: Path) -> None:
        """Write it in one step: a reader, or the next race, never finds half of it."""
        content = {
            "made_by": "course race",
            "settings": self.settings,
            "commit": read_commit(),
            "hardware": describe_hardware(),
            "versions": read_versions(),
            "rows": summarize_rows(self.rows),
            "records": [asdict(record) for record in self.records],
        }
        write_atomically(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    def make_table(self) -> Table:
        """For the terminal, the best mean first and what is refused last."""
        sandbox = "yes" if self.settings.get("sandbox") else "no"
        columns = ("place", "recipe", "accuracy (%)", "95 % interval", "seeds", "seconds", "steps")
        table = Table(*columns, "sandbox", box=None)
        for row in summarize_rows(self.rows):
            name = Text(row["name"])
            if row["problem"]:
                table.add_row("–", name, "refused", "", "", "", "", sandbox)
                continue
            width = (
                "–" if row["low"] is None else f"{100 * row['low']:.1f} to {100 * row['high']:.1f}"
            )
            mean, seeds = f"{100 * row['accuracy']:.1f}", str(len(row["accuracies"]))
            cost = f"{row['time_s']:.0f}", f"{row['mean_steps']:,.0f}"
            table.add_row(_format_place(row), name, mean, width, seeds, *cost, sandbox)
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
                "mean_steps": sum(row.steps) / len(row.steps),
                "place": best if best == worst else None,
                "best_place": best,
                "worst_place": worst,
            }
        )
    found.sort(key=lambda row: -row["accuracy"])
    return found + [asdict(row) for row in rows if row.problem]


def put_rows(
    path: Path,
    settings: dict[str, Any],
    rows: Sequence[Row] = (),
    sources: Mapping[str, str] | None = None,
) -> Leaderboard:
    """Add rows to the leaderboard in the file, and return it; other races may do so too.

    Without rows it is written as it is, which shows before a race that this can be done.

    Args:
        sources: the text of each recipe, by name, which is kept with a record.

    Raises:
        CourseError: see `read_leaderboard`; another program holds the file.
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(path.with_name(f".{path.name}.lock"), timeout=WAITING_S):
            board = read_leaderboard(path, settings)
            for row in rows:
                board = board.put(row, (sources or {}).get(row.name, ""))
            board.write(path)
    except filelock.Timeout:
        raise CourseError(
            f"{path} is held by another race: name another file with --output"
        ) from None
    return board


def read_leaderboard(path: Path, settings: dict[str, Any]) -> Leaderboard:
    """The leaderboard in the file, to which rows are added; an empty one if there is no file.

    Raises:
        CourseError: it is of another race, whose rows cannot be compared, or of none; a row is
            not what a race writes.
    """
    if not path.exists():
        return Leaderboard(settings)
    if not path.is_file():
        raise CourseError(f"{path} is a folder, a pipe or a device: name a file with --output")
    try:
        found = json.loads(read_regular(path, MOST_BYTES).decode("utf-8"))
        there, entries = dict(found["settings"]), list(found["rows"])
        records = RECORDS.validate_python(found["records"])
    except ValidationError:
        raise CourseError(f"{path} has a record {NO_RECORD}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CourseError(f"{path} is no leaderboard: name another file with --output") from None
    if not entries:  # of a race that did not come to its first row
        return Leaderboard(settings)
    for name, value in settings.items():
        if there.get(name) != value:
            raise CourseError(
                f"{path} is of another race ({name} is {there.get(name)}, not {value}): name "
                "another file with --output"
            )
    seeds = len(settings["seeds"])
    if any({len(x.accuracies), len(x.steps)} != {seeds} for x in records):
        raise CourseError(f"{path} has a record {NO_RECORD}")
    rows = tuple(_parse_row(path, entry, seeds) for entry in entries)
    if len({row.name for row in rows}) < len(rows):
        raise CourseError(f"{path} has two rows of one name: name another file with --output")
    return Leaderboard(settings, rows, records)


def _parse_row(path: Path, entry: object, seeds: int) -> Row:
    """A row as `Leaderboard.write` stores it.

    Raises:
        CourseError: something is missing, of another kind, or no number that a race can measure.
    """
    number = (int, float)
    match entry:
        case {
            "name": str(name),
            "sha256": str(sha256),
            "accuracies": list(accuracies),
            "times_s": list(times_s),
            "steps": list(steps),
            "problem": str(problem),
        }:
            count = 0 if problem else seeds
            limits = [(x, 1) for x in accuracies] + [(x, LONGEST_ROW_S) for x in times_s]
            limits += [(x, MOST_STEPS) for x in steps]
            known = all(type(x) in number and 0 <= x <= most for x, most in limits)
            if known and len(accuracies) == len(times_s) == len(steps) == count:
                name, problem = make_printable(name), make_printable(problem)
                return Row(name, sha256, tuple(accuracies), tuple(times_s), tuple(steps), problem)
    shown = make_printable(str(entry.get("name", entry) if isinstance(entry, dict) else entry))
    raise CourseError(
        f"{path}: the row {shown[:50]!r} is none that a race has measured: delete it, or name "
        "another file with --output"
    )
