"""One test per rule: it looks at all lessons, or all files, and names each that breaks the rule."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import nbformat
import pytest

from course_tools.run.lessons import Lesson, find_lessons

__all__ = ["find_offenders", "for_each", "for_each_lesson", "list_lessons", "read_lessons"]

Rule = Callable[[str, Any], Iterable[str] | None]


@cache
def list_lessons() -> tuple[Lesson, ...]:
    return tuple(find_lessons())


@cache
def read_lessons() -> dict[str, nbformat.NotebookNode]:
    """Each lesson's notebook by its name; nobody may change them, for they are read once."""
    return {lesson.name: lesson.read() for lesson in list_lessons()}


def find_offenders(rule: Rule, items: Iterable[tuple[str, Any]]) -> list[str]:
    """What is wrong with each item: what the rule yields, and whatever it raises."""
    found = []
    for name, item in items:
        try:
            for fault in rule(name, item) or ():
                found.append(f"{name}: {fault}")
        except Exception as error:  # an assertion, or a lesson that lacks what it should have
            found.append(f"{name}: {type(error).__name__}: {error}")
    return found


def for_each(list_items: Callable[[], Iterable[tuple[str, Any]]]) -> Callable[[Rule], Callable]:
    """Make a test of a rule; ``list_items()`` gives pairs of a name and what the rule looks at.

    The rule yields a sentence for each fault, or asserts.
    """

    def make_test(rule: Rule) -> Callable[[], None]:
        def test() -> None:
            if offenders := find_offenders(rule, list_items()):
                pytest.fail("\n".join(offenders), pytrace=False)

        test.__name__, test.__doc__ = rule.__name__, rule.__doc__
        return test

    return make_test


for_each_lesson = for_each(lambda: read_lessons().items())
