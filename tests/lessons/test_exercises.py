"""Every exercise of every lesson: right answers pass, the stub and planted wrong ones fail.

A lesson joins by existing. Faults that a check knows stand in the check alone, as wrong answers
(`course_utils.checking.checking.ExerciseCheck.faults`). All other planted answers stand in
``lesson_code/<name>/answers.py``: ``WRONG_ANSWERS`` maps an exercise (its ``grade_id``) to pairs of
a source and a part of the sentence that must reject it, ``OTHER_RIGHT_ANSWERS`` to sources. The
last test prints what the others have shown in this session.
"""

import ast
import contextlib
import io
import itertools
import random
import re
import tokenize
from collections import Counter, defaultdict
from importlib import import_module

import nbformat
import numpy as np
import pytest
import torch
from nbgrader.preprocessors import ClearSolutions

from course_utils.checking import checking
from course_utils.checking.checking import CheckFailed, ExerciseCheck
from tests.places import find_notebooks


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
    return import_module(f"lesson_code.{path.stem.partition('_')[2]}.answers")


def clear_solution(cell):
    notebook = nbformat.v4.new_notebook(cells=[cell.copy()])
    notebook.metadata["kernelspec"] = {"language": "python", "name": "python3"}
    cleared, _ = ClearSolutions().preprocess(notebook, {})
    return cleared.cells[0].source


def run_cells(*cells):
    """Run cells as the notebook would; returns the names that they define, and what they print."""
    namespace: dict = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for code in cells:
            exec(compile(code, "<cell>", "exec"), namespace)
    return namespace, printed.getvalue()


def answer(imports, source, check):
    """Run an answer and its check; returns what the check printed."""
    return run_cells(imports, source, check)[1]


def find_check(imports, source, check):
    """The function that the check's cell calls in its last line."""
    namespace, _ = run_cells(imports, source, check)
    called = ast.parse(check).body[-1].value.func
    return eval(ast.unparse(called), namespace)


@contextlib.contextmanager
def keep_random_state(seed):
    """In place of the checks' own seeding: what was drawn can be seen afterwards."""
    torch.manual_seed(seed)
    yield


@pytest.fixture
def seeds(monkeypatch):
    """A function that yields three seeds of the checks: nothing may pass or fail by luck.

    Where the run drew no random number of torch, another seed would change nothing.
    """
    monkeypatch.setattr(checking, "_seeded", keep_random_state)

    def draw():
        for number in range(3):
            monkeypatch.setattr(checking, "SEED", number)
            yield number
            after = torch.get_rng_state()
            if after.equal(torch.manual_seed(number).get_state()):
                return

    return draw


def normalise(source):
    """Its tokens without imports and docstrings; names of its own become their rank of appearance.

    Two sources that differ in names, comments and layout alone have the same tokens.
    """
    tree = ast.parse(source)
    own = set()
    for node in ast.walk(tree):
        if isinstance(getattr(node, "body", None), list):
            node.body = [line for line in node.body if not is_import_or_docstring(line)]
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            own.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler):
            own.add(node.name)
    ranks: dict = {}
    tokens = tokenize.generate_tokens(io.StringIO(ast.unparse(tree)).readline)
    words = [token.string for token in tokens if token.string.strip()]
    return tuple(ranks.setdefault(word, len(ranks)) if word in own else word for word in words)


def is_import_or_docstring(line):
    constant = isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
    return constant or isinstance(line, ast.Import | ast.ImportFrom)


LESSONS = find_notebooks()
EXERCISES = [
    pytest.param(path, *exercise, id=f"{path.stem}-{exercise[0]}")
    for path in LESSONS
    for exercise in read_exercises(path)[1]
]


PROVED: defaultdict = defaultdict(Counter)  # (lesson, exercise) to what its tests have shown
RUN = set()  # names of the tests that were run


@pytest.fixture(autouse=True)
def _note_run(request):
    RUN.add(request.node.name)


@pytest.mark.parametrize(("path", "grade_id", "cell", "check"), EXERCISES)
def test_solution_passes(path, grade_id, cell, check, seeds):
    for _ in seeds():
        assert "passed" in answer(read_exercises(path)[0], cell.source, check)
    PROVED[path.stem, grade_id]["solution"] += 1


