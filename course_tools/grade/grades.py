"""The tables of a grading, and what each student gets to read."""

import csv
import io
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from course_tools.grade.grade import Graded
from course_utils.files import write_atomically

__all__ = ["write_feedback", "write_grades", "write_totals"]

HEADER = ("student", "lesson", "file", "exercise", "points", "out_of", "what_happened")
NOT_GRADED = "not graded"
PRIVATE = 0o600  # marks are for the person who grades
FORMULA = tuple("=+-@")


def _protect(value: object) -> object:
    """A text that a spreadsheet shows, where it would take it for a formula."""
    if isinstance(value, str) and unicodedata.normalize("NFKC", value[:1]).startswith(FORMULA):
        return f"'{value}"
    return value


def _write_table(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """CSV that spreadsheets read as UTF-8: they need a byte-order mark for it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_protect(value) for value in row] for row in rows)
    write_atomically(path, text.getvalue().encode("utf-8-sig"), mode=PRIVATE)


def write_grades(graded: Sequence[Graded], path: Path) -> None:
    """One row of CSV for each exercise of each submission."""
    rows: list[Sequence[object]] = [HEADER]
    for entry in graded:
        about = (entry.student, entry.lesson, entry.file)
        if not entry.results:
            rows.append((*about, "", "" if entry.ungraded else 0, "", entry.problem))
        for result in entry.results:
            what = result.message or "passed"
            points = result.points if result.graded else ""
            rows.append((*about, result.exercise, points, result.out_of, what))
    _write_table(path, rows)


def write_totals(graded: Sequence[Graded], path: Path) -> None:
    """One row of CSV for each student: points in each lesson that anybody handed in, and in all.

    Where the machine failed, neither the lesson nor the sum has points: a zero would be wrong.
    """
    out_of = {entry.lesson: entry.out_of for entry in graded if entry.results}
    rows: list[Sequence[object]] = [("student", *out_of, "points", "out_of")]
    for folder, student in {entry.folder: entry.student for entry in graded}.items():
        mine = [entry for entry in graded if entry.folder == folder]
        own = {x.lesson: NOT_GRADED if x.ungraded else x.points for x in mine if x.results}
        points = [own.get(lesson, "") for lesson in out_of]
        total = sum(entry.points for entry in mine)
        shown = NOT_GRADED if any(entry.ungraded for entry in mine) else total
        rows.append((student, *points, shown, sum(out_of.values())))
    _write_table(path, rows)


def _format_lesson(entry: Graded) -> list[str]:
    if not entry.lesson:
        return [f"{entry.file}: {entry.problem}" if entry.file else entry.problem]
    points = NOT_GRADED if entry.ungraded else f"{entry.points} of {entry.out_of} points"
    first = f"{entry.lesson}: {points} ({entry.file})"
    if entry.problem:
        return [first, f"  {entry.problem}"]
    signs = ["?" if not x.graded else "✗" if x.message else "✓" for x in entry.results]
    return [first] + [
        f"  {sign} {x.exercise} ({x.points if x.graded else '–'} of {x.out_of}): "
        f"{x.message or 'passed'}"
        for sign, x in zip(signs, entry.results, strict=True)
    ]


def _format_feedback(entries: Sequence[Graded]) -> str:
    lines = []
    for entry in entries:
        lines += [*_format_lesson(entry), ""]
    points, out_of = sum(x.points for x in entries), sum(x.out_of for x in entries)
    if any(entry.ungraded for entry in entries):
        return "\n".join([*lines, f"All: {NOT_GRADED} yet", ""])
    return "\n".join([*lines, f"All: {points} of {out_of} points", ""])


def write_feedback(graded: Sequence[Graded], student: str, folder: Path) -> None:
    """Write ``<folder>/<student>/feedback.txt``: what became of each of a student's lessons.

    Args:
        student: the name of the student's folder. No name is too long or impossible for the disk
            then, because the submissions have it too.
    """
    entries = [entry for entry in graded if entry.folder == student]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(folder / student / "feedback.txt", _format_feedback(entries), mode=PRIVATE)
