"""What stands on a lesson's slides; how they look is a matter of tests/browser."""

import re

import nbformat
import pytest

from course_tools.cli import teaching as commands
from course_tools.publish.slide_text import condense, shorten, split_blocks
from course_tools.publish.slides import (
    MOST_SLIDES,
    has_outputs,
    make_slides,
    number_slides,
    write_slides,
)
from course_tools.run.lessons import find_lessons
from course_utils.errors import CourseError
from tests.lessons.cards import make_toy_cells
from tests.pages import read_slides
from tests.tools.conftest import write_lesson
from tests.tools.toy_lessons import FIGURE, PRINT, TABLE, make_code, make_note, write_course

TITLE = "# 50 · A toy\n\nWhat it is about."
HINT = "<details><summary>Hint</summary>told in the hint</details>"
ANSWER = "<details><summary>Worked answer</summary>told in the answer</details>"


def make(*cells):
    """A notebook of cells; text is Markdown."""
    texts = nbformat.v4.new_markdown_cell
    return nbformat.v4.new_notebook(cells=[texts(x) if isinstance(x, str) else x for x in cells])


def test_each_part_is_a_slide_with_its_heading_and_a_note():
    slides = read_slides(make(TITLE, "## Idea\n\n### A walk\n\nOne.", "## Check\n\nTwo.\n\nThree."))
    assert [heading for heading, _, _ in slides] == ["# 50 · A toy", "## Idea: A walk", "## Check"]
    assert [text.strip() for _, text, _ in slides] == [
        "What it is about.",
        "One.",
        "Two.\n\nThree.",
    ]
    assert [note for _, _, note in slides][1].startswith("Cell 2 of the notebook. All that")


def test_an_output_stands_between_the_text_above_and_the_text_below_it():
    long = "A sentence of some length that nobody reads from a wall. " * 9
    notebook = make(
        TITLE,
        "## Experiment\n\nWhat is measured.\n\nA detail of it.\n\nThe dots are seeds:",
        make_code("plot()", FIGURE),
        f"All lie on the right.\n\n{long}\n\nNow the table:",
        make_note("*Ask:* why?"),
        "## Recap\n\nThat.",
    )
    _, [heading, text, note], _ = read_slides(notebook)
    places = [text.index(x) for x in ("What is", "The dots", "image/png", "All lie")]
    assert heading == "## Experiment"
    assert places == sorted(places)
    assert "A detail" not in text
    for left_out in ("A detail of it.", long.strip(), "Now the table:", "*Ask:* why?"):
        assert left_out in note
    assert "<details>" not in note, "it is folded in the notebook only"
    assert "plot()" not in text, "a figure has the room of its code"


@pytest.mark.parametrize(
    ("outputs", "seen"),
    [
        ((FIGURE, PRINT, TABLE, FIGURE), 3),
        ((TABLE, PRINT, TABLE), 2),
        ((None, PRINT, PRINT), 1),
        ((None, None), 0),
    ],
)
def test_the_last_figure_or_table_or_else_the_first_print_or_code_is_shown_first(outputs, seen):
    """Without room for others: they are on a slide of their own below the same heading."""
    cells = [make_code(f"f{i}()", *[x] * bool(x)) for i, x in enumerate(outputs)]
    parts = [f"### Part {i}\n\nIt is so." for i in range(MOST_SLIDES)]
    notebook = make("## The library way\n\nA sentence.", *cells, *parts)
    numbers = number_slides(notebook)
    assert [i for i in range(len(cells)) if i + 1 in numbers] == [seen]


def test_other_figures_follow_below_the_same_heading_where_there_is_room():
    figures = ("First:", make_code("a()", FIGURE), "Second:", make_code("b()", FIGURE))
    slides = read_slides(make("## Experiment\n\n### Noise\n\nA sentence.", *figures))
    assert [heading for heading, _, _ in slides] == [
        "## Experiment: Noise",
        "## Experiment: Noise (continued)",
    ]
    for (_, text, note), sentence in zip(slides, ("First:", "Second:"), strict=True):
        assert text.index(sentence) < text.index("image/png")
        assert "of the notebook" in note


def test_too_many_parts_fall_out_into_the_notes_and_the_important_ones_stay():
    figure = make_code("first()", FIGURE)
    ideas = [f"### Thought {i}\n\nIdea {i}." for i in range(12)]
    checks = [f"## Check\n\n### Check {i}\n\nChecked {i}." for i in range(12)]
    notebook = make(
        TITLE,
        "## Question\n\nWhich?\n\n<details><summary>A. This</summary>Told later.</details>",
        "## Idea\n\n" + "\n\n".join(ideas) + "\n\nLook:",
        figure,
        *checks,
        "## Experiment\n\n### Going deeper\n\nDeep.",
        "## Verdict\n\nIt is said:",
        make_code("verdict()", PRINT),
        *make_toy_cells(),
        f"## Exercises\n\n### ★ Exercise 1: f (5 minutes)\n\nWrite f.\n\n{HINT}",
        "## Recap and sources\n\nThat.",
    )
    slides = read_slides(notebook)
    headings = [heading for heading, _, _ in slides]
    assert len(slides) == MOST_SLIDES
    assert {"## Question", "## Verdict", "## Recipe", "## Exercises"} <= set(headings)
    assert {"## Recipe: In plain PyTorch", "## Recap and sources"} <= set(headings)
    assert "## Idea: Thought 11" in headings, "the lesson's first figure"
    assert headings[3] == "## Idea: Thought 1", "ideas stay longer than checks"
    assert "## Check: Check 11" not in headings
    everything = "".join(text + note for _, text, note in slides)
    assert "**Check: Check 11**\n\nChecked 11." in everything
    assert all(f"{what} {i}." in everything for what in ("Idea", "Checked") for i in range(12))
    assert "A. This" in slides[1][1]


