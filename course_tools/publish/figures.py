"""What a figure shows, in words: its title, or the sentence in the text that reads it."""

import re

import nbformat

from course_tools.publish.sections import is_speakers_note

__all__ = ["describe_figures", "has_figure"]

TITLE = re.compile(r"""\b(?:suptitle|set_title)\(\s*(?:"([^"]{20,})"|'([^']{20,})')""")
MARKUP = re.compile(r"<[^>]+>|[*`$\\]|^[-#>] *", re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
SENTENCE = re.compile(r".+?[.?!](?=\s|$)")
MOST = 250  # characters: a screen reader reads them all


def has_figure(cell: nbformat.NotebookNode) -> bool:
    """Whether the cell's outputs hold a picture."""
    return any("image/png" in output.get("data", {}) for output in cell.get("outputs", []))


def _read_sentence(source: str) -> str:
    """The first sentence of a Markdown text that is no heading, table or formula."""
    lines = [x for x in source.splitlines() if x.strip() and not x.startswith(("#", "|", "$$"))]
    text = " ".join(MARKUP.sub("", LINK.sub(r"\1", "\n".join(lines))).split())
    found = SENTENCE.match(text)
    return found[0] if found else text


def _describe(notebook: nbformat.NotebookNode, place: int) -> str:
    if found := TITLE.search(notebook.cells[place].source):
        return found[1] or found[2]
    texts = [x for x in notebook.cells[place + 1 :] if not is_speakers_note(x)][:1]
    below = [x.source for x in texts if x.cell_type == "markdown" and x.source[:1] != "#"]
    above = [x.source for x in notebook.cells[:place] if x.cell_type == "markdown"]
    headings = re.findall(r"^#+ (.+)$", "\n".join(above), re.MULTILINE)
    sentence = _read_sentence(below[0]) if below else ""
    return sentence or f"Figure of the section {headings[-1] if headings else 'above'}"


def describe_figures(notebook: nbformat.NotebookNode) -> None:
    """Give each figure of the notebook an alternative text, where nbconvert and MyST-NB read it."""
    for place, cell in enumerate(notebook.cells):
        if not has_figure(cell):
            continue
        text = _describe(notebook, place)[:MOST]
        cell.metadata.setdefault("mystnb", {}).setdefault("image", {})["alt"] = text
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                output.metadata.setdefault("image/png", {})["alt"] = text
