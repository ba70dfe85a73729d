"""A student's notebook of a real lesson is recognised, and its checks stand on their own."""

import ast
from pathlib import Path
from unittest import mock

import nbformat

from course_tools.grade import check
from course_tools.grade.answers import find_answers, identify_lesson
from course_tools.grade.check import check_notebook
from course_tools.grade.exercises import find_exercises
from course_tools.grade.progress import is_untouched
from course_tools.publish.release import clear_solutions
from tests.text.offenders import for_each, read_lessons

LESSONS = find_exercises()


def list_exercises():
    return [(lesson.name, lesson) for lesson in LESSONS]


def lose_metadata(notebook):
    cleared = nbformat.from_dict(notebook)
    for cell in cleared.cells:
        cell.metadata = nbformat.from_dict({})
    return cleared


@for_each(list_exercises)
def test_every_lesson_is_recognised_by_its_cells(name, lesson):
    other = Path("05_mixup-Copy1.ipynb" if name != "05_mixup" else "01_baseline-Copy1.ipynb")
    assert identify_lesson(other, read_lessons()[name], LESSONS) == lesson


@for_each(list_exercises)
def test_every_lesson_is_recognised_by_its_functions(name, lesson):
    notebook = lose_metadata(read_lessons()[name])
    assert identify_lesson(Path("homework.ipynb"), notebook, LESSONS) == lesson
    assert set(find_answers(notebook, lesson)) == {x.name for x in lesson.exercises}


@for_each(list_exercises)
def test_an_untouched_lesson_is_checked_without_a_kernel(name, lesson):
    with mock.patch.object(check, "LimitedKernel", None):
        results = check_notebook(clear_solutions(read_lessons()[name]), lesson)
    assert all(is_untouched(result) and result.points == 0 for result in results)


@for_each(list_exercises)
def test_a_check_cell_imports_what_it_needs(name, lesson):
    for exercise in lesson.exercises:
        nodes = list(ast.walk(ast.parse(exercise.check)))
        bound = {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}
        needed = {node.id for node in nodes if isinstance(node, ast.Name)} - bound
        if {x.replace("_", "").lower() for x in needed} != {exercise.name.replace("_", "")}:
            yield f"{exercise.name} reads {', '.join(sorted(needed))}"
