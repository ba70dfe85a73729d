"""Which recipes take part: files, the folder of a class, and those that come with the course."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_utils.errors import CourseError
from course_utils.tools.console import make_printable

__all__ = ["Entry", "find_entries"]

OURS = Path(__file__).parent
BUILT_IN = ("lesson_12",)
MOST_BYTES = 100_000  # a recipe is code; a table of the hidden images' classes would be larger


@dataclass(frozen=True)
class Entry:
    """One recipe; ``problem`` is set where its file is not even opened."""

    name: str
    path: Path
    problem: str = ""

    @property
    def sha256(self) -> str:
        """Of the file; empty where it is not opened."""
        return "" if self.problem else hashlib.sha256(self.path.read_bytes()).hexdigest()


def _make_entry(path: Path, folder: Path) -> Entry:
    name = make_printable(path.relative_to(folder).with_suffix("").as_posix())
    if path.is_symlink() or path.parent.is_symlink():
        return Entry(name, path, "it is a link: hand in the file itself")
    if not path.is_file():
        return Entry(name, path, "it is no file")
    if path.stat().st_size > MOST_BYTES:
        return Entry(name, path, f"it is larger than {MOST_BYTES:,} bytes: a recipe is code only")
    return Entry(name, path)


def _list_folder(folder: Path) -> Iterator[Entry]:
    """``*.py`` in the folder, and in the folder of each student; hidden files are left out."""
    for path in sorted([*folder.glob("*.py"), *folder.glob("*/*.py")]):
        relative = path.relative_to(folder)
        if not any(part.startswith((".", "_")) for part in relative.parts):
            yield _make_entry(path, folder)


def find_entries(words: Sequence[str]) -> list[Entry]:
    """The recipes that the words name: files ``*.py``, folders, or ``lesson_12``.

    Raises:
        CourseError: a word that names nothing; a folder without recipes; two of one name.
    """
    entries: list[Entry] = []
    for word in words:
        path = Path(word)
        if word in BUILT_IN:
            ours = [
                Entry(f"{word}/{entry.name}", entry.path) for entry in _list_folder(OURS / word)
            ]
            entries += ours
        elif path.is_dir():
            found = list(_list_folder(path))
            if not found:
                raise CourseError(f"{word} has no recipes: expected *.py or <student>/*.py in it")
            entries += found
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
