"""A student's progress: what `course check` found, kept until the answers change."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import nbformat
from rich.table import Table

from course_utils.files import ROOT, write_atomically
from course_utils.tools.teach.check import Result
from course_utils.tools.teach.exercises import LessonExercises
from course_utils.tools.teach.kernel import is_lasting

__all__ = ["find_key", "load_results", "make_progress_table", "store_results"]


def find_key(notebook: nbformat.NotebookNode, lesson: LessonExercises) -> str:
    """Changes with any code of the notebook, with the checks, and with the package."""
    digest = hashlib.sha256(repr(lesson).encode())
    for cell in notebook.cells:
        if cell.cell_type == "code":
            digest.update(f"{cell.source}\0".encode())
    for path in sorted((ROOT / "course_utils").rglob("*.py")):
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
    try:
        entry = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        if key not in (None, entry["key"]):
            return None
        return [Result(**result) for result in entry["results"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _mark(message: str) -> str:
    untouched = message.endswith("is not written yet.")
    return "–" if untouched else "✗" if message else "✓"


def make_progress_table(lessons: Sequence[LessonExercises], folder: Path) -> Table:
    """All lessons with exercises passed and points, as of the last check of each."""
    table = Table("lesson", "exercises passed", "points", "each", box=None, title="Progress")
    earned = 0
    for lesson in lessons:
        results = load_results(folder, lesson.name)
        if results is None:
            table.add_row(lesson.name, "not checked yet", f"– of {lesson.points}", "")
            continue
        marks = "".join(_mark(result.message) for result in results)
        points = sum(result.points for result in results)
        earned += points
        passed = f"{marks.count('✓')} of {len(results)}"
        table.add_row(lesson.name, passed, f"{points} of {lesson.points}", marks)
    table.add_section()
    table.add_row("all", "", f"{earned} of {sum(lesson.points for lesson in lessons)}", "")
    return table
