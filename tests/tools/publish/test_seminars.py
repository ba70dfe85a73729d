"""Seminar plans: what fits, by importance, with measured times."""

import json
import math

import nbformat
import pytest

from course_tools.publish.seminars import (
    Section,
    choose_sections,
    find_left_out,
    format_plan,
    read_cell_times,
    split_sections,
)
from course_tools.run.lessons import find_lessons
from course_tools.run.runner import run_lessons
from course_utils.errors import CourseError
from tests.lessons.cards import ABOUT, write_toy_lesson
from tests.tools.toy_lessons import write_course


def test_sections_by_importance_as_long_as_they_fit():
    sections = [
        Section("Question", 1, 2, 2, 0),
        Section("Set-up", 3, 4, 3, 6),
        Section("Check", 5, 8, 30, 60),
        Section("Verdict", 9, 9, 3, 0),
        Section("★", 10, 12, 5, 0),
    ]
    assert choose_sections(sections, 5) == [sections[0]], "15 % of the minutes are kept free"
    assert choose_sections(sections, 6) == [sections[0], sections[3]]
    assert choose_sections(sections, 12) == [sections[0], sections[3], sections[4]]
    assert choose_sections(sections, 100) == sections
    assert sections[2].minutes == 31
    assert choose_sections(sections, 0) == []


def test_a_plan_names_slides_and_skips_what_takes_no_time(tmp_path):
    lesson = write_course(tmp_path)[1]
    cells_s = [0.001] * len(lesson.read().cells)
    plan = format_plan(lesson, cells_s, 20)
    rows = {row.split(" | ")[0]: row.split(" | ") for row in plan.splitlines()}
    assert rows["| Title"][2] == "1"
    assert rows["| Set-up"][2] == "–"
    assert "run without a word" not in plan
    rows = format_plan(lesson, [6.0] * len(cells_s), 5).splitlines()
    assert {row.split(" | ")[0]: row.split(" | ")[-1] for row in rows[2:-2]}["| ★★"] == "skip |", (
        "a student's answer is not written yet: it is not run"
    )
    assert any("run without a word" in row for row in rows)


def test_every_cell_is_in_one_section(tmp_path):
    notebook = write_course(tmp_path)[1].read()
    sections = split_sections(notebook, [1.0] * len(notebook.cells))
    places = [place for s in sections for place in range(s.first, s.last + 1)]
    assert places == list(range(1, len(notebook.cells) + 1))
    assert sum(section.run_s for section in sections) == len(notebook.cells)


@pytest.mark.parametrize("time_s", ["x", None, math.nan, math.inf, -1])
def test_damaged_times_are_said(school, time_s):
    school.write("01_one", "1")
    run_lessons(school.lessons, school.plan(), school.console, execute=school.execute)
    path = school.build / "smoke" / "course.json"
    course = json.loads(path.read_text())
    course["lessons"][0]["cells_s"] = [1.0, time_s]
    path.write_text(json.dumps(course))
    with pytest.raises(CourseError, match=r"course\.json is damaged .*: run course run --force"):
        read_cell_times(path, school.lessons[0])


def test_the_times_are_those_of_the_run(school):
    school.write("01_one", "import time; time.sleep(0.5)", "2")
    run_lessons(school.lessons, school.plan(), school.console)
    course = school.build / "smoke" / "course.json"
    cells_s = read_cell_times(course, school.lessons[0])
    assert len(cells_s) == 3
    assert 0.5 <= cells_s[1] < 60
    plan = format_plan(school.lessons[0], cells_s, 45)
    assert "Shown: 0 of 45 minutes." in plan
    school.write("01_one", "1")
    with pytest.raises(CourseError, match="has other cells since it was timed: run it"):
        read_cell_times(course, school.lessons[0])


def test_without_a_run(school, tmp_path):
    school.write("01_one", "1")
    with pytest.raises(CourseError, match="has no times of 01_one: run it: course run 01 --force"):
        read_cell_times(tmp_path / "course.json", school.lessons[0])
    (tmp_path / "course.json").write_text(json.dumps({"lessons": [{"name": "01_one"}]}))
    with pytest.raises(CourseError, match=r"course\.json is damaged .*: run course run --force"):
        read_cell_times(tmp_path / "course.json", school.lessons[0])


def test_a_recipe_is_a_section_whose_code_is_not_read_out(tmp_path):
    notebook = write_toy_lesson(tmp_path).read()
    sections = {x.title: x for x in split_sections(notebook, [0.0] * len(notebook.cells))}
    recipe = sections["Recipe"]
    texts = [cell.source for cell in notebook.cells[2:7] if cell.cell_type == "markdown"]
    assert (recipe.first, recipe.last) == (3, 7)
    assert recipe.talk_min == pytest.approx(2 + len(" ".join(texts).split()) / 110)


def test_a_recipe_is_shown_before_the_exercises():
    sections = [Section(title, i, i, 5) for i, title in enumerate(("★", "Recipe", "Set-up"))]
    assert choose_sections(sections, 6) == [sections[1]]


def make_lesson(*sources, headline=()):
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["course"] = {"headline": list(headline)}
    for source in sources:
        if source.startswith("#"):
            notebook.cells.append(nbformat.v4.new_markdown_cell(source))
            continue
        cell = nbformat.v4.new_code_cell(source)
        cell.outputs = [nbformat.v4.new_output("display_data", {"image/png": "AAAA"})]
        notebook.cells.append(cell)
    return notebook


@pytest.mark.parametrize(
    ("headline", "part"),
    [
        ({"comparison": "rare"}, "Second"),
        ({"claim": "not found in any cell"}, "First"),
        ({"comparison": "common"}, "First"),
    ],
)
def test_the_headline_is_planned_before_all_but_the_question(headline, part):
    sources = ["# T", "## Question", "## Experiment\n\n### First", "compare('common')"]
    sources += ["### Second", "compare('rare')", "## Verdict\n\n### Not a part"]
    notebook = make_lesson(*sources, headline=[headline])
    sections = split_sections(notebook, [0.0] * len(sources))
    names = ["Title", "Question", "Experiment: First", "Experiment: Second", "Verdict"]
    assert [section.name for section in sections] == names
    assert [section.part for section in sections if section.is_headline] == [part]
    for section in sections:
        section.talk_min = 2
    chosen = [section.name for section in choose_sections(sections, 7.5)]
    assert chosen == ["Title", "Question", f"Experiment: {part}"]


def test_a_part_that_is_left_out_is_no_whole_section(tmp_path):
    words = "word " * 2000
    sources = ["# T", "## Experiment\n\n### First", "draw()", f"### Second\n\n{words}"]
    path = tmp_path / "50_toy.ipynb"
    notebook = make_lesson(*sources)
    notebook.metadata["course"] = dict(ABOUT, budget_s=1)
    nbformat.write(notebook, path)
    [lesson] = find_lessons(tmp_path)
    assert find_left_out(lesson, [0.0] * 4, 10) == ["parts of Experiment"]
