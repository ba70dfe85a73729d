"""The exercises of a lesson: their names, points and checks, and the cells a student answers in."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from course_tools.console import make_printable
from course_tools.run.lessons import Lesson, find_lessons
from course_utils.errors import CourseError
from course_utils.files import ROOT
from course_utils.results import validate

__all__ = [
    "MANIFEST",
    "Exercise",
    "LessonExercises",
    "find_exercises",
    "find_notebook",
    "format_manifest",
]

MANIFEST = "exercises.json"  # in a released course, whose notebooks belong to the student


@dataclass(frozen=True)
class Exercise:
    """One exercise: ``name`` is the ``grade_id`` of the cell that holds the answer."""

    name: str
    points: int
    check: str  # source of the check cell


@dataclass(frozen=True)
class LessonExercises:
    """The exercises of one lesson; ``cell_ids`` tell a student's own cells from the lesson's."""

    name: str
    imports: str  # source of the cell that all answers rely on
    exercises: tuple[Exercise, ...]
    cell_ids: tuple[str, ...]

    @property
    def points(self) -> int:
        return sum(exercise.points for exercise in self.exercises)


def _read(lesson: Lesson) -> LessonExercises:
    try:
        return _read_cells(lesson)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CourseError(
            f"{lesson.path}: its exercises are damaged ({error}): restore it from git"
        ) from None


def _read_cells(lesson: Lesson) -> LessonExercises:
    cells = lesson.read().cells
    graded = [cell for cell in cells if "nbgrader" in cell.metadata]
    answers = [cell.metadata.nbgrader for cell in graded if cell.metadata.nbgrader.solution]
    checks = [cell for cell in graded if cell.metadata.nbgrader.grade]
    imports = [cell.source for cell in cells if "imports" in cell.metadata.get("tags", [])]
    exercises = tuple(
        Exercise(answer.grade_id, check.metadata.nbgrader.points, check.source)
        for answer, check in zip(answers, checks, strict=True)
    )
    ids = tuple(cell.id for cell in cells)
    return LessonExercises(lesson.name, "\n".join(imports), exercises, ids)


def find_exercises(root: Path = ROOT) -> list[LessonExercises]:
    """The exercises of all lessons that have any, in the order of the lessons.

    In a released course they are read from its manifest: there the notebooks are the student's,
    who may have deleted a check cell.

    Raises:
        CourseError: the manifest is damaged; there are no lessons.
    """
    manifest = root / MANIFEST
    if not manifest.exists():
        found = [_read(lesson) for lesson in find_lessons(root / "notebooks")]
        return [lesson for lesson in found if lesson.exercises]
    try:
        entries = json.loads(manifest.read_text(encoding="utf-8"))["lessons"]
        return [validate(LessonExercises, entry) for entry in entries]
    except (ValueError, KeyError, TypeError) as error:
        raise CourseError(
            f"{manifest} is damaged ({error}): take it from the release again"
        ) from None


def find_notebook(word: str, lessons: Sequence[LessonExercises], root: Path = ROOT) -> Path:
    """The notebook of the lesson that is named by number (``01``), name (``baseline``) or both.

    No other lesson is read: a student's may be damaged.

    Raises:
        CourseError: no lesson with exercises is called so.
    """
    for lesson in lessons:
        if word and word.zfill(2) in (lesson.name, *lesson.name.split("_", 1)):
            return root / "notebooks" / f"{lesson.name}.ipynb"
    names = ", ".join(lesson.name for lesson in lessons)
    raise CourseError(f"no lesson {make_printable(word)!r} with exercises: choose from {names}")


def format_manifest(lessons: Sequence[LessonExercises]) -> str:
    """What `find_exercises` reads in a released course, as JSON."""
    return json.dumps({"lessons": [asdict(lesson) for lesson in lessons]}, indent=1) + "\n"
