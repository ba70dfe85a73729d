"""Every exercise of every lesson: right answers pass, the stub and planted wrong ones fail.

A lesson joins by existing; its planted answers stand in ``answers_<name>.py``.
"""

import contextlib
import importlib.util
import io
import itertools
from pathlib import Path

import nbformat
import pytest
import torch
from nbgrader.preprocessors import ClearSolutions

from course_utils.checks import CheckFailed
from tests.conftest import find_notebooks

HERE = Path(__file__).parent


def read_exercises(path):
    """``(grade_id, solution, check)`` of each exercise, and the lesson's import cell."""
    cells = nbformat.read(path, as_version=4).cells
    imports = next(c.source for c in cells if "imports" in c.metadata.get("tags", []))
    graded = [c for c in cells if "nbgrader" in c.metadata]
    solutions = [c for c in graded if c.metadata["nbgrader"]["solution"]]
    checks = [c for c in graded if c.metadata["nbgrader"]["grade"]]
    assert len(solutions) == len(checks), path
    return imports, [
        (s.metadata["nbgrader"]["grade_id"], s, c.source)
        for s, c in zip(solutions, checks, strict=True)
    ]


def load_answers(path):
    name = path.stem.split("_", 1)[1]
    file = HERE / f"answers_{name}.py"
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def clear_solution(cell):
    notebook = nbformat.v4.new_notebook(cells=[cell.copy()])
    notebook.metadata["kernelspec"] = {"language": "python", "name": "python3"}
    cleared, _ = ClearSolutions().preprocess(notebook, {})
    return cleared.cells[0].source


def answer(imports, source, check):
    """Run an answer and its check as the notebook would; returns what the check printed."""
    namespace: dict = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for code in (imports, source, check):
            exec(compile(code, "<cell>", "exec"), namespace)
    return printed.getvalue()


LESSONS = [path for path in find_notebooks() if not path.stem.startswith("00")]
EXERCISES = [
    pytest.param(path, *exercise, id=f"{path.stem}-{exercise[0]}")
    for path in LESSONS
    for exercise in read_exercises(path)[1]
]


@pytest.mark.parametrize(("path", "grade_id", "cell", "check"), EXERCISES)
def test_solution_passes(path, grade_id, cell, check):
    assert "passed" in answer(read_exercises(path)[0], cell.source, check)


@pytest.mark.parametrize(("path", "grade_id", "cell", "check"), EXERCISES)
def test_stub_fails(path, grade_id, cell, check):
    with pytest.raises(CheckFailed, match="is not written yet"):
        answer(read_exercises(path)[0], clear_solution(cell), check)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")  # a planted fault
@pytest.mark.parametrize(("path", "grade_id", "cell", "check"), EXERCISES)
def test_wrong_answers_fail_and_are_told_why(path, grade_id, cell, check):
    wrong = load_answers(path).WRONG_ANSWERS[grade_id]
    assert len(wrong) >= 3
    for (source, sentence), seed in itertools.product(wrong, range(3)):  # no rejection by luck
        torch.manual_seed(seed)
        with pytest.raises(CheckFailed, match=sentence) as found:
            answer(read_exercises(path)[0], source, check)
        assert "\n" not in str(found.value)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_lesson_has_three_exercises_and_one_finds_bugs(path):
    assert len(read_exercises(path)[1]) >= 3
    text = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
    assert "find the bug" in text.lower()
    assert set(load_answers(path).WRONG_ANSWERS) == {found[0] for found in read_exercises(path)[1]}


@pytest.mark.parametrize(("path", "grade_id", "cell", "check"), EXERCISES)
def test_other_right_answers_pass(path, grade_id, cell, check):
    """A check compares what an answer does, not how it is written."""
    other = load_answers(path).OTHER_RIGHT_ANSWERS[grade_id]
    assert "passed" in answer(read_exercises(path)[0], other, check)
