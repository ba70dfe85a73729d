"""nbgrader works on notebooks as they are: generate, autograde, export, and bad submissions.

The lesson is a toy; that the real ones fit: tests/lessons/test_nbgrader_course.py.
"""

import copy

import nbformat
import pytest

from tests.nbgrader import make_class, read_scores, run_nbgrader
from tests.tools.conftest import find_cell
from tests.tools.toy_lessons import KERNEL, make_answer, make_text

LESSON = "01_sums"
NAMES = ("one", "two", "three", "four", "five", "six")  # each is worth as many points


def make_source():
    """A lesson of six exercises, which imports nothing: each adds a number."""
    cells = [make_text("exercises", "## Exercises")]
    for number, name in enumerate(NAMES, 1):
        answer, check = make_answer(name, f"def {name}(x):\n    return x + {number}", number)
        check.source = f"assert {name}(1) == {1 + number}"
        cells += [answer, check]
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": KERNEL})


def hand_in(folder, student, released, solved, **changed):
    """The released notebook with right answers, but for what is changed; None: the cell is gone."""
    source, notebook = make_source(), copy.deepcopy(released)
    for name in solved:
        find_cell(notebook, name).source = find_cell(source, name).source
    for name, text in changed.items():
        if text is None:
            notebook.cells.remove(find_cell(notebook, name))
        else:
            find_cell(notebook, name).source = text
    path = folder / "submitted" / student / LESSON / f"{LESSON}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)


@pytest.fixture(scope="module")
def gradebook(tmp_path_factory):
    """Students who hand in a half-right notebook, a broken one, and one that fills the memory."""
    folder = tmp_path_factory.mktemp("class")
    limits = {"timeout = 120  #": "timeout = 5  #", "6 * 2**30": "2**30"}
    released = make_class(folder, LESSON, make_source(), limits)
    assert "### BEGIN SOLUTION" not in "".join(cell.source for cell in released.cells)
    wrong = {"five": "def five(x):\n    return 0"}
    hand_in(folder, "half", released, NAMES[:4], **wrong)
    broken = {
        "one": "def one(:",  # a syntax error
        "check_two": None,  # a deleted check cell
        "three": "while True:\n    pass",
        "four": "def quatre(x):\n    return x + 4",
    }
    hand_in(folder, "broken", released, NAMES, **broken)
    hoard = "all = []\nwhile True:\n    all.append(bytearray(2**28))"
    hand_in(folder, "hoarder", released, NAMES, five=hoard)
    # 1 where the hoarder's kernel dies of it: then nbgrader names the student, and goes on
    log = run_nbgrader(folder, "autograde", LESSON, "--create", statuses=(0, 1))
    return read_scores(folder), log


def test_right_answers_get_their_points_and_wrong_ones_and_stubs_none(gradebook):
    scores, _ = gradebook
    assert scores["half"] == 1 + 2 + 3 + 4


def test_a_broken_submission_loses_only_what_is_broken(gradebook):
    scores, log = gradebook
    assert scores["broken"] == 5 + 6
    assert "Timeout waiting for execute reply" in log


def test_a_submission_that_fills_the_memory_harms_no_other(gradebook):
    scores, log = gradebook
    named = f"There was an error processing assignment '{LESSON}' for student 'hoarder'"
    score = scores.get("hoarder", 0)
    assert score < sum(range(1, 7))
    assert named in log or score >= 1 + 2 + 3 + 4  # what stands above the full cell
