"""What is made from the lessons is up to date, and made so that nothing else changes."""

import json
import shutil

import nbformat
import pytest

from course_tools.publish.readme_figure import FIGURE, FILES, is_stale
from course_tools.publish.sync import (
    format_lesson_map,
    link_lessons,
    replace_section,
    set_navigation,
    sync_course,
)
from course_tools.run.lessons import find_lessons
from course_utils.errors import CourseError
from course_utils.files import ROOT
from tests.tools.toy_lessons import write_course

README = """# Title
<!-- figure: course sync -->
<!-- end of figure -->
<!-- problems: course sync -->
<!-- end of problems -->
<!-- lessons: course sync -->
old
<!-- end of lessons -->
between
<!-- findings: course sync -->
<!-- end of findings -->
rest
"""
PAGE = """# Results
<!-- results: course sync -->
<!-- end of results -->
"""


@pytest.fixture
def root(tmp_path):
    """Toy lessons, with a README and the results that its figure shows."""
    write_course(tmp_path / "notebooks")
    (tmp_path / "README.md").write_text(README)
    (tmp_path / "data" / "results").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "results.md").write_text(PAGE)
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    sync_course(tmp_path, read_lessons(tmp_path))
    return tmp_path


def read_lessons(root):
    return find_lessons(root / "notebooks")


def read_last_lines(root):
    return [lesson.read().cells[-1].source.splitlines()[-1] for lesson in read_lessons(root)]


def test_a_new_lesson_is_linked_from_its_neighbours_and_the_readme(root):
    new = nbformat.read(root / "notebooks" / "01_numbers.ipynb", as_version=4)
    new.cells[0].source = "# 02 · Smoothed losses: a toy"
    new.cells[-1].source = "## Recap and sources\n\nNothing leads back."
    nbformat.write(new, root / "notebooks" / "02_a_toy.ipynb")
    changed = sync_course(root, read_lessons(root))
    names = [path.name for path in changed]
    assert names == ["README.md", "01_numbers.ipynb", "02_a_toy.ipynb", "02_scale.ipynb"]
    assert [line.split(" · Next: ")[0] for line in read_last_lines(root)[1:]] == [
        "Back: [00 · Start here](00_start_here.ipynb)",
        "Back: [01 · The numbers](01_numbers.ipynb)",
        "Back: [02 · Smoothed losses](02_a_toy.ipynb)",
    ]
    assert read_last_lines(root)[1].endswith("Next: [02 · Smoothed losses](02_a_toy.ipynb)")
    assert "Next: a project of your own" in read_last_lines(root)[-1]
    assert format_lesson_map(read_lessons(root)) in (root / "README.md").read_text()
    assert sync_course(root, read_lessons(root)) == []


def test_only_the_line_changes_in_a_notebook(root):
    path = root / "notebooks" / "01_numbers.ipynb"
    right = path.read_text()
    path.write_text(right.replace("Next: [02", "Next: [20"))
    assert path.read_text() != right
    assert sync_course(root, read_lessons(root)) == [path]
    assert path.read_text() == right


def test_an_older_line_is_replaced_once():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("Recap.")])
    for line in ("Back: a · Next: b", "Back: c · Next: d", "Back: c · Next: d"):
        set_navigation(notebook, line)
    assert notebook.cells[-1].source == "Recap.\n\nBack: c · Next: d"


def test_the_readme_changes_between_the_markers_only():
    once = replace_section(README, "lessons", "new")
    assert once == README.replace("old\n", "new\n")
    assert replace_section(once, "lessons", "new") == once
    with pytest.raises(CourseError, match="a page has no lines <!-- lessons: course sync -->"):
        replace_section("# Title\n", "lessons", "new")


def test_a_lesson_without_a_title_is_named_and_nothing_is_written(root):
    path = root / "notebooks" / "02_scale.ipynb"
    notebook = json.loads(path.read_text())
    notebook["cells"][0]["source"] = ["Scale"]
    path.write_text(json.dumps(notebook))
    before = {file: file.read_bytes() for file in root.rglob("*.*")}
    with pytest.raises(CourseError, match="02_scale: begin its first cell with a title"):
        link_lessons(read_lessons(root))
    with pytest.raises(CourseError, match="02_scale"):
        sync_course(root, read_lessons(root))
    assert {file: file.read_bytes() for file in root.rglob("*.*")} == before


def test_the_problem_table_is_taken_from_the_first_lesson_alone(root):
    first = root / "notebooks" / "00_start_here.ipynb"
    notebook = nbformat.read(first, as_version=4)
    cell = next(c for c in notebook.cells if c.source.startswith("## What is my problem?"))
    cell.source = "\n".join(
        [
            "## What is my problem?",
            "",
            "| symptom | first | lesson |",
            "|---|---|---|",
            "| noise | luck | [a](01_numbers.ipynb), [b](glossary.md#seed), [c](https://x.org) |",
        ]
    )
    nbformat.write(notebook, first)
    assert sync_course(root, read_lessons(root)) == [root / "README.md"]
    row = "| noise | [a](notebooks/01_numbers.ipynb), [b](notebooks/glossary.md#seed), "
    assert f"{row}[c](https://x.org) |\n" in (root / "README.md").read_text()
    cell.source = "## What is my problem?\n\nNobody knows."
    nbformat.write(notebook, first)
    with pytest.raises(CourseError, match="00_start_here: begin a cell with ## What is my problem"):
        sync_course(root, read_lessons(root))


def test_the_figure_is_drawn_again_when_its_results_change(root):
    assert not is_stale(root)
    results = root / FILES[1]
    results.write_text(results.read_text() + "\n")
    assert is_stale(root)
    assert sync_course(root, read_lessons(root)) == [root / FIGURE]
    assert not is_stale(root)
    (root / FIGURE).unlink()
    assert is_stale(root)
