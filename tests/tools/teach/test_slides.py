"""Which cells become slides; how they look is a matter of tests/browser."""

import re
from itertools import pairwise

import nbformat
import pytest

from course_utils.errors import CourseError
from course_utils.tools.run.lessons import find_lessons
from course_utils.tools.teach import commands
from course_utils.tools.teach.sections import is_card
from course_utils.tools.teach.slide_layout import MAX_CARD_LINES
from course_utils.tools.teach.slides import has_outputs, make_slides, number_slides, write_slides
from tests.cards import MOST_LINES, make_toy_cells
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
    return [(c.metadata.slideshow.slide_type, c.source) for c in make_slides(notebook).cells]


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
    cells = make_slides(lesson.read()).cells
    kinds = [cell.metadata.slideshow.slide_type for cell in cells]
    assert kinds[0] == "slide"
    assert 10 <= kinds.count("slide") <= 70
    for cell, kind in zip(cells, kinds, strict=True):
        assert kind == "skip" or "nbgrader" not in cell.metadata


def test_every_exercise_is_a_slide_without_its_hint_and_its_answer():
    exercise = (
        "### ★ Exercise 1: f (5 minutes)\n\nWrite f.\n\n<details><summary>Hint</summary>h</details>"
    )
    answer = "<details><summary>Worked answer</summary>a</details>"
    notebook = make(
        ("slide", "## Question\n<details><summary>A. yes</summary>seen</details>"),
        ("skip", f"## Exercises\n\nDo one.\n\n{exercise}"),
        ("skip", f"{answer}\n\n### ★★ Exercise 2: g (5 minutes)\n\nWrite g."),
        ("slide", f"{answer}\n\n## Recap and sources\nthat"),
    )
    shown = [text for kind, text in read_slides(notebook) if kind != "skip"]
    assert [text.split("\n")[0] for text in shown] == [
        "## Question",
        "### ★ Exercise 1: f (5 minutes)",
        "### ★★ Exercise 2: g (5 minutes)",
        "## Recap and sources",
    ]
    assert "<details>" in shown[0]
    assert not any("<details>" in text for text in shown[1:])


def make_code(lines, *outputs):
    cell = nbformat.v4.new_code_cell("\n".join(lines))
    cell.outputs = [nbformat.v4.new_output("stream", text=text) for text in outputs]
    return cell


def test_what_does_not_fit_goes_on_to_the_next_slide():
    notebook = make(("slide", "## A\none"))
    notebook.cells.append(make_code([f"x{i} = {i}" for i in range(20)], "seen\n" * 20))
    notebook.cells.append(make_code(["def f():", *["    pass"] * 20, "", *["y = 1"] * 16]))
    cells = make_slides(notebook).cells
    kinds = [cell.metadata.slideshow.slide_type for cell in cells]
    assert kinds == ["slide", "-", "slide", "slide", "slide"]
    assert [len(cell.get("outputs", [])) for cell in cells] == [0, 0, 1, 0, 0]
    assert "hide-input" in cells[2].metadata.tags
    assert cells[3].source.splitlines()[-1] == "    pass", "code is broken between statements"
    assert len({cell.id for cell in cells}) == len(cells)
    assert number_slides(notebook) == {0: [1], 1: [1, 2], 2: [3, 4]}


def test_a_long_text_and_a_long_print_are_broken_too():
    notebook = make(("slide", "## A\n\n" + "\n\n".join(["a sentence"] * 30)))
    notebook.cells.append(make_code(["print()"], "line\n" * 60))
    cells = make_slides(notebook).cells
    assert [cell.metadata.slideshow.slide_type for cell in cells].count("slide") >= 5
    texts = [cell.source for cell in cells if cell.cell_type == "markdown"]
    assert "\n\n".join(texts) == notebook.cells[0].source
    printed = [output.text for cell in cells for output in cell.get("outputs", [])]
    assert "".join(printed) == "line\n" * 60


def test_no_slide_holds_only_the_last_line_of_a_print():
    notebook = make(("slide", "## A\none"))
    notebook.cells.append(make_code(["print()"], "line\n" * 51))
    outputs = [output for cell in make_slides(notebook).cells for output in cell.get("outputs", [])]
    assert [output.text.count("\n") for output in outputs] == [17, 17, 17]


def test_a_heading_never_has_a_slide_of_its_own():
    entries = [f"* **Trap** {i} " + "a long sentence " * 30 for i in range(5)]
    notebook = make(("slide", "## A\n\n" + "\n".join(entries) + "\n\nIts end."))
    first, last = make_slides(notebook).cells
    assert first.source == "## A\n\n" + "\n".join(entries)
    assert (last.metadata.slideshow.slide_type, last.source) == ("slide", "Its end.")


