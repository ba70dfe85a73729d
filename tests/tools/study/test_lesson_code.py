"""What a notebook defines can be used without its trainings."""

import nbformat
import pytest

from course_tools.study import lesson_code
from course_tools.study.lesson_code import read_definitions


@pytest.fixture
def lesson(tmp_path, monkeypatch):
    """Writes a notebook ``01_toy`` from ``(source, metadata)`` of its code cells."""
    monkeypatch.setattr(lesson_code, "ROOT", tmp_path)
    (tmp_path / "notebooks").mkdir()

    def write(*cells):
        made = [nbformat.v4.new_code_cell(source, metadata=about) for source, about in cells]
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("text"), *made])
        nbformat.write(notebook, tmp_path / "notebooks" / "01_toy.ipynb")

    return write


def test_functions_and_classes_are_defined_and_nothing_else_runs(lesson):
    lesson(
        ("import math", {"tags": ["imports"]}),
        ("trained = 1 / 0", {}),
        ("def double(x):\n    return SCALE * x\n\n\nraise SystemExit", {}),
        ("class Root:\n    value = math.sqrt(4)", {}),
    )
    found = read_definitions("01_toy", SCALE=2)
    assert found["double"](3) == 6
    assert found["Root"].value == 2
    assert "trained" not in found


def test_cards_exercises_and_scripts_are_left_out(lesson):
    lesson(
        ("import math", {"tags": ["imports"]}),
        ("def kept():\n    return 1", {}),
        ("def kept():\n    return 2", {"tags": ["card"]}),
        ("def kept():\n    return 3", {"nbgrader": {"solution": True}}),
        ("%%writefile script.py\ndef kept():\n    return 4", {}),
    )
    assert read_definitions("01_toy")["kept"]() == 1
