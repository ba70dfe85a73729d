"""The exercises of the toy lesson 01_numbers, and notebooks that answer them."""

import nbformat
import pytest

from course_tools.grade.check import Result
from course_tools.grade.exercises import Exercise, LessonExercises
from tests.tools.toy_lessons import CHECKS, GOOD, IMPORT

LESSON = LessonExercises(
    name="01_numbers",
    imports=IMPORT,
    exercises=tuple(Exercise(x, n, CHECKS[x]) for n, x in enumerate(CHECKS, 1)),
    cell_ids=(),
)
STUB = "def {}(x):\n    raise NotImplementedError()"
STUBS = {name: STUB.format(name) for name in GOOD}


def make_notebook(metadata=True, **answers):
    """A notebook with right answers, but for what ``answers`` say."""
    cells = [nbformat.v4.new_markdown_cell("## Exercises")]
    for name, source in (GOOD | answers).items():
        about = {"grade_id": name, "solution": True, "grade": False}
        cell = nbformat.v4.new_code_cell(source, metadata={"nbgrader": about} if metadata else {})
        cells.append(cell)
    return nbformat.v4.new_notebook(cells=cells)


def hand_in(folder, name, *, metadata=True, **answers):
    """Write ``<folder>/<name>``: a notebook as `make_notebook` makes it."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(nbformat.writes(make_notebook(metadata, **answers)), encoding="utf-8")
    return path


class PretendCheck:
    """Stands for a `Supervisor`, starts no process: an answer is right if it is that of `GOOD`."""

    def __init__(self):
        self.checked = 0

    def __call__(self, notebook, lesson, limits):
        self.checked += 1
        sources = {cell.source for cell in notebook.cells}
        wrong = {x.name: "" if GOOD[x.name] in sources else "wrong" for x in lesson.exercises}
        return [Result.make(x, wrong[x.name]) for x in lesson.exercises]


@pytest.fixture
def pretend_check():
    return PretendCheck()
