"""``course slides``: reveal.js slides of a lesson, chosen by its cells' metadata, for offline use.

A heading begins a slide, and so does a cell of slide type ``slide``; a cell of type ``skip`` is
left out, ``notes`` are for the speaker (key S), anything else goes on. Of a cell with the tag
``hide-input`` only the output is shown. Every exercise is a slide, without its hint and its
answer. What does not fit on one slide goes on to the next (`slide_layout`). The code of a recipe
card stays on one slide, unless it is very long. Its output is left out.
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
from course_utils.tools.teach.sections import find_section, is_card
from course_utils.tools.teach.slide_layout import break_full_slides

__all__ = ["has_outputs", "make_slides", "number_slides", "write_slides"]

TEMPLATES = Path(__file__).parent
LOCAL_LINKS = (  # to files that lie elsewhere
    re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)"),
    re.compile(r'<a href="(?!https?:)[^"]*">(.*?)</a>'),
)
HEADING = re.compile(r"^(?=#{2,3} )", re.MULTILINE)
EXERCISE = re.compile(r"### [☆★]")
HINTS = re.compile(r"<details>.*?</details>", re.DOTALL)


def _join_bare_headings(pieces: list[str]) -> list[str]:
    """A heading with nothing below it but the next heading shares its slide."""
    joined: list[str] = []
    for piece in pieces:
        if joined and joined[-1].startswith("#") and "\n" not in joined[-1].strip():
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def _split_text(source: str, section: str) -> list[str]:
    """The parts of a markdown cell that begins in this section, each with one heading at most.

    Hints and worked answers are left out; the answers of a prediction are not.
    """
    for link in LOCAL_LINKS:
        source = link.sub(r"\1", source)
    pieces = []
    for piece in _join_bare_headings([p for p in HEADING.split(source) if p.strip()]):
        section = find_section(piece, section)
        text = HINTS.sub("", piece) if section == "Exercises" else piece
        if text.strip():
            pieces.append(text)
    return pieces


def _choose_slides(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The notebook's cells in parts, each with its slide type and its cell's number, from 0."""
    parts: list[nbformat.NotebookNode] = []
    shown = False
    section = ""
    for number, cell in enumerate(notebook.cells):
        kind = cell.metadata.get("slideshow", {}).get("slide_type", "-")
        pieces = [cell.source]
        if cell.cell_type == "markdown":
            pieces = _split_text(cell.source, section)
            section = find_section(cell.source, section)
        for place, piece in enumerate(pieces):
            part = nbformat.from_dict(cell)
            part.id = f"{cell.id}-{place}"
            part.source = piece
            part.metadata["slideshow"] = {"slide_type": kind}
            part.metadata["cell"] = number
            if piece.startswith("%%writefile") or is_card(cell):
                part.outputs = []  # that a file was written; what the stand-in data of a card gave
            if kind != "notes" and cell.cell_type == "markdown":
                if EXERCISE.search(piece) or (kind != "skip" and HEADING.match(piece)):
                    part.metadata.slideshow.slide_type = "slide"
                elif kind != "skip" and len(pieces) > 1:  # the end of the slide before
                    part.metadata.slideshow.slide_type = "-" if shown else "skip"
            parts.append(part)
            if kind != "notes":
                shown = part.metadata.slideshow.slide_type != "skip"
    return parts


def make_slides(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A copy of the notebook whose cells are as they stand on slides, with no slide too full."""
    slides = nbformat.from_dict(notebook)
    slides.cells = break_full_slides(_choose_slides(notebook))
    return slides


def number_slides(notebook: nbformat.NotebookNode) -> dict[int, list[int]]:
    """For each cell of the lesson, from 0, the numbers of the slides it stands on, from 1."""
    found: dict[int, list[int]] = {}
    number = 0
    for part in make_slides(notebook).cells:
        kind = part.metadata.slideshow.slide_type
        number += kind == "slide"
        if kind not in ("skip", "notes"):
            found.setdefault(part.metadata.cell, []).append(number)
    return found


def has_outputs(notebook: nbformat.NotebookNode) -> bool:
    """Whether any code of the notebook was executed, or it has no code."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return not code or any(cell.outputs for cell in code)


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
    page, _ = exporter.from_notebook_node(make_slides(notebook), resources=about)
    folder.mkdir(parents=True, exist_ok=True)
    copy_reveal(folder / "reveal.js")
    copy_mathjax(folder / "mathjax")
    write_atomically(folder / f"{lesson.name}.html", page)
    return folder / f"{lesson.name}.html"