def test_going_deeper_falls_out_first():
    parts = [f"### Check {i}\n\nChecked." for i in range(MOST_SLIDES - 1)]
    deeper = ("## Experiment\n\n### Measured\n\nSo.\n\n### Going deeper\n\nDeep.",)
    headings = [x for x, _, _ in read_slides(make(*deeper, make_code("a()", FIGURE), *parts))]
    assert "## Experiment: Going deeper" in headings, "it has the first figure"
    headings = [x for x, _, _ in read_slides(make(*deeper, "## Check\n\nMany.", *parts))]
    assert len(headings) == MOST_SLIDES
    assert "## Experiment: Going deeper" not in headings


def test_exercises_are_one_slide_without_hints_answers_and_solutions():
    told, grade = "told_in_the_solution = 1", {"grade_id": "f"}
    notebook = make(
        "## Question\n\nWhich?\n\n<details><summary>A. yes</summary>seen</details>",
        f"## Exercises\n\nDo one.\n\n### ☆ Experiment: e (9 minutes)\n\nMeasure it.\n\n{HINT}",
        make_code(told, PRINT, nbgrader=grade),
        f"{ANSWER}\n\n### ★ Exercise 1: f (5 minutes)\n\nWrite f. It is so:",
        make_code(told, PRINT, nbgrader=grade),
        f"{ANSWER}\n\n## Recap and sources\n\nThat.",
    )
    slides = read_slides(notebook)
    assert [heading for heading, _, _ in slides][1:] == ["## Exercises", "## Recap and sources"]
    _, text, note = slides[1]
    assert "**☆ Experiment: e (9 minutes)** Measure it." in text
    assert "**★ Exercise 1: f (5 minutes)** Write f." in text
    assert "It is so" not in text, "a colon has something below it"
    assert "Do one." in note
    assert not re.search("told|It is so:$", "".join(text for _, text, _ in slides), re.MULTILINE)
    assert "told" not in str(make_slides(notebook)), "not in the notes either"
    assert number_slides(notebook)[1] == number_slides(notebook)[3] == [2]


def test_an_exercise_that_shows_curves_is_a_slide_that_does_not_tell_its_answer():
    notebook = make(
        "## Exercises\n\nFind them.\n\n### ★ Script 1: slow (5 minutes)\n\nThe curves:",
        make_code("draw()", FIGURE),
        "Measure the rate, it is the answer.",
        make_code("measure()", PRINT, tags=["hide-output"]),
        make_code("solution()", PRINT, nbgrader={"grade_id": "f"}),
        ANSWER,
        make_code("answer()", FIGURE),
        "### ★ Script 2: fast (5 minutes)\n\nMeasure it.",
        make_code("folded()", FIGURE, tags=["hide-output"]),
    )
    slides = read_slides(notebook)
    assert [heading for heading, _, _ in slides] == [
        "## Exercises",
        "## ★ Script 1: slow (5 minutes)",
    ]
    text = slides[1][1]
    assert text.count("image/png") == 1
    assert "answer" not in text
    assert "seen" not in text
    assert "Script 2" in slides[0][1], "its only output is folded, so it is a task"
    assert set(number_slides(notebook)) == {0, 1, 7}


def test_nothing_is_announced_that_is_not_on_the_slide():
    cell = make_code("hidden()", tags=["hide-input"])
    sentence = "The scheduler of the library counts its steps in another way."
    notebook = make(
        f"## The library way\n\n{sentence} So look at timm's:", cell, "## Recap\n\nThat."
    )
    [_, text, note], _ = read_slides(notebook)
    assert text.strip() == sentence
    assert "timm's:" in note


def test_a_skipped_cell_is_not_shown():
    skip = {"slideshow": {"slide_type": "skip"}}
    part = nbformat.v4.new_markdown_cell("## Check\n\nAgain.", metadata=skip)
    notebook = make("## Idea\n\nSee it.", make_code("a()", FIGURE, **skip), part)
    [[heading, text, note]] = read_slides(notebook)
    assert heading == "## Idea"
    assert "image/png" not in text
    assert "Again." in note


