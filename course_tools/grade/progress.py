"""A student's progress: what `course check` found, kept until the answers change."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import nbformat
from rich.table import Table

from course_tools.grade.check import NOT_WRITTEN, Result
from course_tools.grade.exercises import LessonExercises
from course_tools.grade.kernel import is_lasting
from course_utils.files import ROOT, write_atomically
from course_utils.predictions import read_predictions
from course_utils.results import validate

__all__ = ["find_key", "is_untouched", "load_results", "make_prediction_table"]
__all__ += ["make_progress_table", "store_results"]


def find_key(notebook: nbformat.NotebookNode, lesson: LessonExercises) -> str:
    """Changes with any code of the notebook, with the checks, and with the package."""
    digest = hashlib.sha256(repr(lesson).encode())
    for cell in notebook.cells:
        if cell.cell_type == "code":
            digest.update(f"{cell.source}\0".encode())
    for folder in ("course_utils", "lesson_code"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def store_results(folder: Path, name: str, key: str, results: Sequence[Result]) -> None:
    """Keep the results of one lesson in ``folder``; under no key if limits had a part in them."""
    if not all(is_lasting(result.message) for result in results):
        key = ""
    entry = {"key": key, "results": [asdict(result) for result in results]}
    write_atomically(folder / f"{name}.json", json.dumps(entry, indent=1))


def load_results(folder: Path, name: str, key: str | None = None) -> list[Result] | None:
    """The kept results of a lesson; None if there are none (under this ``key``)."""
    path = folder / f"{name}.json"
    if not path.is_file():  # reading a named pipe waits for ever
        return None
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        if key not in (None, entry["key"]):
            return None
        found = [validate(Result, result) for result in entry["results"]]
        return found if all(0 <= result.points <= result.out_of for result in found) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def is_untouched(result: Result) -> bool:
    """Whether the exercise has not been begun."""
    return result.message.endswith(NOT_WRITTEN)


def _mark(message: str) -> str:
    return "–" if message.endswith(NOT_WRITTEN) else "✗" if message else "✓"


def make_progress_table(lessons: Sequence[LessonExercises], folder: Path) -> Table:
    """The lessons that are begun, with exercises passed and points as of the last check.

    The last row is about all lessons.
    """
    table = Table("lesson", "exercises passed", "points", "each", box=None, title="Progress")
    earned = 0
    checked = 0
    for lesson in lessons:
        results = load_results(folder, lesson.name)
        if results is None or all(map(is_untouched, results)):
            continue
        checked += 1
        marks = "".join(_mark(result.message) for result in results)
        points = sum(result.points for result in results)
        earned += points
        passed = f"{marks.count('✓')} of {len(results)}"
        table.add_row(lesson.name, passed, f"{points} of {lesson.points}", marks)
    table.add_section()
    count = f"{checked} of {len(lessons)} lessons begun"
    table.add_row("all", count, f"{earned} of {sum(lesson.points for lesson in lessons)}", "")
    return table


def make_prediction_table(path: Path) -> Table:
    """All that was predicted in the lessons, beside what they found.

    Raises:
        CourseError: the file is damaged.
    """
    table = Table("lesson", "prediction", "predicted", "found", box=None, title="Predictions")
    for lesson, numbers in sorted(read_predictions(path).items()):
        for name, pair in numbers.items():
            found = f"{pair['found']:.3g}" if "found" in pair else "–"
            table.add_row(lesson, name.replace("_", " "), f"{pair['predicted']:g}", found)
    return table
