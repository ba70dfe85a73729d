"""Which cells become slides; how they look is a matter of tests/browser."""

import re

import nbformat
import pytest

from course_utils.errors import CourseError
from course_utils.tools.run.lessons import find_lessons
from course_utils.tools.teach.slides import split_at_headings, write_slides
from tests.tools.conftest import write_lesson


def make(*cells):
    notebook = nbformat.v4.new_notebook()
    for kind, source in cells:
        cell = nbformat.v4.new_markdown_cell(source)
        if kind:
            cell.metadata["slideshow"] = {"slide_type": kind}
        notebook.cells.append(cell)
    return notebook


def read_slides(notebook):
    return [(c.metadata.slideshow.slide_type, c.source) for c in split_at_headings(notebook).cells]


def test_a_heading_begins_a_slide():
    notebook = make(("slide", "## A\none"), ("", "end of one\n\n## B\ntwo"), ("skip", "## C\nno"))
    assert read_slides(notebook) == [
        ("slide", "## A\none"),
        ("-", "end of one\n\n"),
        ("slide", "## B\ntwo"),
        ("skip", "## C\nno"),
    ]


def test_what_ends_a_skipped_cell_is_skipped():
    notebook = make(("skip", "a table"), ("slide", "so much for it\n\n### B\ntwo"))
    assert [kind for kind, _ in read_slides(notebook)] == ["skip", "skip", "slide"]


def test_a_bare_heading_shares_its_slide():
    assert read_slides(make(("slide", "## A\n\n### B\ntwo"))) == [("slide", "## A\n\n### B\ntwo")]


def test_links_to_files_elsewhere_become_text():
    notebook = make(("slide", "see [05](05_mixup.ipynb#x), [docs](https://docs.pytorch.org)"))
    assert read_slides(notebook)[0][1] == "see 05, [docs](https://docs.pytorch.org)"


@pytest.mark.parametrize("lesson", find_lessons(), ids=lambda lesson: lesson.name)
def test_every_lesson_has_slides_and_none_shows_a_solution(lesson):
    cells = split_at_headings(lesson.read()).cells
    kinds = [cell.metadata.slideshow.slide_type for cell in cells]
    assert kinds[0] == "slide"
    assert 10 <= kinds.count("slide") <= 40
    for cell, kind in zip(cells, kinds, strict=True):
        assert kind == "skip" or "nbgrader" not in cell.metadata


def test_the_page_loads_nothing_from_elsewhere(tmp_path):
    lesson = next(lesson for lesson in find_lessons() if lesson.name == "05_mixup")
    page = write_slides(lesson, tmp_path).read_text(encoding="utf-8")
    loaded = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"([^\"]+)\"", page)
    assert len(loaded) >= 5
    for address in loaded:
        assert address.startswith("data:") or (tmp_path / address).exists(), address


def test_a_lesson_without_slides(tmp_path):
    write_lesson(tmp_path, "01_bare", "x = 1")
    with pytest.raises(CourseError, match="01_bare has no slides: give cells the slide type"):
        write_slides(find_lessons(tmp_path)[0], tmp_path)
