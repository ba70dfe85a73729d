"""What was handed in: the notebooks of each student, and what cannot be graded."""

import os
from dataclasses import dataclass
from pathlib import Path

from course_tools.console import make_printable
from course_utils.errors import CourseError

__all__ = ["Submission", "find_submissions"]

ENDINGS = (".ipynb", ".ipynb.txt", ".ipynb.json")  # browsers add the last part
LINK = "it is a link: hand in the file itself"
NO_FILE = "it is no file: hand in a notebook"


@dataclass(frozen=True)
class Submission:
    """A file that a student handed in; ``problem`` says why it is not even read."""

    folder: Path  # all submissions
    path: Path
    problem: str = ""
    unread: bool = False  # it could not be read here, which is not the student's fault

    @property
    def student(self) -> str:
        """The name of the student's folder, as the disk has it."""
        return self.path.relative_to(self.folder).parts[0]

    @property
    def shown_student(self) -> str:
        """The same, with bytes that are not UTF-8 as ``\\xe9``: so two names stay different."""
        return make_printable(os.fsencode(self.student).decode("utf-8", "backslashreplace"))

    @property
    def shown_name(self) -> str:
        """The path below the student's folder; empty for the folder itself."""
        name = self.path.relative_to(self.folder / self.student).as_posix()
        return "" if name == "." else make_printable(name)


def _is_notebook(name: str) -> bool:
    return name.lower().endswith(ENDINGS)


def _list_student(folder: Path, student: Path) -> list[Submission]:
    """Everything called like a notebook; if nothing is, what else there is."""
    if student.is_symlink():
        return [Submission(folder, student, LINK)]
    found: list[Submission] = []
    others: list[str] = []

    def note(error: OSError) -> None:
        problem = f"{error.strerror}: grade it again"
        found.append(Submission(folder, Path(error.filename), problem, unread=True))

    for place, folders, files in os.walk(student, onerror=note):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(name for name in [*folders, *files] if not name.startswith(".")):
            path = Path(place, name)
            if path.is_symlink():
                found.append(Submission(folder, path, LINK))
            elif path.is_dir():
                continue
            elif not _is_notebook(name):
                others.append(name)
            else:
                found.append(Submission(folder, path, "" if path.is_file() else NO_FILE))
    if not found:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        there = f"only {', '.join(others[:3])}{more}" if others else "nothing"
        found.append(Submission(folder, student, f"no notebook, {there} is there"))
    return found


def find_submissions(folder: Path) -> list[list[Submission]]:
    """What each student handed in, as ``<folder>/<student>/…/<name>.ipynb``.

    Links are not followed: they could lead to a solution. Hidden files and folders are passed over.

    Raises:
        CourseError: there are no students; a notebook belongs to no student.
    """
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    entries = [path for path in entries if not path.name.startswith(".")]
    if loose := [path for path in entries if _is_notebook(path.name) and not path.is_dir()]:
        raise CourseError(
            f"{make_printable(loose[0].name)} lies in {folder} itself: put it into its student's "
            "folder"
        )
    students = [path for path in entries if path.is_dir()]
    if not students:
        raise CourseError(f"no submissions in {folder}: expected <student>/<lesson>.ipynb")
    return [_list_student(folder, student) for student in students]
