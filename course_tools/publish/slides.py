"""``course slides``: reveal.js slides of a lesson (`slide_choice`), for use without a network."""

from pathlib import Path

import nbformat
from nbconvert import SlidesExporter
from nbconvert.preprocessors import TagRemovePreprocessor

from course_tools.publish.figures import describe_figures
from course_tools.publish.offline import copy_mathjax, copy_reveal
from course_tools.publish.slide_choice import MOST_SLIDES, Slide, choose_slides
from course_tools.run.lessons import Lesson
from course_utils.errors import CourseError
from course_utils.files import write_atomically

__all__ = ["MOST_SLIDES", "has_outputs", "make_slides", "number_slides", "write_slides"]

TEMPLATES = Path(__file__).parent


def _make_text(name: str, text: str, slide_type: str) -> nbformat.NotebookNode:
    about = {"slideshow": {"slide_type": slide_type}}
    return nbformat.v4.new_markdown_cell(text, id=name, metadata=about)


def _make_cells(slide: Slide, number: int) -> list[nbformat.NotebookNode]:
    """The cells of a slide: heading and text, code, text, and the speaker's note."""
    marks = "##" if slide.part.section else "#"
    heading = f"{marks} {slide.heading}\n\n{slide.above}".strip()
    cells = [_make_text(f"slide-{number}", heading, "slide")]
    if slide.code:
        slide.code.id = f"slide-{number}-code"
        slide.code.metadata["slideshow"] = {"slide_type": "-"}
        cells.append(slide.code)
    if slide.below:
        cells.append(_make_text(f"slide-{number}-below", slide.below, "-"))
    return [*cells, _make_text(f"slide-{number}-notes", "\n\n".join(slide.notes), "notes")]


def make_slides(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A notebook with the cells of the lesson's slides, each of which begins with its heading."""
    slides = nbformat.from_dict(notebook)
    describe_figures(slides)
    chosen = enumerate(choose_slides(slides), 1)
    slides.cells = [cell for number, slide in chosen for cell in _make_cells(slide, number)]
    return slides


def number_slides(notebook: nbformat.NotebookNode) -> dict[int, list[int]]:
    """For each cell that is shown, from 0, the numbers of the slides it stands on, from 1."""
    found: dict[int, list[int]] = {}
    for number, slide in enumerate(choose_slides(notebook), 1):
        for cell in slide.numbers:
            found.setdefault(cell, []).append(number)
    return found


def has_outputs(notebook: nbformat.NotebookNode) -> bool:
    """Whether any code of the notebook was executed, or it has no code."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return not code or any(cell.outputs for cell in code)


def write_slides(lesson: Lesson, folder: Path) -> Path:
    """Write ``<folder>/<lesson>.html`` and, beside it, the scripts that it needs; return the page.

    Raises:
        CourseError: the lesson has no heading, and so no slide.
    """
    slides = make_slides(lesson.read())
    if not slides.cells:
        raise CourseError(f"{lesson.name} has no slides: give its parts headings, from # to ###")
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
    page, _ = exporter.from_notebook_node(slides, resources=about)
    folder.mkdir(parents=True, exist_ok=True)
    copy_reveal(folder / "reveal.js")
    copy_mathjax(folder / "mathjax")
    write_atomically(folder / f"{lesson.name}.html", page)
    return folder / f"{lesson.name}.html"
