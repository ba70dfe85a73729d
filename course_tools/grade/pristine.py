"""The course's package as it was when the grading began: every notebook gets a fresh copy.

So an answer that writes into the package, its caches included, changes no mark but its own. The
copy has no notebooks beside it, and no planted answers, because they hold the solutions.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from course_tools.lesson_folder import LESSON_CODE, is_for_teachers

__all__ = ["PACKAGE", "WATCHED", "digest_files", "find_changes", "read_package", "write_package"]

PACKAGE = (
    "course_utils",
    "course_tools",
    LESSON_CODE,
    "data/photos",
    "data/results",
    "data/weights",
)
WATCHED = (*PACKAGE, "exercises.json", "notebooks")  # no notebook has a reason to change these
CACHES = {"__pycache__", ".ipynb_checkpoints"}


def _list_files(root: Path, names: Sequence[str]) -> Iterator[tuple[str, Path]]:
    for name in names:
        for path in (root / name, *sorted((root / name).rglob("*"))):
            relative = path.relative_to(root)
            cached = CACHES & set(relative.parts)
            if path.is_file() and not cached and not is_for_teachers(relative.as_posix()):
                yield relative.as_posix(), path


def read_package(root: Path, names: Sequence[str] = PACKAGE) -> dict[str, bytes]:
    """The content of every file of the package in ``root``, and of its data, by path.

    ``names`` are the folders to read.
    """
    return {name: path.read_bytes() for name, path in _list_files(root, names)}


def write_package(files: dict[str, bytes], folder: Path) -> None:
    """Write the files of `read_package` into ``folder``."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def digest_files(root: Path, names: Sequence[str]) -> dict[str, str]:
    """The checksum of every file in the folders, or called like the files, ``names``."""
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in _list_files(root, names)
    }


def find_changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The files that were changed, added or deleted."""
    return sorted({name for name, _ in before.items() ^ after.items()})
