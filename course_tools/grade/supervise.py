"""Check one notebook in a process of its own, so that nothing in it reaches the grading.

``course grade`` starts this module from a fresh copy of the package, in the sandbox where there is
one. The process writes what it found after each exercise, so an answer that ends it costs only
what comes after. It is given a time, and whatever it leaves running is ended.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

import nbformat

from course_tools.grade.check import Limits, Result, check_notebook
from course_tools.grade.exercises import LessonExercises
from course_tools.grade.isolate import isolated_process, read_messages
from course_tools.grade.kernel import STARTING_S
from course_tools.grade.limits import MachineFailure
from course_tools.grade.pristine import digest_files, find_changes, read_package, write_package
from course_tools.run.lessons import NOTEBOOKS
from course_utils.errors import CourseError
from course_utils.files import ROOT, write_atomically
from course_utils.results import validate

__all__ = ["Supervisor"]

WORK_BYTES = 2**24  # beside the package: what a kernel and the checks write
FOUND, FAILED = "found.json", "failed.json"  # what the process writes
NOT_REACHED = (
    "not graded: an answer, or the machine, ended the process that checks this notebook: read it, "
    "and grade it again"
)
TOO_LONG = "Not checked: the notebook took longer than {:g} s altogether."


@dataclass(frozen=True)
class Supervisor:
    """Checks notebooks, each in a process of its own, with the package as it is now.

    It has the arguments and the results of `check_notebook`.
    """

    sandbox: bool
    package: dict[str, bytes] = field(default_factory=lambda: read_package(ROOT))

    def __call__(
        self, notebook: nbformat.NotebookNode, lesson: LessonExercises, limits: Limits
    ) -> list[Result]:
        asked = {"lesson": asdict(lesson), "limits": asdict(limits), "notebook": notebook}
        try:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
                return self._check(Path(name), json.dumps(asked), lesson, limits)
        except (OSError, MemoryError) as error:  # no room for the package, no process
            raise MachineFailure(
                f"{error or type(error).__name__}: make room for temporary files, or set TMPDIR"
            ) from error

    def require_room(self) -> None:
        """Refuse to begin where the package does not fit into the folder of temporary files.

        Raises:
            MachineFailure: it does not fit.
        """
        needed = sum(map(len, self.package.values())) + WORK_BYTES
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise MachineFailure(
                f"{folder} has {free >> 20} MiB left, and checking a notebook takes "
                f"{needed >> 20}: make room, or set TMPDIR to another folder"
            )

    def _check(
        self, folder: Path, asked: str, lesson: LessonExercises, limits: Limits
    ) -> list[Result]:
        course, work = folder / "course", folder / "work"
        work.mkdir()
        write_package(self.package | {"asked.json": asked.encode()}, course)
        before = digest_files(course, ["."])
        reason = _run(course, work, _add_up(limits, lesson), self.sandbox)
        if changed := find_changes(before, digest_files(course, ["."])):
            raise CourseError(
                f"an answer changed the course's own files ({', '.join(changed[:3])}): no "
                "points, read the notebook"
            )
        return _read_results(work, lesson, reason)


def _add_up(limits: Limits, lesson: LessonExercises) -> float:
    """The seconds that one notebook gets: its answers and checks their time, and two starts."""
    return 2 * STARTING_S + 2 * limits.time_s * len(lesson.exercises)


def _run(course: Path, work: Path, time_s: float, sandbox: bool) -> str:
    """Run this module in ``course``; what to say of exercises that it did not come to."""
    module = "course_tools.grade.supervise"
    arguments = [str(course / "asked.json"), str(work)]
    solutions = [str(NOTEBOOKS)]
    with isolated_process(
        module, arguments, course, work, sandbox=sandbox, hidden=solutions
    ) as process:
        try:
            process.wait(time_s)
        except subprocess.TimeoutExpired:
            return TOO_LONG.format(time_s)
    return NOT_REACHED


def _read_results(work: Path, lesson: LessonExercises, reason: str) -> list[Result]:
    if problem := read_messages(work / FAILED).get("problem"):
        raise MachineFailure(problem)
    messages = read_messages(work / FOUND)
    results = []
    for exercise in lesson.exercises:
        if exercise.name in messages or reason != NOT_REACHED:
            results.append(Result.make(exercise, messages.get(exercise.name, reason)))
        else:
            results.append(Result.make_ungraded(exercise, reason))
    return results


def main() -> None:
    """In the process of its own: check the notebook in the file, write what is found."""
    asked, work = (Path(argument).resolve() for argument in sys.argv[1:])
    entry = json.loads(asked.read_text(encoding="utf-8"))

    def keep(messages: dict[str, str]) -> None:
        write_atomically(work / FOUND, json.dumps(messages))

    try:
        notebook = nbformat.from_dict(entry["notebook"])
        check_notebook(
            notebook, validate(LessonExercises, entry["lesson"]), Limits(**entry["limits"]), keep
        )
    except Exception as error:  # what this process prints is not shown
        known = isinstance(error, CourseError)
        problem = str(error) if known else f"{type(error).__name__}: {error}"
        write_atomically(work / FAILED, json.dumps({"problem": problem}))


if __name__ == "__main__":
    main()
