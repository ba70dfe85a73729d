"""``python -m course_utils.tools.run.changes REVISION``: has anything but text changed since?

``.ci/run`` asks it. Where only text has changed, the tests that read no text would give what they
gave before.
"""

import sys
from collections.abc import Sequence

import nbformat

from course_utils.files import ROOT
from course_utils.tools.run.choose import run_git

__all__ = ["is_only_text", "list_changed_files"]

TEXT = (".md",)


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


def main(arguments: Sequence[str]) -> int:
    """Print ``text`` if only text has changed since the revision, ``code`` otherwise."""
    (revision,) = arguments
    only_text = all(is_only_text(path, revision) for path in list_changed_files(revision))
    print("text" if only_text else "code")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
