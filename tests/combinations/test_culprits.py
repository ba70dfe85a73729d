import pytest

from tests.combinations.culprits import Check, find_culprits, find_failures

NAMES = ["a", "b", "c", "d"]


def check_that_fails_with(*groups, technique=None):
    """A check that fails wherever all of one of ``groups`` are on."""

    def run(names):
        assert not any(set(group) <= set(names) for group in groups)

    return Check("it", run, technique)


@pytest.mark.parametrize(
    ("groups", "technique", "culprits"),
    [
        (["bd"], "b", [["b", "d"]]),
        (["bd"], "d", [["b", "d"]]),  # in the order of the names
        (["bd", "ab"], "b", [["a", "b"], ["b", "d"]]),
        (["b", "bd"], "b", [["b"]]),  # the smallest only
        (["abc"], "b", []),
        (["bd"], None, [["b", "d"]]),
        (["c"], None, [["c"]]),
        ([""], None, [[]]),
    ],
)
def test_smallest_groups_that_fail_are_found(groups, technique, culprits):
    check = check_that_fails_with(*groups, technique=technique)
    assert find_culprits(check, NAMES) == culprits


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        (["bd", "ab"], "it fails with a and b, with b and d"),
        ([""], "it fails with no technique at all"),
        (["abc"], "it fails, though it holds for any two: which one left out helps?"),
    ],
)
def test_a_failure_names_the_culprits(groups, sentence):
    [(said, error)] = find_failures([check_that_fails_with(*groups)], NAMES).items()
    assert said == sentence
    assert isinstance(error, AssertionError)


def test_nothing_more_is_trained_while_a_check_holds():
    tried = []
    assert find_failures([Check("it", tried.append)], NAMES) == {}
    assert tried == [NAMES]


def test_checks_on_techniques_wait_for_that_of_the_training():
    training = check_that_fails_with("a")
    of_b, of_c = (check_that_fails_with(name, technique=name) for name in "bc")
    assert list(find_failures([training, of_b], NAMES)) == ["it fails with a"]
    assert list(find_failures([of_b, of_c], NAMES)) == ["it fails with b", "it fails with c"]
