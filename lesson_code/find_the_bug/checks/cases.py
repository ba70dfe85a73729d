"""Checks of lesson 90's case files: which curve rules out which hypothesis."""

from collections.abc import Callable, Iterator

from course_utils.checking.checking import checks_exercise, require
from course_utils.checking.outputs import Output

__all__ = ["check_close_ranks", "check_close_resume", "check_close_stream"]

LETTERS = "ABCD"


def _judge(answer: Callable) -> Iterator[Output]:
    """The number of the first curve that rules out each hypothesis; 0 for the one that is left."""
    found = answer()
    is_whole = isinstance(found, dict) and sorted(map(str, found)) == list(LETTERS)
    require(is_whole, "Return a dictionary with the four letters A, B, C and D.")
    known = all(value in (None, 1, 2, 3) for value in found.values())
    require(known, "Each letter needs the number of a curve, 1, 2 or 3, or None if it is left.")
    left = [letter for letter in LETTERS if found[letter] is None]
    require(len(left) == 1, f"One hypothesis is left in the end, and here {len(left)} have None.")
    for letter in LETTERS:
        number = found[letter]
        what = f"{letter} is not the one that is left: look at the curves again."
        if number is not None:
            what = f"Curve {number} is not the first that rules out {letter}."
        yield Output(number or 0, what)


@checks_exercise()
def check_close_ranks(answer: Callable) -> Iterator[Output]:
    """``answer() -> dict``: the case of the four devices."""
    yield from _judge(answer)


@checks_exercise()
def check_close_resume(answer: Callable) -> Iterator[Output]:
    """``answer() -> dict``: the case of the four jobs."""
    yield from _judge(answer)


@checks_exercise()
def check_close_stream(answer: Callable) -> Iterator[Output]:
    """``answer() -> dict``: the case of the loss with peaks."""
    yield from _judge(answer)