def test_a_long_verdict_has_first_sentences_and_the_rest_is_said():
    items = [f"* **Trap {i}** is a fault of the schedule. {'More of it. ' * 20}" for i in range(8)]
    notebook = make("## Verdict\n\n" + "\n".join(items), "## Recap\n\nThat.")
    [heading, text, note], _ = read_slides(notebook)
    assert heading == "## Verdict"
    assert all(f"* **Trap {i}** is a fault of the schedule." in text for i in range(8))
    assert len(text.split()) < 300
    assert items[7].strip() in note


def test_a_verdict_is_in_the_lessons_order():
    cells = (
        "Said:",
        make_code("say()", PRINT),
        "Means this.\n\nAnd that.",
        make_code("t()", TABLE),
    )
    slides = read_slides(
        make("## Verdict\n\nWhich answer?\n\nIt was long.", *cells, "At last.\n\nThe end.")
    )
    told = " ".join(text for _, text, _ in slides)
    order = ("Which answer?", "Said:", "seen", "Means", "And that", "<table>", "At last", "The end")
    places = [told.index(x) for x in order]
    assert places == sorted(places)


def test_links_to_files_elsewhere_become_text():
    link = "see [05](05_mixup.ipynb#x), [docs](https://docs.pytorch.org)"
    assert (
        "see 05, [docs](https://docs.pytorch.org)"
        in read_slides(make(TITLE, f"## A\n\n{link}"))[1][1]
    )


@pytest.mark.parametrize("lines", [5, 40, 41, 105])
def test_a_card_is_whole_and_each_part_of_it_below_its_heading(lines):
    code = "\n".join(f"x{i} = {i}" for i in range(lines))
    notebook = make(*make_toy_cells(pytorch=code, lightning=code))
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [PRINT]
    slides = read_slides(notebook)
    shown = [(heading, text) for heading, text, _ in slides if "PyTorch" in heading]
    assert len(shown) == -(-lines // 40)
    assert [heading for heading, _ in shown][1:] == ["## Recipe: In plain PyTorch (continued)"] * (
        len(shown) - 1
    )
    assert [x for _, text in shown for x in re.findall(r"x\d+ = \d+", text)] == code.splitlines()
    assert not any("seen" in text for _, text in shown), "what stand-in data gave is not shown"


def test_code_is_parted_between_statements():
    code = "\n".join(["def f():", *["    pass"] * 24, "", *["y = 1"] * 24])
    notebook = make("## From scratch\n\nIt is:", make_code(code))
    (_, first, _), (_, second, _) = read_slides(notebook)
    assert first.strip().endswith("pass")
    assert second.strip().startswith("y = 1")


def test_sentences_are_not_cut_in_the_middle_of_markup():
    bold = "It is **one sentence. And another** of some length by H. Zhang et al. Then more words."
    assert shorten(bold, 7) == ""
    assert shorten(bold, 14, anyway=True).count("**") == 2
    assert shorten("A first sentence with some more words in it. Second.", 9) == (
        "A first sentence with some more words in it."
    )
    assert shorten("It ends here:", 99) == ""
    assert split_blocks("Rules:\n\n* a\n* b\n\nText.\n\n$$x$$\n\nEnd.") == [
        "Rules:\n\n* a\n* b",
        "Text.\n\n$$x$$",
        "End.",
    ]
    assert condense("* One two. Three four five.\n| a | b |", 2) == "* One two.\n| a | b |"


def test_figures_are_described():
    text = "The loss falls in the first epoch and then no more."
    slides = make_slides(make("## Idea\n\nSee:", make_code("a()", FIGURE), text))
    output = next(cell.outputs[0] for cell in slides.cells if cell.cell_type == "code")
    assert output.metadata["image/png"]["alt"] == text


def test_a_lesson_without_outputs_is_said(tmp_path, monkeypatch, capsys):
    path = write_lesson(tmp_path, "01_bare", "x = 1")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell(TITLE))
    nbformat.write(notebook, path)
    assert not has_outputs(notebook)
    lessons = find_lessons(tmp_path)
    monkeypatch.setattr(commands, "find_lessons", lambda: lessons)
    commands.slides(["01"], tmp_path / "slides")
    assert "course run 01 --profile quick --force --store" in capsys.readouterr().out


def test_the_page_loads_nothing_from_elsewhere(tmp_path):
    lesson = write_course(tmp_path / "notebooks")[1]
    page = write_slides(lesson, tmp_path).read_text(encoding="utf-8")
    loaded = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"([^\"]+)\"", page)
    assert len(loaded) >= 5
    for address in loaded:
        assert address.startswith("data:") or (tmp_path / address).exists(), address
    assert page.count('<aside class="notes">') == len(read_slides(lesson.read()))
    assert page.count("<img ") == len(re.findall(r'<img [^>]*alt="[^"]{8,}"', page)) == 1


def test_a_lesson_without_slides(tmp_path):
    write_lesson(tmp_path, "01_bare", "x = 1")
    with pytest.raises(CourseError, match="01_bare has no slides: give its parts headings"):
        write_slides(find_lessons(tmp_path)[0], tmp_path)
