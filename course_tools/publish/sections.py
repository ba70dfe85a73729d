"""The sections of a lesson, and the cells in them that tools treat in a way of their own."""

import re
from collections.abc import Sequence

import nbformat

__all__ = ["find_section", "is_card", "is_speakers_note", "rank_headline", "read_title"]


def find_section(text: str, before: str) -> str:
    """The title of the section below the Markdown ``text``; without a heading it is ``before``."""
    return [before, *re.findall(r"^## (.+)$", text, re.MULTILINE)][-1]


def is_card(cell: nbformat.NotebookNode) -> bool:
    """Whether the cell is the code of a recipe card: it has the tag ``card``."""
    return "card" in cell.metadata.get("tags", [])


def is_speakers_note(cell: nbformat.NotebookNode) -> bool:
    """Whether the cell is for who teaches: of Jupyter's slide type ``notes``."""
    return cell.metadata.get("slideshow", {}).get("slide_type") == "notes"


def rank_headline(
    notebook: nbformat.NotebookNode, cells: Sequence[nbformat.NotebookNode]
) -> tuple[bool, bool]:
    """How likely these cells show the lesson's headline result: they have a figure, and name it."""
    headlines = notebook.metadata.get("course", {}).get("headline", [])
    names = [entry.get("claim") or entry.get("comparison", "") for entry in headlines[:1]]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    has_figure = any("image/png" in output.get("data", {}) for output in outputs)
    return has_figure, any(name in cell.source for cell in cells for name in names)


def read_title(notebook: nbformat.NotebookNode, otherwise: str) -> str:
    """The heading of the notebook's first cell; ``otherwise`` without one."""
    text = "\n".join(cell.source for cell in notebook.cells[:1])
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1] if found else otherwise