@pytest.mark.parametrize(("path", "grade_id", "cell", "check"), EXERCISES)
def test_stub_fails(path, grade_id, cell, check):
    with pytest.raises(CheckFailed, match="is not written yet") as found:
        answer(read_exercises(path)[0], clear_solution(cell), check)
    assert type(found.value.__context__) is NotImplementedError
    assert not found.value.__context__.args
    PROVED[path.stem, grade_id]["stub"] += 1


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")  # a planted fault
@pytest.mark.parametrize(("path", "grade_id", "cell", "check"), EXERCISES)
def test_wrong_answers_fail_and_are_told_why(path, grade_id, cell, check, seeds):
    for source, sentence in load_answers(path).WRONG_ANSWERS[grade_id]:
        for _ in seeds():
            with pytest.raises(CheckFailed, match=sentence) as found:
                answer(read_exercises(path)[0], source, check)
            assert "\n" not in str(found.value)
        PROVED[path.stem, grade_id]["wrong"] += 1


@pytest.mark.parametrize(("path", "grade_id", "cell", "check"), EXERCISES)
def test_faults_that_the_check_knows_are_told(path, grade_id, cell, check, seeds):
    found = find_check(read_exercises(path)[0], cell.source, check)
    assert isinstance(found, ExerciseCheck)
    for sentence, fault in found.faults:
        for _ in seeds():
            with pytest.raises(CheckFailed, match=re.escape(sentence)):
                found(fault)
        PROVED[path.stem, grade_id]["wrong"] += 1


@pytest.mark.parametrize(("path", "grade_id", "cell", "check"), EXERCISES)
def test_other_right_answers_pass(path, grade_id, cell, check, seeds):
    """A check compares what an answer does, not how it is written."""
    others = load_answers(path).OTHER_RIGHT_ANSWERS[grade_id]
    assert len({normalise(source) for source in (cell.source, *others)}) == 1 + len(others)
    for source in others:
        for _ in seeds():
            assert "passed" in answer(read_exercises(path)[0], source, check)
        PROVED[path.stem, grade_id]["other"] += 1


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_every_exercise_has_planted_answers(path):
    answers = load_answers(path)
    exercises = {found[0] for found in read_exercises(path)[1]}
    assert set(answers.WRONG_ANSWERS) == set(answers.OTHER_RIGHT_ANSWERS) == exercises


def draw_numbers():
    return random.random(), np.random.rand(), torch.rand(()).item()


def test_checks_draw_the_same_numbers_always_and_leave_the_random_state():
    drawn = []

    def fail_by_luck(answer):
        drawn.append(draw_numbers())
        raise CheckFailed("no")

    for number in range(2):
        random.seed(number)
        np.random.seed(number)
        torch.manual_seed(number)
        with checking._seeded(number):
            expected = draw_numbers()
        with pytest.raises(CheckFailed, match="no"):
            ExerciseCheck(fail_by_luck)(None)
        assert draw_numbers() == expected
    assert drawn[0] == drawn[1]


def test_renaming_does_not_make_another_answer():
    one = 'def f(x, y):\n    """Adds."""\n    total = x + y  # both\n    return total'
    other = "import math\ndef f(b, a):\n\n    c = (b + a)\n    return c"
    assert normalise(one) == normalise(other)
    assert normalise(one) != normalise(one.replace("x + y", "y + x"))


def read_points(path, grade_id):
    cells = nbformat.read(path, as_version=4).cells
    graded = [cell.metadata["nbgrader"] for cell in cells if "nbgrader" in cell.metadata]
    return next(c["points"] for c in graded if c["grade_id"] == f"check_{grade_id}")


def test_table_of_what_was_shown(record_property):
    """Counts of what the tests above have shown in this session, not of what is written down."""
    right = (test_solution_passes, test_other_right_answers_pass)
    wrong = (test_wrong_answers_fail_and_are_told_why, test_faults_that_the_check_knows_are_told)
    needed = itertools.product((*right, *wrong, test_stub_fails), EXERCISES)
    if not {f"{test.__name__}[{exercise.id}]" for test, exercise in needed} <= RUN:
        pytest.skip("only some of the tests above were run: run the whole file")
    rows = [("lesson", "exercise", "points", "wrong rejected", "right accepted")]
    for path, grade_id, *_ in (exercise.values for exercise in EXERCISES):
        shown = PROVED[path.stem, grade_id]
        right = shown["solution"] + shown["other"]
        points = read_points(path, grade_id)
        rows.append((path.stem, grade_id, points, shown["wrong"], right))
    lines = [
        f"{lesson:28}{exercise:24}" + "".join(f"{number:>16}" for number in numbers)
        for lesson, exercise, *numbers in rows
    ]
    record_property("summary", "\n".join(["", *lines]))
    for exercise in EXERCISES:
        path, grade_id, *_ = exercise.values
        shown = PROVED[path.stem, grade_id]
        assert shown["solution"] == shown["stub"] == 1, exercise.id
        assert shown["wrong"] >= 3, exercise.id
        assert shown["other"] >= 2, exercise.id
