"""A notebook is recognised whatever it is called, and its answers whatever became of its cells."""

from pathlib import Path

import nbformat
import pytest

from course_tools.grade.answers import find_answers, find_stub, identify_lesson
from course_tools.grade.check import check_notebook
from course_tools.grade.exercises import Exercise, LessonExercises
from course_utils.errors import CourseError
from tests.tools.grade.conftest import LESSON, make_notebook
from tests.tools.toy_lessons import GOOD, IMPORT, make_answer

SIGNS = LessonExercises(
    name="02_signs",
    imports=IMPORT,
    exercises=(Exercise("negate", 1, "negate(1)"), Exercise("absolute", 1, "absolute(1)")),
    cell_ids=(),
)
LESSONS = [LESSON, SIGNS]


def lose_metadata(notebook):
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
    return notebook


@pytest.mark.parametrize("name", ["02_signs_ben_final (1)", "02_signs-Copy1", "homework", "07_x"])
def test_a_lesson_is_recognised_by_its_cells(name):
    """The name is that of another lesson, or of none."""
    assert identify_lesson(Path(f"{name}.ipynb"), make_notebook(), LESSONS) == LESSON


@pytest.mark.parametrize("name", ["homework", "02", "07_x"])
def test_a_lesson_is_recognised_by_its_functions(name):
    notebook = lose_metadata(make_notebook())
    assert identify_lesson(Path(f"{name}.ipynb"), notebook, LESSONS) == LESSON


@pytest.mark.parametrize("name", ["02_signs", "02_SIGNS (2)", "02_signs_ben", "02-homework", "02"])
def test_a_notebook_that_cannot_be_read_is_recognised_by_its_name(name):
    assert identify_lesson(Path(f"{name}.ipynb"), None, LESSONS) == SIGNS


@pytest.mark.parametrize("name", ["mine", "2026-11-22", "77_none"])
def test_a_notebook_of_no_lesson(name):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x = 1")])
    with pytest.raises(CourseError, match=r"neither its name .*: call it like 01_numbers\.ipynb"):
        identify_lesson(Path(f"{name}.ipynb"), notebook, LESSONS)


def test_a_notebook_with_as_many_answers_of_two_lessons():
    notebook = make_notebook()
    for exercise in SIGNS.exercises:
        answer, _ = make_answer(exercise.name, f"def {exercise.name}(x):\n    return x")
        notebook.cells.append(answer)
    with pytest.raises(CourseError, match="answers of 01_numbers and 02_signs: make a"):
        identify_lesson(Path("homework.ipynb"), notebook, LESSONS)
    assert identify_lesson(Path("02_signs.ipynb"), notebook, LESSONS) == SIGNS


def test_an_answer_is_the_cell_with_its_id_and_without_ids_the_last_that_defines_it():
    notebook = make_notebook()
    trial = nbformat.v4.new_code_cell(GOOD["double"])
    notebook.cells.append(trial)
    assert find_answers(notebook, LESSON) == {"double": [1], "triple": [2]}
    assert find_answers(lose_metadata(notebook), LESSON) == {"double": [3], "triple": [2]}


def test_a_magic_or_a_syntax_error_hides_no_answer():
    notebook = make_notebook(metadata=False, double=f"%matplotlib inline\n{GOOD['double']}\n(")
    assert set(find_answers(notebook, LESSON)) == {"double", "triple"}


@pytest.mark.parametrize("damage", ["a word", 5, [], {"grade_id": []}, {"solution": "yes"}])
def test_damaged_metadata_are_lost_metadata(damage):
    notebook = make_notebook()
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({"nbgrader": damage, "tags": damage})
    assert isinstance(find_answers(notebook, LESSON), dict)


def test_answers_without_metadata_are_checked():
    """As a program leaves them that knows nothing of nbgrader; imports of one's own stay."""
    notebook = make_notebook(metadata=False, triple="def triple(x):\n    return math.prod([3, x])")
    imports = nbformat.v4.new_code_cell(f"{LESSON.imports}\nimport math")
    checks = [nbformat.v4.new_code_cell(exercise.check) for exercise in LESSON.exercises]
    notebook.cells = [imports, *notebook.cells, *checks]
    results = check_notebook(notebook, LESSON)
    assert [result.message for result in results] == ["", ""]


STUB = "def double(x):\n    '''Twice.'''\n    # YOUR CODE HERE\n    raise NotImplementedError()"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (STUB, "double"),
        ("class Double:\n    def one(self):\n        raise NotImplementedError", "Double"),
        (STUB.replace("raise", "return 2 * x\n    raise"), ""),
        (STUB + "\nprint(1)", ""),
        (STUB.replace("()", "('soon')"), ""),
        (STUB.replace("def double", "def triple"), ""),
        ("def double(x):\n    return 2 * x", ""),
        ("def double(x:", ""),
        ("class Double:\n    pass", ""),
    ],
)
def test_an_answer_that_nobody_has_begun(source, found):
    assert find_stub(source, "double") == found
