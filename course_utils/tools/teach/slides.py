"""``course slides``: reveal.js slides of a lesson, chosen by its cells' metadata, for offline use.

A heading begins a slide, and so does a cell of slide type ``slide``; a cell of type ``skip`` is
left out, ``notes`` are for the speaker (key S), anything else goes on. Of a cell with the tag
``hide-input`` only the output is shown.
"""

import re
from pathlib import Path

import nbformat
from nbconvert import SlidesExporter
from nbconvert.preprocessors import TagRemovePreprocessor

from course_utils.errors import CourseError
from course_utils.files import write_atomically
from course_utils.tools.run.lessons import Lesson
from course_utils.tools.teach.offline import copy_mathjax, copy_reveal

__all__ = ["split_at_headings", "write_slides"]

TEMPLATES = Path(__file__).parent
LOCAL_LINKS = (  # to files that lie elsewhere
    re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)"),
    re.compile(r'<a href="(?!https?:)[^"]*">(.*?)</a>'),
)
HEADING = re.compile(r"^(?=#{2,3} )", re.MULTILINE)


def _join_bare_headings(pieces: list[str]) -> list[str]:
    """A heading with nothing below it but the next heading shares its slide."""
    joined: list[str] = []
    for piece in pieces:
        if joined and joined[-1].startswith("#") and "\n" not in joined[-1].strip():
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def split_at_headings(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A copy in which each heading of a shown markdown cell begins a slide of its own."""
    split = nbformat.from_dict(notebook)
    split.cells = []
    shown = False
    for cell in notebook.cells:
        kind = cell.metadata.get("slideshow", {}).get("slide_type", "-")
        pieces = [cell.source]
        if cell.cell_type == "markdown":
            text = cell.source
            for link in LOCAL_LINKS:
                text = link.sub(r"\1", text)
            pieces = _join_bare_headings([piece for piece in HEADING.split(text) if piece.strip()])
        for number, piece in enumerate(pieces):
            part = nbformat.from_dict(cell)
            part.id = f"{cell.id}-{number}"
            part.source = piece
            part.metadata["slideshow"] = {"slide_type": kind}
            if kind not in ("skip", "notes") and cell.cell_type == "markdown":
                if HEADING.match(piece):
                    part.metadata.slideshow.slide_type = "slide"
                elif len(pieces) > 1:  # the end of what the slide before was about
                    part.metadata.slideshow.slide_type = "-" if shown else "skip"
            split.cells.append(part)
            if kind != "notes":
                shown = part.metadata.slideshow.slide_type != "skip"
    return split


def write_slides(lesson: Lesson, folder: Path) -> Path:
    """Write ``<folder>/<lesson>.html`` and, beside it, the scripts that it needs; return the page.

    Raises:
        CourseError: no cell of the lesson is meant for a slide.
    """
    notebook = lesson.read()
    kinds = [cell.metadata.get("slideshow", {}).get("slide_type") for cell in notebook.cells]
    if "slide" not in kinds:
        raise CourseError(f"{lesson.name} has no slides: give cells the slide type in Jupyter")
    exporter = SlidesExporter(
        template_name="slides_template",
        extra_template_basedirs=[str(TEMPLATES)],
        reveal_url_prefix="reveal.js",
        reveal_theme="white",
        exclude_anchor_links=True,
    )
    remover = TagRemovePreprocessor(remove_input_tags={"hide-input"}, enabled=True)
    exporter.register_preprocessor(remover, enabled=True)
    about = {"metadata": {"name": f"{lesson.name.replace('_', ' ')} ·"}}
    page, _ = exporter.from_notebook_node(split_at_headings(notebook), resources=about)
    folder.mkdir(parents=True, exist_ok=True)
    copy_reveal(folder / "reveal.js")
    copy_mathjax(folder / "mathjax")
    write_atomically(folder / f"{lesson.name}.html", page)
    return folder / f"{lesson.name}.html"
