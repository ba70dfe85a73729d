"""``python -m course_tools.run.changes REVISION``: what has changed since?

``.ci/run`` asks it. Where only text has changed, the tests that read no text would give what they
gave before. Where only files of some lessons have changed, so would the tests of other lessons.
"""

import sys
from collections.abc import Sequence
from pathlib import PurePosixPath

import nbformat

from course_tools.lesson_folder import LESSON_CODE
from course_tools.run.choose import run_git
from course_utils.files import ROOT

__all__ = ["find_lessons_of", "is_only_text", "list_changed_files"]

TEXT = (".md",)
# What lessons read and what `course sync` draws: the lessons that depend on them run by their keys.
STORED = ("data/results", "docs")


def list_changed_files(revision: str) -> list[str]:
    """Paths of files that differ from ``revision``, also by edits that are not committed yet."""
    changed = run_git("diff", "--name-only", "--no-renames", revision)
    new = run_git("ls-files", "--others", "--exclude-standard")
    return sorted({*changed.splitlines(), *new.splitlines()})


def _read_without_text(content: str) -> nbformat.NotebookNode:
    """A notebook in which the texts of all Markdown cells are empty."""
    notebook = nbformat.reads(content, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = ""
    return notebook


def is_only_text(path: str, revision: str) -> bool:
    """Whether the change of this file since ``revision`` is one of text alone.

    Text is a Markdown file, or the Markdown cells of a notebook that has as many cells as before,
    with the same code, outputs and metadata.
    """
    if path.endswith(TEXT):
        return True
    if not path.endswith(".ipynb"):
        return False
    try:
        before = _read_without_text(run_git("show", f"{revision}:{path}"))
        return _read_without_text((ROOT / path).read_text(encoding="utf-8")) == before
    except Exception:  # a new, a deleted or a damaged notebook is more than text
        return False


def find_lessons_of(path: str) -> list[str] | None:
    """The lessons to which a file belongs, by the stems of their notebooks; None: to all.

    A stored result belongs to no lesson alone: a lesson that reads it changes with it.
    """
    file = PurePosixPath(path)
    stems = {found.stem for found in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")}
    folder = file.parent.as_posix()
    if folder in STORED and file.suffix in (".json", ".png"):
        return []
    if folder == "notebooks" and file.suffix == ".ipynb":
        return [file.stem] if file.stem in stems else None
    if file.parts[0] == LESSON_CODE and len(file.parts) > 2:
        return [stem for stem in stems if stem.partition("_")[2] == file.parts[1]] or None
    return None


def main(arguments: Sequence[str]) -> int:
    """Print what has changed since the revision.

    ``text``: only text. ``lessons`` and their names: only files of these lessons, and text.
    ``code``: something else.
    """
    (revision,) = arguments
    changed = [p for p in list_changed_files(revision) if not is_only_text(p, revision)]
    lessons: set[str] = set()
    for path in changed:
        found = find_lessons_of(path)
        if found is None:
            print("code")
            return 0
        lessons.update(found)
    print(" ".join(["lessons", *sorted(lessons)]) if lessons else "code" if changed else "text")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
