"""Check the exercises of a student's notebook, each within limits, whatever the notebook holds.

Executed is only what belongs to an exercise: the imports cell, the answers, cells that the student
added below the heading "Exercises", and the checks, which come from the course and not from the
student. So a lesson of minutes is checked in seconds, and nothing stops the next exercise.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import nbformat

from course_tools.grade.answers import find_answers, find_stub, is_check, read_id
from course_tools.grade.exercises import Exercise, LessonExercises
from course_tools.grade.kernel import LimitedKernel

__all__ = ["NOT_WRITTEN", "Limits", "Result", "check_notebook"]

MISSING = "The cell of the answer is gone: take it from the released notebook again."
NOT_WRITTEN = "not written yet."
TWICE = "There are two cells of this answer: delete one of them."
CHECKING = ("course_utils.checking", "lesson_code")  # imported anew for each check
CHECK = """
import sys
for name in [name for name in sys.modules if name.startswith({packages})]:
    del sys.modules[name]  # whatever an answer has done to them
from course_utils.checking.state import known_state
with known_state({folder!r}):  # also while the checks are imported
    exec({check!r}, globals())
"""


@dataclass(frozen=True)
class Limits:
    """What one cell may take."""

    time_s: float = 60
    memory_gib: float = 6


@dataclass(frozen=True)
class Result:
    """What became of one exercise; ``message`` is empty where it passed.

    Where the machine failed, ``graded`` is false, and there are no points, not even zero.
    """

    exercise: str
    points: int
    out_of: int
    message: str
    graded: bool = True

    @classmethod
    def make(cls, exercise: Exercise, message: str) -> "Result":
        points = 0 if message else exercise.points
        return cls(exercise.name, points, exercise.points, message)

    @classmethod
    def make_ungraded(cls, exercise: Exercise, reason: str) -> "Result":
        return cls(exercise.name, 0, exercise.points, reason, graded=False)


def _holds_imports(cell: nbformat.NotebookNode, lesson: LessonExercises) -> bool:
    """Whether a cell is that of the imports: by its tag, or by most of the lesson's lines."""
    tags = cell.metadata.get("tags")
    wanted = set(lesson.imports.splitlines()) - {""}
    found = wanted & set(cell.source.splitlines())
    return (isinstance(tags, list) and "imports" in tags) or 2 * len(found) > len(wanted)


def _find_checked(cell: nbformat.NotebookNode, lesson: LessonExercises) -> str:
    """The exercise whose check a cell holds; empty if it is another cell."""
    for exercise in lesson.exercises:
        if cell.source.strip() == exercise.check.strip() or (
            is_check(cell) and read_id(cell) == f"check_{exercise.name}"
        ):
            return exercise.name
    return ""


@dataclass(frozen=True)
class _Step:
    """A cell that is executed, or the place of an exercise's check."""

    source: str = ""
    answers: str = ""  # the exercise that it answers
    checks: str = ""  # the exercise that is checked here


def _select_cells(
    notebook: nbformat.NotebookNode, lesson: LessonExercises, answers: dict[str, int]
) -> list[_Step]:
    """What is executed, in the notebook's order: imports, answers, cells of one's own, checks.

    One's own are those that the student added below the heading "Exercises". An exercise is
    checked where its check stands, below its answer, and right after the answer without one. So
    a cell between the two may import the answer from a file.

    Args:
        answers: for each exercise the number of the cell with its answer.
    """
    names = {index: name for name, index in answers.items()}
    places: dict[str, int] = {}
    for index, cell in enumerate(notebook.cells):
        name = _find_checked(cell, lesson) if cell.cell_type == "code" else ""
        if name in answers and index > answers[name]:
            places.setdefault(name, index)
    steps: list[_Step] = []
    below = False
    for index, cell in enumerate(notebook.cells):
        below |= cell.cell_type == "markdown" and "## Exercises" in cell.source
        if cell.cell_type != "code":
            continue
        is_a_check = bool(_find_checked(cell, lesson)) or is_check(cell)
        own = below and not is_a_check and cell.get("id") not in lesson.cell_ids
        if index in names:
            name = names[index]
            steps.append(_Step(cell.source, answers=name))
            if name not in places:
                steps.append(_Step(checks=name))
        elif not is_a_check and (own or _holds_imports(cell, lesson)):
            steps.append(_Step(cell.source))
        steps += [_Step(checks=name) for name, place in places.items() if place == index]
    return steps


def _judge_unexecuted(
    notebook: nbformat.NotebookNode, lesson: LessonExercises
) -> tuple[dict[str, int], dict[str, str]]:
    """The cell of each answer that has to be executed, and the messages of all others."""
    found = find_answers(notebook, lesson)
    answers: dict[str, int] = {}
    messages: dict[str, str] = {}
    for exercise in lesson.exercises:
        cells = found.get(exercise.name, [])
        if not cells:
            messages[exercise.name] = MISSING
        elif len(cells) > 1:
            messages[exercise.name] = TWICE
        elif stub := find_stub(notebook.cells[cells[0]].source, exercise.name):
            messages[exercise.name] = f"{stub} is {NOT_WRITTEN}"
        else:
            answers[exercise.name] = cells[0]
    return answers, messages


def check_notebook(
    notebook: nbformat.NotebookNode,
    lesson: LessonExercises,
    limits: Limits = Limits(),
    on_checked: Callable[[dict[str, str]], None] = lambda messages: None,
) -> list[Result]:
    """Execute answers and checks in an empty folder; one result for each exercise.

    Where no answer is written, no kernel is started. ``on_checked`` gets the messages of all
    exercises that are checked so far, or have no answer.

    Raises:
        MachineFailure: no kernel starts, the lesson's imports do not run, or the disk is full.
    """
    answers, messages = _judge_unexecuted(notebook, lesson)
    on_checked(messages)
    if answers:
        checks = {exercise.name: exercise.check for exercise in lesson.exercises}
        steps = _select_cells(notebook, lesson, answers)
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
            LimitedKernel(
                lesson.imports, folder, time_s=limits.time_s, memory_gib=limits.memory_gib
            ) as kernel,
        ):
            for name, message in _execute(kernel, steps, checks, folder):
                messages[name] = message
                on_checked(messages)
    return [Result.make(exercise, messages[exercise.name]) for exercise in lesson.exercises]


def _execute(
    kernel: LimitedKernel, steps: Sequence[_Step], checks: dict[str, str], folder: str
) -> Iterator[tuple[str, str]]:
    """Execute the steps; yields ``(exercise, message)``, the message empty where it passed."""
    problems: dict[str, str] = {}  # of the cells with answers
    own = ""  # what went wrong in the last cell that the student added
    for step in steps:
        if step.checks:
            wrong = kernel.execute(
                CHECK.format(packages=CHECKING, check=checks[step.checks], folder=folder)
            )
            if wrong:  # a trial below the function may fail, and the function be right
                wrong = problems[step.checks] or wrong
            yield (
                step.checks,
                wrong + (f" (Above, a cell of yours: {own})" if wrong and own else ""),
            )
        elif step.answers:
            problems[step.answers] = kernel.execute(step.source)
        else:
            own = kernel.execute(step.source)
