"""Every exercise of every lesson: right answers pass, the stub and planted wrong ones fail.

A lesson joins by existing. Its planted answers stand in ``lesson_code/<name>/answers.py``; see
`course_tools.publish.planted`.
"""

import ast
import contextlib
import io
import random
import re
import tokenize
from functools import partial
from itertools import chain
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from nbgrader.preprocessors import ClearSolutions

import lesson_code
from course_tools.publish.planted import (
    apply_patch,
    find_check,
    list_exercises,
    run_cells,
    store_outputs,
)
from course_tools.run.lessons import find_lessons
from course_utils.checking import checking
from course_utils.checking.checking import CheckFailed, ExerciseCheck, checks_exercise
from course_utils.checking.outputs import Expected, Fault, Output, find_sentence
from course_utils.errors import CourseError

MIN_WRONG, MIN_RIGHT = 3, 2  # planted answers of an exercise, beside its solution


def clear_solution(exercise):
    about = {"grade": False, "grade_id": "a", "locked": False, "schema_version": 3}
    cell = nbformat.v4.new_code_cell(exercise.solution)
    cell.metadata["nbgrader"] = about | {"solution": True, "task": False}
    notebook = nbformat.v4.new_notebook(cells=[cell])
    notebook.metadata["kernelspec"] = {"language": "python", "name": "python3"}
    cleared, _ = ClearSolutions().preprocess(notebook, {})
    return cleared.cells[0].source


def answer(exercise, source):
    """Run an answer and its check; returns what the check printed."""
    return run_cells(exercise.imports, source, exercise.check)[1]


@contextlib.contextmanager
def keep_random_state(seed):
    """In place of the checks' own seeding: what was drawn can be seen afterwards."""
    torch.manual_seed(seed)
    yield


@pytest.fixture
def seeds(monkeypatch, request):
    """A function that yields seeds of the check: its own, and at night two more.

    So nothing passes or fails by luck. Stored outputs are those of one seed alone, and where the
    run drew no random number of torch, another seed would change nothing.
    """

    def draw(exercise):
        yield checking.SEED
        if not request.config.option.nightly or find_check(exercise).compares:
            return
        monkeypatch.setattr(checking, "_seeded", keep_random_state)
        for number in (1, 2):
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


EXERCISES = [
    pytest.param(exercise, id=f"{lesson.name}-{exercise.name}")
    for lesson in find_lessons()
    for exercise in list_exercises(lesson)
]
every_exercise = pytest.mark.parametrize("exercise", EXERCISES)


def is_experiment(exercise):
    """Whether its answers train, for some twenty seconds each."""
    return "(config, data)" in exercise.solution


def list_right_answers():
    """Those that train run where their lesson has changed, and all of them at night."""
    for case in EXERCISES:
        (exercise,) = case.values
        marks = [pytest.mark.lesson_changed] if is_experiment(exercise) else []
        yield pytest.param(exercise, id=case.id, marks=marks)


@every_exercise
def test_right_answers_differ(exercise):
    assert len(exercise.right) >= MIN_RIGHT
    sources = (exercise.solution, *exercise.right)
    assert len({normalise(source) for source in sources}) == len(sources)


@pytest.mark.parametrize("exercise", list_right_answers())
def test_right_answers_pass(exercise, seeds, request):
    """A check compares what an answer does, not how it is written.

    A lesson executes its solutions, so by default one other answer of an experiment is enough.
    """
    sources = (exercise.solution, *exercise.right)
    if is_experiment(exercise) and not request.config.option.nightly:
        sources = exercise.right[:1]
    for source in sources:
        for _ in seeds(exercise):
            assert "passed" in answer(exercise, source)


@every_exercise
def test_stub_fails(exercise):
    with pytest.raises(CheckFailed, match="is not written yet") as found:
        answer(exercise, clear_solution(exercise))
    assert type(found.value.__context__) is NotImplementedError
    assert not found.value.__context__.args


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")  # a planted fault
@every_exercise
def test_wrong_answers_fail_and_are_told_why(exercise, seeds):
    assert len(exercise.wrong) >= MIN_WRONG
    for source, sentence in exercise.wrong:
        for _ in seeds(exercise):
            with pytest.raises(CheckFailed, match=re.escape(sentence)) as found:
                answer(exercise, source)
            assert "\n" not in str(found.value)


