"""What all checks share: how they call a student's function, how they pass and how they fail."""

import html
import inspect
import random
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import update_wrapper
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch
from IPython.display import display

from course_utils.checking.outputs import (
    EXPECTED,
    Expected,
    Output,
    find_sentence,
    is_near,
    read_expected,
)
from course_utils.checking.state import known_state
from course_utils.claims import GREEN

__all__ = [
    "CheckFailed",
    "ExerciseCheck",
    "Faults",
    "checks_exercise",
    "diagnose",
    "fail",
    "require",
]

MARK_STYLE = f"background:{GREEN};color:#ffffff;border-radius:3px;padding:0 0.3em"  # as claims
SEED = 0  # of every check: the same answer gets the same mark each time
Answer = Callable[..., Any]
Check = Callable[[Answer], Iterable[Output] | None]
# Each: the sentence, or a part of it, that names a fault, and a wrong answer that has it.
Faults = Sequence[tuple[str, Answer]]
Other = TypeVar("Other")  # an answer, or whatever `run` takes for one


class CheckFailed(AssertionError):
    """The exercise is not solved; the message is one sentence on what is wrong."""

    def _render_traceback_(self) -> list[str]:
        return [f"✗ {self}"]


def fail(sentence: str) -> NoReturn:
    """Raise `CheckFailed` with the sentence."""
    raise CheckFailed(sentence)


def require(holds: object, otherwise: str) -> None:
    """Raise `CheckFailed` with the sentence ``otherwise`` unless ``holds``."""
    if not holds:
        fail(otherwise)


def diagnose(
    found: object,
    run: Callable[[Other], object],
    oracle: Other,
    faults: Iterable[tuple[str, Other]],
    otherwise: str,
    *,
    case: str = "",
    tolerance: float = 1e-5,
    fault_tolerance: float | None = None,
) -> None:
    """Fail, unless ``found`` is what the oracle gives, and say which fault gives it.

    Args:
        found: what the student's answer gave in this case: a number, a list of numbers, a tensor.
        run: ``run(answer)`` is what another answer gives in the same case.
        oracle: a right answer.
        faults: the sentence that names a fault, and a wrong answer that has it. They are run one
            after the other until one gives what was found.
        otherwise: the sentence if none does.
        case: words before each sentence.
        tolerance: ``found`` is right if ‖found − right‖ ≤ tolerance · ‖right‖, with the same shape.
        fault_tolerance: the same for a fault; without it, ``tolerance``.

    Raises:
        CheckFailed: with the sentence of the first fault that fits, or ``otherwise``.
    """
    if is_near(found, run(oracle), tolerance):
        return
    before = f"{case} " if case else ""
    for sentence, fault in faults:
        if is_near(found, run(fault), tolerance if fault_tolerance is None else fault_tolerance):
            fail(before + sentence)
    fail(before + otherwise)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed Python, NumPy and PyTorch (CPU) inside, and put their states back afterwards."""
    state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        np.random.seed(seed)
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(state)
            np.random.set_state(numpy_state)


class _Passed:
    """What a notebook shows of a solved exercise: as visible as a claim that holds."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"✓ {self.name}: passed"

    def _repr_html_(self) -> str:
        mark = f'<span style="{MARK_STYLE}">✓</span>'
        return f"<b>{mark} {html.escape(self.name)}: passed</b>"


class ExerciseCheck:
    """A check of one exercise: ``check(answer)`` prints that it passed or raises `CheckFailed`.

    A missing or a crashing answer fails in one sentence too. The libraries are in a known state,
    and all random numbers are drawn with the seed `SEED`; the notebook's own settings and random
    state stay as they were.

    The check raises `CheckFailed`, or yields what the answer gives, case by case (`Output`): this
    is compared with stored outputs of the solution and of known wrong answers. ``faults`` are
    wrong answers that a check without stored outputs knows, each with its sentence, or a part.
    """

    def __init__(self, check: Check, faults: Faults = ()) -> None:
        update_wrapper(self, check)
        self.name = check.__name__
        self.check = check
        self.faults = faults

    @property
    def expected_path(self) -> Path:
        """The file with the stored outputs of the lesson's exercises."""
        return Path(self.check.__code__.co_filename).with_name(EXPECTED)

    def list_outputs(self, answer: Answer) -> Generator[Output]:
        """What the answer gives in each case, in the state in which all checks run."""
        with known_state(), _seeded(SEED):
            yield from self.check(answer) or ()

    @property
    def compares(self) -> bool:
        """Whether the check compares with stored outputs."""
        return inspect.isgeneratorfunction(self.check)

    def _find_expected(self) -> Expected:
        if not self.compares:
            return Expected([], [])
        path = self.expected_path
        stored = read_expected(path) if path.is_file() else {}
        if self.name not in stored:
            fail(f"{self.name} has no stored outputs: run `course sync`.")
        return stored[self.name]

    def __call__(self, answer: Answer) -> None:
        name = getattr(answer, "__name__", "the answer")
        try:
            with closing(self.list_outputs(answer)) as outputs:
                sentence = find_sentence(outputs, self._find_expected())
            if sentence:
                fail(sentence)
        except CheckFailed:
            raise
        except NameError as error:
            raise CheckFailed(_explain_name(name, error)) from error
        except Exception as error:
            # The stub raises NotImplementedError without arguments, PyTorch with a message.
            if type(error) is NotImplementedError and not error.args:
                raise CheckFailed(f"{name} is not written yet.") from None
            words = " ".join(str(error).split())  # some messages have several lines
            reason = f": {words}" if words else "."
            raise CheckFailed(f"{name} stopped with {type(error).__name__}{reason}") from error
        display(_Passed(name))


def _explain_name(answer: str, error: NameError) -> str:
    """What to do about a name that is missing: mostly the kernel is new, and has no imports."""
    if isinstance(error, UnboundLocalError) or not error.name:
        return f"{answer} stopped with {type(error).__name__}: {error}"
    return (
        f"{answer} stopped, because {error.name} is not defined: if it is spelt right, run "
        "the lesson's imports (its first code cells) and the cells of yours that it needs, then "
        "this one again."
    )


def checks_exercise(
    faults: Faults = (),
) -> Callable[[Check], ExerciseCheck]:
    """Decorate ``check(answer)``: see `ExerciseCheck`. The tests give it each of the faults."""

    def decorate(check: Check) -> ExerciseCheck:
        return ExerciseCheck(check, faults)

    return decorate
