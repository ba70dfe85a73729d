"""Planted answers to the exercises of a lesson, and what checks store of their outputs.

They stand in ``lesson_code/<name>/answers.py``, by the names of the exercises:

- ``WRONG``: a wrong answer is a patch of the solution in the notebook, ``(old, new, sentence)``,
  or with several pairs of old and new before the sentence; ``(source, sentence)`` is an answer
  written anew. The sentence, or a part of it, is what its author is told.
- ``RIGHT``: other right answers, as patches ``(old, new, …)`` or as sources.

Tests give all of them to the checks. For a check that yields outputs, `course sync` stores those
of the solution and of the wrong answers that have a sentence of their own.
"""

import ast
import contextlib
import hashlib
import io
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch

from course_tools.run.lessons import Lesson
from course_utils.checking.checking import ExerciseCheck
from course_utils.checking.outputs import Output, is_near, read_expected
from course_utils.errors import CourseError
from course_utils.files import write_atomically

__all__ = [
    "APART",
    "Exercise",
    "apply_patch",
    "find_check",
    "list_exercises",
    "run_cells",
    "store_outputs",
]

APART = re.compile(r"technique|study\w*|test_\w+")  # modules of a lesson that no check imports
DIGITS = 7  # of a stored number: float32 has no more


class Exercise(NamedTuple):
    """An exercise with its planted answers."""

    name: str  # its `grade_id`, and the name of the function to write
    imports: str  # the lesson's cell of imports
    solution: str
    check: str  # the cell that checks an answer
    wrong: list[tuple[str, str]]  # source, and the sentence or a part of it
    right: list[str]  # other ones than the solution


def apply_patch(source: str, changes: Sequence[str]) -> str:
    """The source with each old text, which occurs once in it, replaced by the new one after it.

    Raises:
        CourseError: an old text does not occur once.
    """
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        if source.count(old) != 1:
            raise CourseError(f"a patch's text occurs {source.count(old)} times: {old!r}")
        source = source.replace(old, new)
    return source


def _read_answers(lesson: Lesson) -> Any:
    module = f"lesson_code.{lesson.name.partition('_')[2]}.answers"
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not module.startswith(str(error.name)):
            raise
        path = f"{module.replace('.', '/')}.py"
        raise CourseError(f"{lesson.name} has exercises, and no {path}: write it") from None


def _make_source(solution: str, answer: str | Sequence[str]) -> str:
    if isinstance(answer, str):
        return answer
    return answer[0] if len(answer) == 1 else apply_patch(solution, answer)


def list_exercises(lesson: Lesson) -> list[Exercise]:
    """The exercises of a lesson, in their order.

    Raises:
        CourseError: a patch does not fit the solution; an exercise without planted answers.
    """
    cells = lesson.read().cells
    graded = [(cell.metadata["nbgrader"], cell) for cell in cells if "nbgrader" in cell.metadata]
    if not graded:
        return []
    imports = next(cell.source for cell in cells if "imports" in cell.metadata.get("tags", []))
    solutions = [(about["grade_id"], cell.source) for about, cell in graded if about["solution"]]
    checks = [cell.source for about, cell in graded if about["grade"]]
    answers = _read_answers(lesson)
    found = []
    for (name, solution), check in zip(solutions, checks, strict=True):
        if name not in answers.WRONG or name not in answers.RIGHT:
            raise CourseError(f"{answers.__file__} has no WRONG and RIGHT answers of {name}")
        wrong = [(_make_source(solution, patch[:-1]), patch[-1]) for patch in answers.WRONG[name]]
        right = [_make_source(solution, answer) for answer in answers.RIGHT[name]]
        found.append(Exercise(name, imports, solution, check, wrong, right))
    return found


def run_cells(*cells: str) -> tuple[dict, str]:
    """Run cells as the notebook would; returns the names that they define, and what they print."""
    namespace: dict = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for code in cells:
            exec(compile(code, "<cell>", "exec"), namespace)
    return namespace, printed.getvalue()


