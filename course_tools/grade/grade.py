"""``course grade``: check a folder of submissions; one bad notebook never stops the others."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import nbformat

from course_tools.console import make_printable
from course_tools.grade.answers import identify_lesson
from course_tools.grade.check import Limits, Result
from course_tools.grade.exercises import LessonExercises
from course_tools.grade.limits import MachineFailure
from course_tools.grade.pristine import WATCHED, digest_files, find_changes
from course_tools.grade.reading import read_submission
from course_tools.grade.submissions import Submission, find_submissions
from course_tools.run.lessons import find_lessons
from course_utils.errors import CourseError
from course_utils.files import ROOT

__all__ = ["Graded", "grade_submissions"]

NOTHING = "no notebook of a lesson with exercises"
Check = Callable[[nbformat.NotebookNode, LessonExercises, Limits], list[Result]]


@dataclass(frozen=True)
class Graded:
    """What became of one lesson of one student.

    ``problem`` is set where nothing could be graded, and with ``ungraded`` where that is the
    machine's fault and not the student's, also of one exercise alone; ``alarm`` where the course
    was changed meanwhile; ``note`` where there was a choice.
    """

    student: str
    folder: str  # the student's, as the disk has it
    lesson: str
    file: str
    results: tuple[Result, ...]
    problem: str = ""
    alarm: str = ""
    note: str = ""
    ungraded: bool = False

    @property
    def points(self) -> int:
        return sum(result.points for result in self.results)

    @property
    def out_of(self) -> int:
        return sum(result.out_of for result in self.results)


@dataclass(frozen=True)
class _Candidate:
    """A notebook of a student, and what could be found out without executing it."""

    submission: Submission
    lesson: LessonExercises | None
    sources: tuple[str, ...] = ()  # of all its code: copies of a notebook have the same
    problem: str = ""
    ungraded: bool = False  # ``problem`` is the machine's

    def make_graded(
        self, results: Sequence[Result] = (), problem: str = "", ungraded: bool = False
    ) -> Graded:
        lesson = self.lesson
        if ungraded:
            problem = f"not graded: {problem}"
        if problem and lesson:
            make = Result.make_ungraded if ungraded else Result.make
            results = [make(exercise, problem) for exercise in lesson.exercises]
        return Graded(
            self.submission.shown_student,
            self.submission.student,
            lesson.name if lesson else "",
            self.submission.shown_name,
            tuple(results),
            problem,
            ungraded=ungraded or not all(result.graded for result in results),
        )


def _describe(error: Exception) -> str:
    text = str(error) if isinstance(error, CourseError) else f"{type(error).__name__}: {error}"
    return make_printable(text)


def _read_candidate(submission: Submission, lessons: Sequence[LessonExercises]) -> _Candidate:
    if not submission.shown_name:  # the student's folder: there is no notebook in it
        return _Candidate(submission, None, problem=submission.problem, ungraded=submission.unread)
    notebook = None
    problem = submission.problem
    ungraded = submission.unread
    try:
        notebook = None if problem else read_submission(submission.path)
    except Exception as error:  # whatever one student hands in, the others are graded
        problem = _describe(error).replace(f"{submission.folder}{os.sep}", "")
        ungraded = isinstance(error, MachineFailure)
    try:
        lesson = identify_lesson(submission.path, notebook, lessons)
    except Exception as error:
        problem = problem or _describe(error)
        return _Candidate(submission, None, problem=problem, ungraded=ungraded)
    cells = notebook.cells if notebook else []
    sources = tuple(cell.source for cell in cells if cell.cell_type == "code")
    return _Candidate(submission, lesson, sources, problem, ungraded)


def _grade(candidate: _Candidate, limits: Limits, check: Check, root: Path) -> Graded:
    if candidate.problem or candidate.lesson is None:
        return candidate.make_graded(problem=candidate.problem, ungraded=candidate.ungraded)
    before = digest_files(root, WATCHED)
    try:
        notebook = read_submission(candidate.submission.path)
        graded = candidate.make_graded(check(notebook, candidate.lesson, limits))
    except MachineFailure as error:
        graded = candidate.make_graded(problem=_describe(error), ungraded=True)
    except Exception as error:  # whatever one student hands in, the others are graded
        graded = candidate.make_graded(problem=_describe(error))
    if changed := find_changes(before, digest_files(root, WATCHED)):
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        alarm = (
            f"while it was graded, {', '.join(changed[:3])}{more} changed in {root}: unless that "
            "was you, an answer did it, so read the notebook and run git status there"
        )
        return replace(graded, alarm=make_printable(alarm))
    return graded


def _choose(graded: Sequence[Graded], copies: int) -> Graded:
    """The best of several notebooks of one lesson, with a note that there were others.

    So an untouched original beside a solved copy costs nothing. The student could have run the
    checks on each of them.
    """
    best = max(graded, key=lambda entry: (not entry.problem, entry.points))
    ungraded = any(entry.ungraded for entry in graded) and best.points < best.out_of
    best = replace(best, ungraded=ungraded)  # the other one may be better
    count = len(graded) + copies
    if count == 1:
        return best
    note = f"of {count} notebooks of this lesson the best one counts: {best.file}"
    alarms = "; ".join(entry.alarm for entry in graded if entry.alarm)
    return replace(best, note=note, alarm=alarms)


def _group(candidates: Sequence[_Candidate]) -> list[list[_Candidate]]:
    """The candidates of each lesson together; those of no lesson each for itself."""
    groups: dict[str, list[_Candidate]] = {}
    for candidate in candidates:
        own = str(candidate.submission.path)
        groups.setdefault(candidate.lesson.name if candidate.lesson else own, []).append(candidate)
    return list(groups.values())


def grade_submissions(
    folder: Path,
    lessons: list[LessonExercises],
    limits: Limits,
    check: Check,
    on_graded: Callable[[list[Graded]], None] = lambda graded: None,
    root: Path = ROOT,
) -> list[Graded]:
    """Check every submission in ``folder``, one after the other.

    Notebooks of lessons without exercises are passed over. Of several notebooks of one lesson and
    student the best one counts. ``on_graded`` gets all that is graded so far.

    Args:
        check: of one notebook: `check_notebook`, or a `Supervisor`.
        root: the course, which no notebook should change.
    """
    without = {lesson.name for lesson in find_lessons()} - {lesson.name for lesson in lessons}
    graded: list[Graded] = []
    for submissions in find_submissions(folder):
        candidates = [_read_candidate(submission, lessons) for submission in submissions]
        needed = [
            candidate
            for candidate in candidates
            if candidate.lesson or not candidate.submission.path.stem.startswith(tuple(without))
        ]
        for group in _group(needed) or [[replace(candidates[0], problem=NOTHING)]]:
            distinct = list({(x.sources, x.problem): x for x in reversed(group)}.values())[::-1]
            found = [_grade(candidate, limits, check, root) for candidate in distinct]
            graded.append(_choose(found, len(group) - len(distinct)))
            on_graded(graded)
    return graded
