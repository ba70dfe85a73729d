"""The sections of a lesson, and the cells in them that tools treat in a way of their own."""

import re

import nbformat

__all__ = ["find_section", "is_card", "is_speakers_note"]


def find_section(text: str, before: str) -> str:
    """The title of the section below the Markdown ``text``; without a heading it is ``before``."""
    return [before, *re.findall(r"^## (.+)$", text, re.MULTILINE)][-1]


def is_card(cell: nbformat.NotebookNode) -> bool:
    """Whether the cell is the code of a recipe card: it has the tag ``card``."""
    return "card" in cell.metadata.get("tags", [])


def is_speakers_note(cell: nbformat.NotebookNode) -> bool:
    """Whether the cell is for who teaches: of Jupyter's slide type ``notes``."""
    return cell.metadata.get("slideshow", {}).get("slide_type") == "notes"
