"""A notebook is recognised whatever it is called, and its answers whatever became of its cells."""

import ast
from pathlib import Path

import nbformat
import pytest

from course_tools.grade import check
from course_tools.grade.answers import find_answers, find_stub, identify_lesson
from course_tools.grade.check import check_notebook
from course_tools.grade.exercises import find_exercises
from course_tools.grade.progress import is_untouched
from course_tools.publish.release import clear_solutions
from course_tools.run.lessons import find_lessons
from course_utils.errors import CourseError
from tests.tools.grade.conftest import GOOD, LESSON, make_notebook

LESSONS = find_exercises()
SOURCES = {lesson.name: lesson.read() for lesson in find_lessons()}


def lose_metadata(notebook):
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
    return notebook


@pytest.mark.parametrize("name", ["05_mixup_ben_final (1)", "05_mixup-Copy1", "homework", "07_x"])
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_every_lesson_is_recognised_by_its_cells(name, lesson):
    """The name is that of another lesson, or of none."""
    path = Path(f"{name}.ipynb")
    assert identify_lesson(path, SOURCES[lesson.name], LESSONS) == lesson


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_every_lesson_is_recognised_by_its_functions(lesson):
    notebook = lose_metadata(nbformat.from_dict(SOURCES[lesson.name]))
    assert identify_lesson(Path("homework.ipynb"), notebook, LESSONS) == lesson
    assert set(find_answers(notebook, lesson)) == {x.name for x in lesson.exercises}


@pytest.mark.parametrize("name", ["05_mixup", "05_MIXUP (2)", "05_mixup_ben", "05-homework", "05"])
def test_a_notebook_that_cannot_be_read_is_recognised_by_its_name(name):
    assert identify_lesson(Path(f"{name}.ipynb"), None, LESSONS).name == "05_mixup"


@pytest.mark.parametrize("name", ["mine", "2026-11-22", "77_none"])
def test_a_notebook_of_no_lesson(name):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x = 1")])
    with pytest.raises(
        CourseError, match=r"neither its name .*: call it like 00_start_here\.ipynb"
    ):
        identify_lesson(Path(f"{name}.ipynb"), notebook, LESSONS)


def take_answers(name, count):
    """The cells of a lesson's first answers."""
    lesson = next(lesson for lesson in LESSONS if lesson.name == name)
    wanted = {exercise.name for exercise in lesson.exercises[:count]}
    cells = SOURCES[name].cells
    return [cell for cell in cells if cell.metadata.get("nbgrader", {}).get("grade_id") in wanted]


def test_a_notebook_with_as_many_answers_of_two_lessons():
    cells = [cell for name in ("05_mixup", "06_label_smoothing") for cell in take_answers(name, 3)]
    both = nbformat.v4.new_notebook(cells=cells)
    with pytest.raises(CourseError, match="answers of 05_mixup and 06_label_smoothing: make a"):
        identify_lesson(Path("homework.ipynb"), both, LESSONS)
    assert identify_lesson(Path("05_mixup.ipynb"), both, LESSONS).name == "05_mixup"


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


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_an_untouched_lesson_is_checked_without_a_kernel(lesson, monkeypatch):
    monkeypatch.setattr(check, "LimitedKernel", None)
    results = check_notebook(clear_solutions(SOURCES[lesson.name]), lesson)
    assert all(is_untouched(result) and result.points == 0 for result in results)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_check_cell_imports_what_it_needs(lesson):
    for exercise in lesson.exercises:
        bound, needed = set(), set()
        for node in ast.walk(ast.parse(exercise.check)):
            if isinstance(node, ast.alias):
                bound.add(node.asname or node.name)
            elif isinstance(node, ast.Name):
                needed.add(node.id)
        assert {name.replace("_", "").lower() for name in needed - bound} == {
            exercise.name.replace("_", "")
        }
