"""A rule that is broken says so, and by whom."""

import pytest

from tests.text.offenders import find_offenders, for_each

ITEMS = {"one": 1, "two": 2, "three": 3}


def is_small(name, number):
    if number == 2:
        yield "it is two"
    if number > 1:
        yield "it is not one"
    assert number != 3, "three"


def test_every_offender_is_named():
    *yielded, raised = find_offenders(is_small, ITEMS.items())
    assert yielded == ["two: it is two", "two: it is not one", "three: it is not one"]
    assert raised.startswith("three: AssertionError: three")


def test_a_test_fails_with_all_of_them():
    with pytest.raises(pytest.fail.Exception, match=r"two: it is two\ntwo: it is not one\nthree"):
        for_each(ITEMS.items)(is_small)()
    for_each(lambda: [("one", 1)])(is_small)()
