"""Check the exercises of a student's notebook, each within limits, whatever the notebook holds.

Executed is only what belongs to an exercise: the imports cell, the answers, cells that the student
added below the heading "Exercises", and the checks, which come from the course and not from the
student. So a lesson of minutes is checked in seconds, and nothing stops the next exercise.
"""

import ast
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nbformat

from course_utils.errors import CourseError
from course_utils.tools.console import make_printable
from course_utils.tools.teach.answers import find_answers, is_check
from course_utils.tools.teach.exercises import Exercise, LessonExercises
from course_utils.tools.teach.kernel import LimitedKernel

__all__ = ["Limits", "Result", "check_notebook", "read_submission"]

MOST_BYTES = 2**28  # of a notebook: a larger file would fill the memory
MISSING = "The cell of the answer is gone: take it from the released notebook again."
TWICE = "There are two cells of this answer: delete one of them."
FRESH_CHECKS = """
import sys
for name in [name for name in sys.modules if name.startswith("course_utils.exercises")]:
    del sys.modules[name]  # whatever an answer has done to them
{checks}
"""


@dataclass(frozen=True)
class Limits:
    """What one cell may take."""

    time_s: float = 60
    memory_gib: float = 6


@dataclass(frozen=True)
class Result:
    """What became of one exercise; ``message`` is empty where it passed."""

    exercise: str
    points: int
    out_of: int
    message: str

    @classmethod
    def make(cls, exercise: Exercise, message: str) -> "Result":
        points = 0 if message else exercise.points
        return cls(exercise.name, points, exercise.points, message)


def read_submission(path: Path) -> nbformat.NotebookNode:
    """A student's notebook.

    Raises:
        CourseError: it cannot be read as a notebook.
    """
    shown = make_printable(str(path))
    if not path.exists():
        raise CourseError(f"no notebook {shown}: give the path of an .ipynb file")
    if not path.is_file():  # reading a named pipe waits for ever
        raise CourseError(f"{shown} is no file: give the path of an .ipynb file")
    if path.stat().st_size > MOST_BYTES:
        raise CourseError(
            f"{shown} has more than {MOST_BYTES >> 20} MiB: clear its outputs and save it again"
        )
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors of Windows add a mark
        notebook = nbformat.reads(text, as_version=4)
        nbformat.validate(notebook)
        return notebook
    except OSError as error:
        raise CourseError(f"{shown} cannot be read: {error.strerror}") from None
    except Exception as error:  # nbformat meets anything at all in a file that it did not write
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:80]
        raise CourseError(
            f"{shown} is not a notebook ({make_printable(reason)}): save it again in Jupyter"
        ) from None


def _find_check_imports(source: str) -> str:
    """The lines of the lesson's imports that bring its checks.

    Raises:
        CourseError: there is none.
    """
    found = [
        ast.unparse(statement)
        for statement in ast.parse(source).body
        if isinstance(statement, ast.ImportFrom)
        and (statement.module or "").startswith("course_utils.exercises")
    ]
    if not found:
        raise CourseError("the lesson does not import its checks from course_utils.exercises")
    return "\n".join(found)


def _select_cells(
    notebook: nbformat.NotebookNode, lesson: LessonExercises
) -> list[tuple[str | None, str]]:
    """What is executed: ``(exercise, source)`` of each answer; None for other cells.

    Those are the imports, and what the student added below the heading "Exercises".
    """
    answers = find_answers(notebook, lesson)
    names = {index: name for name, indices in answers.items() for index in indices}
    checks = {exercise.check.strip() for exercise in lesson.exercises}
    selected: list[tuple[str | None, str]] = []
    below = False
    for index, cell in enumerate(notebook.cells):
        below |= cell.cell_type == "markdown" and "## Exercises" in cell.source
        if cell.cell_type != "code":
            continue
        tags = cell.metadata.get("tags")
        is_imports = (isinstance(tags, list) and "imports" in tags) or (
            "from course_utils.exercises" in cell.source and not is_check(cell)
        )
        own = (
            cell.get("id") not in lesson.cell_ids
            and cell.source.strip() not in checks
            and not is_check(cell)
        )
        if index in names:
            selected.append((names[index], cell.source))
        elif is_imports or (below and own):
            selected.append((None, cell.source))
    return selected


def check_notebook(
    notebook: nbformat.NotebookNode,
    lesson: LessonExercises,
    limits: Limits = Limits(),
    on_checked: Callable[[dict[str, str]], None] = lambda messages: None,
) -> list[Result]:
    """Execute answers and checks in an empty folder; one result for each exercise.

    ``on_checked`` gets the messages of all exercises that are checked so far, or have no answer.

    Raises:
        CourseError: the lesson's imports do not run on this machine.
    """
    fresh = FRESH_CHECKS.format(checks=_find_check_imports(lesson.imports))
    checks = {exercise.name: exercise.check for exercise in lesson.exercises}
    cells = _select_cells(notebook, lesson)
    names = [name for name, _ in cells]
    messages = {name: MISSING for name in checks if name not in names}
    messages |= {name: TWICE for name in checks if names.count(name) > 1}
    own = ""  # what went wrong in the last cell that the student added
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        LimitedKernel(
            lesson.imports, folder, time_s=limits.time_s, memory_gib=limits.memory_gib
        ) as kernel,
    ):
        for name, source in cells:
            on_checked(messages)
            if name in messages:
                continue
            problem = kernel.execute(source)
            if name is None:
                own = problem
                continue
            wrong = kernel.execute(f"{fresh}\n{checks[name]}")
            if wrong:  # a trial below the function may fail, and the function be right
                wrong = problem or wrong
            after = f" (Above, a cell of yours: {own})" if wrong and own else ""
            messages[name] = wrong + after
    on_checked(messages)
    return [Result.make(exercise, messages[exercise.name]) for exercise in lesson.exercises]