def test_a_cell_of_any_length_is_broken():
    source = [f"x{i} = {i}" for i in range(200)]
    notebook = make(("slide", "## A\none"))
    notebook.cells.append(make_code(source))
    pieces = [cell.source for cell in make_slides(notebook).cells if cell.cell_type == "code"]
    assert "\n".join(pieces).splitlines() == source
    assert max(piece.count("\n") + 1 for piece in pieces) <= 25
    assert len(pieces) <= 10


def test_a_damaged_picture_is_left_to_the_browser():
    notebook = make(("slide", "## A\none"))
    for data in ("AAAA", "no base64 at all!", ""):
        cell = make_code(["plot()"])
        cell.outputs = [nbformat.v4.new_output("display_data", {"image/png": data})]
        notebook.cells.append(cell)
    assert len([cell for cell in make_slides(notebook).cells if cell.get("outputs")]) == 3


@pytest.mark.parametrize("lesson", find_lessons(), ids=lambda lesson: lesson.name)
def test_every_lesson_has_speakers_notes(lesson):
    """For the prediction's answer, what to ask, and a common misconception; a slide for each."""
    kinds = [cell.metadata.slideshow.slide_type for cell in make_slides(lesson.read()).cells]
    assert kinds.count("notes") >= 2
    for before, kind in pairwise(kinds):
        assert kind != "notes" or before != "skip", "nobody speaks to a slide that is not shown"


def test_a_lesson_without_outputs_is_said(tmp_path, monkeypatch, capsys):
    path = write_lesson(tmp_path, "01_bare", "x = 1")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[0].metadata["slideshow"] = {"slide_type": "slide"}
    nbformat.write(notebook, path)
    assert not has_outputs(notebook)
    lessons = find_lessons(tmp_path)
    monkeypatch.setattr(commands, "find_lessons", lambda: lessons)
    commands.slides(["01"], tmp_path / "slides")
    assert "course run 01 --profile quick --force --store" in capsys.readouterr().out


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


def make_recipe_slides(lines, sentence="All of it."):
    """The slides of a Recipe whose cards have so many lines, as lists of cells."""
    code = "\n".join(f"x{i} = {i}" for i in range(lines))
    notebook = nbformat.v4.new_notebook(cells=make_toy_cells(pytorch=code, lightning=code))
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [nbformat.v4.new_output("stream", text="loss 2.3\n")]
        elif cell.source.startswith("###"):
            cell.source = cell.source.partition("\n")[0] + f"\n\n{sentence}"
    slides = []
    for cell in make_slides(notebook).cells:
        if cell.metadata.slideshow.slide_type == "slide":
            slides.append([])
        slides[-1].append(cell)
    return code, slides


@pytest.mark.parametrize("lines", [5, 20, 24])
def test_a_card_is_whole_and_stands_below_its_heading(lines):
    code, slides = make_recipe_slides(lines)
    assert len(slides) == 3
    for slide, heading in zip(slides[1:], ("In plain PyTorch", "In Lightning"), strict=True):
        assert slide[0].source.startswith(f"### {heading}")
        assert slide[1].source == code
        assert slide[1].outputs == [], "what stand-in data gave is not shown"


def test_a_card_below_a_long_text_has_a_slide_of_its_own():
    code, slides = make_recipe_slides(25, "A long sentence. " * 40)
    assert [len(slide) for slide in slides] == [1, 1, 1, 1, 1]
    assert [slide[0].source for slide in slides[2::2]] == [code, code]


@pytest.mark.parametrize("lines", [MOST_LINES, MOST_LINES + 5])
def test_a_card_is_not_split(lines):
    """`tests.cards` limits its lines of code; blank ones come on top."""
    code, slides = make_recipe_slides(lines)
    assert sum(cell.source == code for slide in slides for cell in slide) == 2


def test_a_very_long_card_is_split_as_other_code_is():
    code, slides = make_recipe_slides(MAX_CARD_LINES + 1)
    parts = [cell.source for slide in slides for cell in slide if is_card(cell)]
    assert "\n".join(parts).splitlines() == 2 * code.splitlines()
    assert max(part.count("\n") + 1 for part in parts) <= 25


@pytest.mark.parametrize("lesson", find_lessons(), ids=lambda lesson: lesson.name)
def test_every_card_of_a_lesson_is_shown_and_whole_unless_it_is_very_long(lesson):
    cells = make_slides(lesson.read()).cells
    for number, card in enumerate(lesson.read().cells):
        if is_card(card):
            shown = [cell for cell in cells if cell.metadata.cell == number]
            assert "skip" not in {cell.metadata.slideshow.slide_type for cell in shown}
            assert (len(shown) == 1) == (len(card.source.splitlines()) <= MAX_CARD_LINES)
            lines = [line for cell in shown for line in cell.source.splitlines() if line]
            assert lines == [line for line in card.source.splitlines() if line]
