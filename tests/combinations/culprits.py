"""Which techniques disturb each other: looked for only where all of them together fail."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

__all__ = ["Check", "find_culprits", "find_failures"]


@dataclass(frozen=True)
class Check:
    """Something that has to hold when some techniques are trained together.

    Args:
        what: a name for messages.
        run: called with the techniques' names; raises if it does not hold, or if the training
            does.
        technique: which one it is about; None: about all alike.
    """

    what: str
    run: Callable[[Sequence[str]], None]
    technique: str | None = None

    def find_error(self, names: Sequence[str]) -> Exception | None:
        try:
            self.run(names)
        except Exception as error:  # whatever a training raises is a failure of the check
            return error
        return None


def find_culprits(check: Check, names: Sequence[str]) -> list[list[str]]:
    """The smallest groups of ``names`` with which ``check`` fails, of two techniques at most.

    If the check is about a technique, only groups with that one are tried.
    """
    fixed = [name for name in names if name == check.technique]
    others = [name for name in names if name != check.technique]
    for size in range(3 - len(fixed)):
        chosen = [{*fixed, *more} for more in combinations(others, size)]
        groups = [[name for name in names if name in group] for group in chosen]
        found = [group for group in groups if check.find_error(group)]
        if found:
            return found
    return []


def describe_failure(check: Check, groups: Sequence[Sequence[str]]) -> str:
    if not groups:
        return f"{check.what} fails, though it holds for any two: which one left out helps?"
    listed = [" and ".join(group) or "no technique at all" for group in groups]
    return f"{check.what} fails with {', with '.join(listed)}"


def find_failures(checks: Sequence[Check], names: Sequence[str]) -> dict[str, Exception]:
    """A sentence that names the culprits, and the error, for each of ``checks`` that fails.

    After a failure of one that is about no single technique the others are not tried: what would
    they say of such a training?
    """
    failures = {}
    for check in checks:
        error = check.find_error(names)
        if error is not None:
            failures[describe_failure(check, find_culprits(check, names))] = error
            if check.technique is None:
                break
    return failures
