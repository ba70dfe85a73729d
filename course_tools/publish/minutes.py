"""How many minutes a lesson takes a student: computed from its cells, never typed."""

import re

import nbformat

__all__ = ["count_minutes", "find_core", "set_minutes"]

WORDS_PER_MIN = 150
LINE_S = 5  # to read a line of code
STEP_MIN = 5  # a lesson's minutes are a multiple of this
FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)
STATED = re.compile(r"^### [☆★].*\((\d+) minutes\)$", re.MULTILINE)


def find_core(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The cells of a lesson without its section *Going deeper*."""
    section, core = "", []
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and (heading := re.search(r"^## (.+)$", cell.source, re.M)):
            section = heading[1]
        if section != "Going deeper":
            core.append(cell)
    return core


def count_minutes(notebook: nbformat.NotebookNode) -> int:
    """Reading the core, its unfolded code and its cards, and the exercises as each one states."""
    minutes = 0.0
    for cell in find_core(notebook):
        if cell.cell_type == "markdown":
            minutes += sum(map(int, STATED.findall(cell.source)))
            minutes += len(FOLDED.sub("", cell.source).split()) / WORDS_PER_MIN
        elif "nbgrader" not in cell.metadata and "hide-input" not in cell.metadata.get("tags", []):
            minutes += LINE_S / 60 * (cell.source.count("\n") + 1)
    return STEP_MIN * max(1, round(minutes / STEP_MIN))


def set_minutes(notebook: nbformat.NotebookNode) -> None:
    """Write them into the metadata, and where the title says them."""
    minutes = count_minutes(notebook)
    notebook.metadata["course"]["minutes"] = minutes
    for cell in notebook.cells[:3]:
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"^Minutes: \d+", f"Minutes: {minutes}", cell.source, flags=re.M)
