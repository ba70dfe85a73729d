"""The minutes of a lesson are computed from its core."""

import nbformat

from course_tools.publish.minutes import count_minutes, find_core, set_minutes

WORDS = "word " * 1500  # ten minutes
text, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell


def make(*cells):
    notebook = nbformat.v4.new_notebook(cells=list(cells))
    notebook.metadata["course"] = {"minutes": 1}
    return notebook


def test_words_lines_and_exercises_count():
    assert count_minutes(make(text(WORDS))) == 10
    assert count_minutes(make(code("x = 1\n" * 119 + "x"))) == 10
    assert count_minutes(make(text("## Exercises\n\n### ☆ One (15 minutes)\n\nDo it."))) == 15
    assert count_minutes(make(text("short"))) == 5, "a lesson of no time is none"


def test_what_is_folded_or_deeper_or_a_solution_does_not_count():
    folded = text(f"<details><summary>Hint</summary>{WORDS}</details>")
    drawing = code("x = 1\n" * 200, metadata={"tags": ["hide-input"]})
    solution = code("x = 1\n" * 200, metadata={"nbgrader": {"solution": True}})
    deeper = [text(f"## Going deeper\n\n{WORDS}"), code("x = 1\n" * 200)]
    notebook = make(text(WORDS), folded, drawing, solution, *deeper, text("## Recap"))
    assert count_minutes(notebook) == 10
    assert [cell.source[:8] for cell in find_core(notebook)[-1:]] == ["## Recap"]


def test_they_stand_in_the_metadata_and_in_the_title():
    notebook = make(text("# 05 · Mixup\n\nMinutes: 1 · Seam: *batch*"), text(WORDS))
    set_minutes(notebook)
    assert notebook.metadata["course"]["minutes"] == 10
    assert "\nMinutes: 10 · Seam" in notebook.cells[0].source