def find_check(exercise: Exercise) -> ExerciseCheck:
    """The check that the last line of the exercise's cell calls."""
    called = ast.parse(exercise.check).body[-1]
    assert isinstance(called, ast.Expr)
    assert isinstance(called.value, ast.Call)
    before = exercise.check.rpartition("\n")[0]
    namespace, _ = run_cells(exercise.imports, before)
    return eval(ast.unparse(called.value.func), namespace)


def _list_outputs(exercise: Exercise, source: str, check: ExerciseCheck) -> Iterator[Output]:
    """What an answer gives, until it is refused for another reason, or stops."""
    namespace, _ = run_cells(exercise.imports, source)
    with (
        contextlib.suppress(Exception),  # it is refused, or stops
        warnings.catch_warnings(action="ignore"),  # of PyTorch, about the fault
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.closing(check.list_outputs(namespace[exercise.name])) as outputs,
    ):
        yield from outputs


def _round(value: Any) -> Any:
    """A value as nested lists of numbers of `DIGITS` digits."""
    tensor = torch.as_tensor(value, dtype=torch.float64).detach()
    flat = [float(f"{number:.{DIGITS}g}") for number in tensor.flatten().tolist()]
    whole: list = [int(number) if number.is_integer() else number for number in flat]
    for size in reversed(tensor.shape[1:]):
        whole = [whole[i : i + size] for i in range(0, len(whole), size)]
    return whole if tensor.ndim else whole[0]


def _record(exercise: Exercise, check: ExerciseCheck) -> dict:
    """The outputs of the solution, and for wrong answers the first one that is not right.

    A wrong answer whose sentence is the one for all others (`Output.otherwise`), or which the
    check refuses without its outputs, is not stored.
    """
    right = list(_list_outputs(exercise, exercise.solution, check))
    if not right:
        raise CourseError(f"{check.name} yields nothing for the solution of {exercise.name}")
    faults = []
    for source, sentence in exercise.wrong:
        for number, output in enumerate(_list_outputs(exercise, source, check)):
            if not is_near(output.value, right[number].value, output.tolerance):
                if sentence not in f"{output.case} {output.otherwise}":
                    if not sentence.endswith((".", "?", "!")):
                        raise CourseError(f"{exercise.name}: write the whole sentence: {sentence}")
                    faults.append([sentence, number, _round(output.value)])
                break
    return {"right": [_round(output.value) for output in right], "faults": faults}


def _digest(exercises: Sequence[Exercise], folder: Path) -> str:
    """Of what the outputs depend on: answers, and those modules of the lesson that checks use."""
    paths = [path for path in sorted(folder.rglob("*.py")) if not APART.fullmatch(path.stem)]
    own = [path.read_text(encoding="utf-8") for path in paths]
    return hashlib.sha256(json.dumps([exercises, own]).encode()).hexdigest()[:16]


def _format(made_from: str, found: dict) -> str:
    """JSON with a line for each list of outputs, so that a change can be read."""
    parts = []
    for name, entry in found.items():
        rows = {key: ",\n".join(map(json.dumps, values)) for key, values in entry.items()}
        inside = ",\n".join(f'"{key}": [\n{text}\n]' for key, text in rows.items())
        parts.append(f'"{name}": {{\n{inside}\n}}')
    return f'{{"made_from": "{made_from}", "exercises": {{\n' + ",\n".join(parts) + "\n}}\n"


def store_outputs(lesson: Lesson) -> Path | None:
    """Write the outputs that the lesson's checks compare with; None if they are up to date.

    Raises:
        CourseError: as `list_exercises`; a check yields nothing for the solution.
    """
    exercises = list_exercises(lesson)
    checks = {exercise.name: find_check(exercise) for exercise in exercises}
    comparing = [x for x in exercises if checks[x.name].compares]
    if not comparing:
        return None
    path = checks[comparing[0].name].expected_path
    made_from = _digest(exercises, path.parent)
    if path.is_file() and json.loads(path.read_text(encoding="utf-8"))["made_from"] == made_from:
        return None
    found = {checks[x.name].name: _record(x, checks[x.name]) for x in comparing}
    write_atomically(path, _format(made_from, found))
    read_expected.cache_clear()
    return path
