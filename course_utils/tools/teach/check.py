"""Check the exercises of a student's notebook, each within limits, whatever the notebook holds.

Executed is only what belongs to an exercise: the imports cell, the answers, cells that the student
added below the heading "Exercises", and the checks, which come from the course and not from the
student. So a lesson of minutes is checked in seconds, and nothing stops the next exercise.
"""

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import nbformat

from course_utils.errors import CourseError
from course_utils.tools.teach.exercises import LessonExercises
from course_utils.tools.teach.kernel import LimitedKernel

__all__ = ["Limits", "Result", "check_notebook", "identify_lesson", "read_submission"]

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


def read_submission(path: Path) -> nbformat.NotebookNode:
    """A student's notebook.

    Raises:
        CourseError: it cannot be read as a notebook.
    """
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        return notebook
    except FileNotFoundError:
        raise CourseError(f"no notebook {path}: give the path of an .ipynb file") from None
    except OSError as error:
        raise CourseError(f"{path} cannot be read: {error.strerror}") from None
    except Exception as error:  # nbformat meets anything at all in a file that it did not write
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:80]
        raise CourseError(
            f"{path} is not a notebook ({reason}): save it again in Jupyter"
        ) from None


def identify_lesson(path: Path, lessons: list[LessonExercises]) -> LessonExercises:
    """The lesson whose exercises the notebook ``path`` holds, by its file's name.

    Raises:
        CourseError: no lesson with exercises is called so.
    """
    for lesson in lessons:
        if lesson.name == path.stem:
            return lesson
    example = f"{lessons[0].name}.ipynb"
    raise CourseError(f"{path.name}: no exercises are known by this name: call it like {example}")


def _select_cells(notebook: nbformat.NotebookNode, lesson: LessonExercises) -> list[tuple]:
    """``(grade_id or None, source)`` of answers, and of imports and cells the student added."""
    selected = []
    below = False
    for cell in notebook.cells:
        below |= cell.cell_type == "markdown" and "## Exercises" in cell.source
        if cell.cell_type != "code":
            continue
        about = cell.metadata.get("nbgrader", {})
        if about.get("solution"):
            selected.append((about.get("grade_id"), cell.source))
        elif "imports" in cell.metadata.get("tags", []) or (
            below and not about.get("grade") and cell.get("id") not in lesson.cell_ids
        ):
            selected.append((None, cell.source))
    return selected


def check_notebook(
    notebook: nbformat.NotebookNode, lesson: LessonExercises, limits: Limits = Limits()
) -> list[Result]:
    """Execute answers and checks in an empty folder; one result for each exercise.

    Raises:
        CourseError: the lesson's imports do not run on this machine.
    """
    problems: dict[str, str] = {exercise.name: MISSING for exercise in lesson.exercises}
    checks = {exercise.name: exercise.check for exercise in lesson.exercises}
    imports = re.search(r"^from course_utils\.exercises import .+$", lesson.imports, re.MULTILINE)
    if imports is None:
        raise CourseError("the lesson does not import its checks from course_utils.exercises")
    fresh = FRESH_CHECKS.format(checks=imports[0])
    cells = _select_cells(notebook, lesson)
    names = [name for name, _ in cells]
    own = ""  # what went wrong in the last cell that the student added
    with (
        tempfile.TemporaryDirectory() as folder,
        LimitedKernel(
            lesson.imports, folder, time_s=limits.time_s, memory_gib=limits.memory_gib
        ) as kernel,
    ):
        for name, source in cells:
            if names.count(name) > 1 and name in problems:
                problems[name] = TWICE
                continue
            problem = kernel.execute(source)
            if name not in problems:
                own = problem
                continue
            wrong = kernel.execute(f"{fresh}\n{checks[name]}")
            if wrong:  # a trial below the function may fail, and the function be right
                wrong = problem or wrong
            after = f" (Above, a cell of yours: {own})" if wrong and own else ""
            problems[name] = wrong + after
    return [
        Result(x.name, 0 if problems[x.name] else x.points, x.points, problems[x.name])
        for x in lesson.exercises
    ]
