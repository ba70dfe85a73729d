"""Stored outputs of an exercise's solution, and of wrong answers that are known.

The students' version has no solution, so a check cannot run one. Where an answer's outputs depend
on nothing but the check, those of the solution are stored instead, and beside them those of wrong
answers, each with the sentence that names its fault. `course sync` writes them, from the notebook
and from ``lesson_code/<name>/answers.py``.
"""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["EXPECTED", "Expected", "Fault", "Output", "find_sentence", "is_near", "read_expected"]

EXPECTED = "expected.json"  # beside the checks


class Output(NamedTuple):
    """What an answer gave in one case of a check: the check yields one after the other."""

    value: Any  # a number, a nested list of numbers, or a tensor
    # The sentence if it is neither right nor what a known wrong answer gives; "{right}" in it
    # becomes the right number.
    otherwise: str
    case: str = ""  # words before each sentence
    tolerance: float = 1e-5  # right if ‖value − right‖ ≤ tolerance · ‖right‖, with the same shape
    fault_tolerance: float | None = None  # the same for a wrong answer; None: `tolerance`


class Fault(NamedTuple):
    """A known wrong answer: the first case in which it is not right, and its output there."""

    sentence: str
    case: int
    value: Any


class Expected(NamedTuple):
    """The stored outputs of one exercise: those of the solution by case, and of wrong answers."""

    right: list
    faults: list[Fault]


@cache
def read_expected(path: Path) -> dict[str, Expected]:
    """The stored outputs of a lesson's exercises, by the names of their checks."""
    stored = json.loads(path.read_text(encoding="utf-8"))["exercises"]
    return {
        name: Expected(entry["right"], [Fault(*fault) for fault in entry["faults"]])
        for name, entry in stored.items()
    }


def find_sentence(outputs: Iterable[Output], expected: Expected) -> str | None:
    """What is wrong with an answer, by the first of its outputs that is not right; None: nothing.

    Args:
        outputs: the answer's, in the order of the cases. Those after a wrong one are not computed.
        expected: the stored ones.
    """
    for number, (output, right) in enumerate(zip(outputs, expected.right, strict=True)):
        if is_near(output.value, right, output.tolerance):
            continue
        tolerance = output.fault_tolerance
        tolerance = output.tolerance if tolerance is None else tolerance
        sentences = (
            fault.sentence
            for fault in expected.faults
            if fault.case == number and is_near(output.value, fault.value, tolerance)
        )
        otherwise = output.otherwise
        if "{right}" in otherwise:
            number_format = ",d" if isinstance(right, int) else ".4g"
            otherwise = otherwise.replace("{right}", format(right, number_format))
        return f"{output.case} {next(sentences, otherwise)}".strip()
    return None


def is_near(found: object, expected: object, tolerance: float) -> bool:
    """The same shape, and ‖found − expected‖ ≤ tolerance · ‖expected‖; a nan is near nothing."""
    one, other = _as_tensor(found), _as_tensor(expected)
    if one.shape != other.shape:
        return False
    return bool((one - other).norm() <= tolerance * other.norm())


def _as_tensor(value: Any) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64).detach()