@every_exercise
def test_faults_that_the_check_knows_are_told(exercise, seeds):
    check = find_check(exercise)
    for sentence, fault in check.faults:
        for _ in seeds(exercise):
            with pytest.raises(CheckFailed, match=re.escape(sentence)):
                check(fault)


def list_sentences(source):
    """Of each string that ends as a sentence does, but for docstrings, the longest fixed part."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    apart = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
    formatted = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    apart |= {id(part) for node in formatted for part in node.values}
    texts = [
        "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        for node in formatted
    ]
    texts += [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart
    ]
    for text in texts:
        parts = re.split(r"{[^}]*}", text)  # an f-string's values, and "{right}" of an `Output`
        if parts[-1].endswith((".", "?", "!")) and " " in text:
            yield max(parts, key=len)


def test_sentences_are_strings_that_end_as_one():
    source = '''def f(x):
    """Says it."""
    require(x, "No x at all.")
    fail(f"{x} is {{right}} of all x, and yours is {x + 1}.")
    return Output(x, case=f"With {x}:", kind="a.b.")
'''
    assert list(list_sentences(source)) == [" of all x, and yours is ", "No x at all."]


def list_told(lesson):
    """What the checks of a lesson tell the planted answers and the faults that they know."""
    for exercise in list_exercises(lesson):
        check = find_check(exercise)
        attempts = [partial(answer, exercise, source) for source, _ in exercise.wrong]
        attempts += [partial(check, fault) for _, fault in check.faults]
        for attempt in attempts:
            with pytest.raises(CheckFailed) as found:
                attempt()
            yield str(found.value)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")  # a planted fault
@pytest.mark.parametrize("lesson", find_lessons(), ids=lambda lesson: lesson.name)
def test_each_sentence_of_a_check_is_told_to_a_planted_answer(lesson):
    folder = Path(lesson_code.__file__).parent / lesson.name.partition("_")[2]
    paths = [*folder.glob("checks.py"), *folder.glob("checks/*.py")]
    sentences = chain.from_iterable(list_sentences(path.read_text("utf-8")) for path in paths)
    told = "\n".join(list_told(lesson))
    untold = [sentence for sentence in sentences if sentence not in told]
    assert untold == [], "plant an answer that is told each of them, or delete it"


@pytest.mark.parametrize("lesson", find_lessons(), ids=lambda lesson: lesson.name)
def test_stored_outputs_are_of_the_answers_of_today(lesson, monkeypatch):
    monkeypatch.setattr("course_tools.publish.planted.write_atomically", lambda path, text: None)
    assert store_outputs(lesson) is None, "run course sync"


# the mechanism


RIGHT = Expected([1.0, [2.0, 3.0]], [Fault("It is doubled.", 0, 2.0), Fault("Swapped.", 1, [3, 2])])


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ((1.0, [2.0, 3.0]), None),
        ((1.0 + 1e-7, [2.0, 3.0]), None),
        ((2.0, [2.0, 3.0]), "In case 0: It is doubled."),
        ((1.0, [3.0, 2.0]), "In case 1: Swapped."),
        ((3.0, [2.0, 3.0]), "In case 0: It is another number."),
        ((1.0, [2.0]), "In case 1: It is another number."),
        ((1.0, [2.0, float("nan")]), "In case 1: It is another number."),
        ((1.0, 2.0), "In case 1: It is another number."),
    ],
)
def test_the_first_output_that_differs_is_told(values, sentence):
    outputs = (Output(v, "It is another number.", f"In case {n}:") for n, v in enumerate(values))
    assert find_sentence(outputs, RIGHT) == sentence


def test_a_check_without_stored_outputs_says_what_to_run():
    @checks_exercise()
    def check_nothing_stored(answer):
        yield Output(answer(), "no")

    with pytest.raises(CheckFailed, match="check_nothing_stored has no stored outputs: run"):
        check_nothing_stored(lambda: 1)


def test_a_patch_fits_its_source_once():
    assert apply_patch("a + b", ("a", "x", "b", "y")) == "x + y"
    for old, times in (("c", 0), ("a", 2)):
        with pytest.raises(CourseError, match=f"occurs {times} times: '{old}'"):
            apply_patch("a + a", (old, "x"))


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
