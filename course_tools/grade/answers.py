"""Which cells of a notebook are answers, and of which lesson.

Jupyter keeps the ``grade_id`` of an answer when a browser or JupyterLab renames the file. Other
programs lose it: then the answer is the cell that defines the function asked for.
"""

import ast
import re
from collections.abc import Sequence
from pathlib import Path

import nbformat

from course_tools.console import make_printable
from course_tools.grade.exercises import LessonExercises
from course_utils.errors import CourseError

__all__ = ["find_answers", "find_stub", "identify_lesson", "is_check", "read_id"]


def _simplify(name: str) -> str:
    return name.replace("_", "").casefold()  # the exercise `adapter` asks for a class `Adapter`


def _list_definitions(source: str) -> set[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a student's cell, or a magic
        return set(re.findall(r"^(?:def|class) (\w+)", source, re.MULTILINE))
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {statement.name for statement in tree.body if isinstance(statement, kinds)}


def _read_about(cell: nbformat.NotebookNode) -> dict:
    """nbgrader's metadata of a cell; empty where they are lost or damaged."""
    about = cell.metadata.get("nbgrader")
    return about if isinstance(about, dict) else {}


def is_check(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell is marked as the check of an exercise."""
    return bool(_read_about(cell).get("grade"))


def read_id(cell: nbformat.NotebookNode) -> str:
    """The ``grade_id`` of a cell; empty where there is none."""
    name = _read_about(cell).get("grade_id")
    return name if isinstance(name, str) else ""


def find_stub(source: str, exercise: str) -> str:
    """The function or class of an answer that is still the stub; empty if it is not.

    It is the one that was handed out, where each function does nothing but raise a
    ``NotImplementedError`` without a message.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    kinds = (ast.FunctionDef, ast.ClassDef)
    asked = [
        x for x in tree.body if isinstance(x, kinds) and _simplify(x.name) == _simplify(exercise)
    ]
    if len(asked) != 1 or len(tree.body) != 1:
        return ""
    functions = [x for x in ast.walk(asked[0]) if isinstance(x, ast.FunctionDef)]
    untouched = functions and all(_only_raises(function) for function in functions)
    return asked[0].name if untouched else ""


def _only_raises(function: ast.FunctionDef) -> bool:
    statements = [x for x in function.body if not _is_docstring(x)]
    return len(statements) == 1 and ast.unparse(statements[0]) in (
        "raise NotImplementedError()",
        "raise NotImplementedError",
    )


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _find_by_id(notebook: nbformat.NotebookNode, lesson: LessonExercises) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    names = {exercise.name for exercise in lesson.exercises}
    for index, cell in enumerate(notebook.cells):
        is_answer = cell.cell_type == "code" and _read_about(cell).get("solution")
        if is_answer and read_id(cell) in names:
            found.setdefault(read_id(cell), []).append(index)
    return found


def _find_by_definition(
    notebook: nbformat.NotebookNode, lesson: LessonExercises
) -> dict[str, list[int]]:
    """The last cell that defines what an exercise is called: in Jupyter it is the one that counts.

    Cells with a ``grade_id`` are left out.
    """
    names = {_simplify(exercise.name): exercise.name for exercise in lesson.exercises}
    found: dict[str, list[int]] = {}
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type == "code" and not read_id(cell):
            for definition in map(_simplify, _list_definitions(cell.source)):
                if definition in names:
                    found[names[definition]] = [index]
    return found


def find_answers(notebook: nbformat.NotebookNode, lesson: LessonExercises) -> dict[str, list[int]]:
    """For each exercise that is answered the numbers of its cells: several are a student's fault.

    An answer is found by its ``grade_id``, and where no cell has it, by what the cell defines.
    """
    return _find_by_definition(notebook, lesson) | _find_by_id(notebook, lesson)


def _has_name(stem: str, lesson: LessonExercises) -> bool:
    """Whether a file is called like the lesson, perhaps with something added."""
    return re.match(rf"{re.escape(lesson.name)}(?![a-z0-9])", stem, re.IGNORECASE) is not None


def identify_lesson(
    path: Path, notebook: nbformat.NotebookNode | None, lessons: Sequence[LessonExercises]
) -> LessonExercises:
    """The lesson whose exercises a notebook holds, by what is most certain.

    First come the ``grade_id`` of its cells, then the name of its file, then the functions that it
    defines, then the number that the name begins with.

    Args:
        path: its file.
        notebook: None where it cannot be read.
        lessons: all lessons with exercises.

    Raises:
        CourseError: no lesson fits, or several do.
    """
    named = [lesson for lesson in lessons if _has_name(path.stem, lesson)]
    if notebook is not None:
        by_id = _find_most(lessons, [len(_find_by_id(notebook, lesson)) for lesson in lessons])
        by_definition = _find_most(
            lessons, [len(_find_by_definition(notebook, lesson)) for lesson in lessons]
        )
    else:
        by_id = by_definition = []
    number = re.match(r"\d\d(?!\d)", path.stem)
    numbered = [lesson for lesson in lessons if number and lesson.name.startswith(number[0])]
    for found in (by_id, named, by_definition, numbered):
        if len(found) > 1:  # of these the one that the file's name says
            found = [lesson for lesson in found if lesson in named] or found
        if len(found) == 1:
            return found[0]
        if found:
            names = " and ".join(lesson.name for lesson in found)
            shown = make_printable(path.name)
            raise CourseError(f"{shown} holds answers of {names}: make a notebook for each")
    example = f"{lessons[0].name}.ipynb"
    raise CourseError(
        f"{make_printable(path.name)}: neither its name nor its cells are those of a lesson with "
        f"exercises: call it like {example}"
    )


def _find_most(lessons: Sequence[LessonExercises], counts: list[int]) -> list[LessonExercises]:
    most = max(counts, default=0)
    return [x for x, count in zip(lessons, counts, strict=True) if most and count == most]
