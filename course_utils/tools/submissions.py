"""``course grade``: check a folder of submissions; one bad notebook never stops the others."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_utils.errors import CourseError
from course_utils.files import write_atomically
from course_utils.tools.exercises import LessonExercises
from course_utils.tools.grading import (
    Limits,
    Result,
    check_notebook,
    identify_lesson,
    read_submission,
)

__all__ = ["Graded", "find_submissions", "grade_submissions", "write_grades"]

HEADER = ("student", "lesson", "exercise", "points", "out_of", "what_happened")


@dataclass(frozen=True)
class Graded:
    """What became of one notebook; ``problem`` is set where it could not be graded at all."""

    student: str
    lesson: str
    results: tuple[Result, ...]
    problem: str = ""

    @property
    def points(self) -> int:
        return sum(result.points for result in self.results)

    @property
    def out_of(self) -> int:
        return sum(result.out_of for result in self.results)


def find_submissions(folder: Path) -> list[Path]:
    """All notebooks of ``<folder>/<student>/…/<lesson>.ipynb``, as nbgrader collects them.

    Raises:
        CourseError: there are none.
    """
    found = sorted(folder.glob("*/**/*.ipynb"))
    found = [path for path in found if ".ipynb_checkpoints" not in path.parts]
    if not found:
        raise CourseError(f"no submissions in {folder}: expected <student>/<lesson>.ipynb")
    return found


def _grade(path: Path, student: str, lessons: list[LessonExercises], limits: Limits) -> Graded:
    lesson = None
    try:
        lesson = identify_lesson(path, lessons)
        results = check_notebook(read_submission(path), lesson, limits)
        return Graded(student, lesson.name, tuple(results))
    except CourseError as error:
        lost = [Result(x.name, 0, x.points, str(error)) for x in lesson.exercises] if lesson else []
        return Graded(student, path.stem, tuple(lost), str(error))


def grade_submissions(
    folder: Path,
    lessons: list[LessonExercises],
    limits: Limits,
    on_graded: Callable[[Graded], None] = lambda graded: None,
) -> list[Graded]:
    """Check every submission in ``folder``, one after the other."""
    graded = []
    for path in find_submissions(folder):
        graded.append(_grade(path, path.relative_to(folder).parts[0], lessons, limits))
        on_graded(graded[-1])
    return graded


def write_grades(graded: Sequence[Graded], path: Path) -> None:
    """One row of CSV for each exercise of each submission."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(HEADER)
    for entry in graded:
        if not entry.results:
            rows.writerow((entry.student, entry.lesson, "", 0, "", entry.problem))
        for result in entry.results:
            what = result.message or "passed"
            values = (result.exercise, result.points, result.out_of, what)
            rows.writerow((entry.student, entry.lesson, *values))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.getvalue())
