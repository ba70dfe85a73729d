"""A build folder belongs to one process at a time, and can be written before anything runs."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from course_utils.errors import CourseError
from course_utils.files import write_atomically

__all__ = ["claimed"]

MIN_FREE_BYTES = 200 * 2**20


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold the build folder for this process; refuse when another one holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / ".probe", "")
        (folder / ".probe").unlink()
    except OSError as error:
        raise CourseError(
            f"cannot write to {folder} ({error.strerror}): choose another folder with --build"
        ) from None
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        raise CourseError(
            f"{free // 2**20} MiB are free on the disk of {folder}: free "
            f"{MIN_FREE_BYTES // 2**20} MiB, or choose another folder with --build"
        )
    try:
        with filelock.FileLock(folder / ".lock", timeout=0):
            yield
    except filelock.Timeout:
        raise CourseError(
            f"another course run is using {folder}: wait for it, or choose another folder "
            "with --build"
        ) from None
