"""What all checks share: how they fail, how they pass, how they call a student's function."""

from collections.abc import Callable
from functools import wraps
from typing import NoReturn

__all__ = ["CheckFailed", "checks_exercise", "fail", "require"]


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


def checks_exercise(check: Callable[[Callable], None]) -> Callable[[Callable], None]:
    """Decorate ``check(answer)``: a missing or a crashing answer fails in one sentence too."""

    @wraps(check)
    def checked(answer: Callable) -> None:
        name = getattr(answer, "__name__", "the answer")
        try:
            check(answer)
        except CheckFailed:
            raise
        except Exception as error:
            # The stub raises NotImplementedError without arguments, PyTorch with a message.
            if type(error) is NotImplementedError and not error.args:
                raise CheckFailed(f"{name} is not written yet.") from None
            raise CheckFailed(f"{name} stopped with {type(error).__name__}: {error}") from error
        print(f"✓ {name}: passed")

    return checked
