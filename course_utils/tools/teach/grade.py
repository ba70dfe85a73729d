"""``course grade``: check a folder of submissions; one bad notebook never stops the others."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_utils.errors import CourseError
from course_utils.files import write_atomically
from course_utils.tools.run.lessons import find_lessons
from course_utils.tools.teach.check import (
    Limits,
    Result,
    check_notebook,
    identify_lesson,
    read_submission,
)
from course_utils.tools.teach.exercises import LessonExercises

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
    """All notebooks of ``<folder>/<student>/…/<name>.ipynb``, as nbgrader collects them.

    Raises:
        CourseError: there are none; one belongs to no student.
    """
    found = sorted(path for path in folder.rglob("*.ipynb") if path.is_file())
    found = [p for p in found if not any(x[0] == "." for x in p.relative_to(folder).parts)]
    if not found:
        raise CourseError(f"no submissions in {folder}: expected <student>/<lesson>.ipynb")
    if loose := [path.name for path in found if path.parent == folder]:
        raise CourseError(f"{loose[0]} lies in {folder} itself: put it into its student's folder")
    return found


def _grade(path: Path, student: str, lessons: list[LessonExercises], limits: Limits) -> Graded:
    lesson = None
    try:
        lesson = identify_lesson(path, lessons)
        results = check_notebook(read_submission(path), lesson, limits)
        return Graded(student, lesson.name, tuple(results))
    except Exception as error:  # whatever one student hands in, the others are graded
        problem = (
            str(error) if isinstance(error, CourseError) else f"{type(error).__name__}: {error}"
        )
        lost = [Result(x.name, 0, x.points, problem) for x in lesson.exercises] if lesson else []
        return Graded(student, path.stem, tuple(lost), problem)


def grade_submissions(
    folder: Path,
    lessons: list[LessonExercises],
    limits: Limits,
    on_graded: Callable[[list[Graded]], None] = lambda graded: None,
) -> list[Graded]:
    """Check every submission in ``folder``, one after the other.

    Notebooks of lessons without exercises are passed over; of two notebooks of one lesson and
    student none is graded. ``on_graded`` gets all that is graded so far.
    """
    without = {lesson.name for lesson in find_lessons()} - {lesson.name for lesson in lessons}
    paths = [path for path in find_submissions(folder) if path.stem not in without]
    owners = [(path.relative_to(folder).parts[0], path.stem) for path in paths]
    graded: list[Graded] = []
    for path, (student, name) in zip(paths, owners, strict=True):
        if owners.count((student, name)) > 1:
            problem = f"{path}: there are several {name}.ipynb of {student}: leave one"
            graded.append(Graded(student, name, (), problem))
        else:
            graded.append(_grade(path, student, lessons, limits))
        on_graded(graded)
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
    write_atomically(path, text.getvalue())
