"""Which recipes take part: files, the folder of a class, and those that come with the course."""

import errno
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from course_tools.console import make_printable
from course_tools.grade.strangers import read_regular
from course_utils.errors import CourseError
from course_utils.files import ROOT

__all__ = ["Entry", "find_entries"]

BUILT_IN = {"lesson_12": ROOT / "lesson_code" / "putting_it_together" / "recipes"}
MOST_BYTES = 100_000  # a recipe is code; trained weights would be larger
LINK = "it is a link: hand in the file itself"


@dataclass(frozen=True)
class Entry:
    """One recipe, read once: what is trained at each seed, and named by its checksum, is the same.

    ``problem`` is set where there is no ``source``.
    """

    name: str
    path: Path
    source: bytes = b""
    problem: str = ""

    @property
    def sha256(self) -> str:
        """Of the file; empty where it is not read."""
        return "" if self.problem else hashlib.sha256(self.source).hexdigest()


def _make_entry(path: Path, folder: Path) -> Entry:
    name = make_printable(path.relative_to(folder).with_suffix("").as_posix())
    if path.is_symlink() or path.parent.is_symlink():
        return Entry(name, path, problem=LINK)
    try:
        return Entry(name, path, read_regular(path, MOST_BYTES))
    except OSError as error:
        return Entry(name, path, problem=_describe(error))


def _describe(error: OSError) -> str:
    if error.errno == errno.EFBIG:
        return f"it is larger than {MOST_BYTES:,} bytes: a recipe is code only"
    if error.errno in (errno.EINVAL, errno.EISDIR):
        return "it is no file"
    return f"it cannot be read ({error.strerror})"


def _list_visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith((".", "_")))


def _list_folder(folder: Path) -> Iterator[Entry]:
    """``*.py`` in the folder, and in the folder of each student; hidden files are left out."""
    for path in _list_visible(folder):
        if path.suffix == ".py":
            yield _make_entry(path, folder)
        elif path.is_dir():
            yield from _list_student(path, folder)


def _list_student(student: Path, folder: Path) -> Iterator[Entry]:
    try:
        paths = _list_visible(student)
    except OSError as error:  # said, because a student who is left out is noticed too late
        name = make_printable(student.relative_to(folder).as_posix())
        yield Entry(name, student, problem=f"the folder cannot be read ({error.strerror})")
        return
    yield from (_make_entry(path, folder) for path in paths if path.suffix == ".py")


def find_entries(words: Sequence[str]) -> list[Entry]:
    """The recipes that the words name: files ``*.py``, folders, or ``lesson_12``.

    Raises:
        CourseError: a word that names nothing; a folder without recipes; two of one name.
    """
    entries: list[Entry] = []
    for word in words:
        path = Path(word)
        if word in BUILT_IN:
            found = _list_folder(BUILT_IN[word])
            entries += [replace(entry, name=f"{word}/{entry.name}") for entry in found]
        elif path.is_dir():
            listed = list(_list_folder(path))
            if not listed:
                raise CourseError(f"{word} has no recipes: expected *.py or <student>/*.py in it")
            entries += listed
        elif path.suffix == ".py" and path.exists():
            entries.append(_make_entry(path, path.parent))
        else:
            known = ", ".join(BUILT_IN)
            raise CourseError(
                f"no recipe {make_printable(word)!r}: give a file that ends in .py, a folder of "
                f"them, or {known}"
            )
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise CourseError(f"two recipes are called {name}: rename one of the files")
    return entries
