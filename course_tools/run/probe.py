"""Can what a command will write be written? To be asked before anything runs."""

from pathlib import Path

from course_utils.errors import CourseError
from course_utils.files import probe_folder

__all__ = ["check_writable"]


def check_writable(folder: Path, fix: str) -> None:
    """Make ``folder``, if it is missing, and a file in it that goes at once.

    Args:
        fix: what to do where that fails.

    Raises:
        CourseError: it fails.
    """
    try:
        probe_folder(folder)
    except OSError as error:
        raise CourseError(f"cannot write to {folder} ({error.strerror}): {fix}") from None
