import numpy as np
import pytest
from scipy import stats

from course_utils.measure.paired import MAX_SEEDS, PairedDifference, paired_difference


def test_interval_is_the_paired_one():
    rng = np.random.default_rng(0)
    for n in (2, 3, 8):
        baseline = rng.normal(60, 5, n)
        treated = baseline + rng.normal(1, 0.3, n)
        found = paired_difference(baseline, treated)
        expected = stats.ttest_rel(treated, baseline)
        assert found.mean == pytest.approx((treated - baseline).mean())
        assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))
        assert found.n == n


def test_luck_that_both_arms_share_cancels():
    luck = np.array([50.0, 60.0, 70.0])
    found = paired_difference(luck, luck + np.array([1.0, 1.1, 0.9]))
    assert found.verdict() == "helps"
    assert found.high - found.low < 1


def test_order_of_pairs_matters():
    found = paired_difference([1.0, 2.0, 3.0], [3.1, 1.0, 2.0])
    assert found.verdict() == "inconclusive"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.02, 0.04, "helps"),
        (-0.04, -0.02, "hurts"),
        (-0.004, 0.006, "equivalent"),
        (-0.01, 0.01, "equivalent"),  # the margin itself still counts
        (0.001, 0.009, "equivalent"),  # not zero, but too small to matter
        (0.001, 0.03, "helps"),
        (-0.004, 0.03, "inconclusive"),
        (-0.03, 0.03, "inconclusive"),
        (-np.inf, np.inf, "inconclusive"),
    ],
)
def test_the_interval_decides_between_four_verdicts(low, high, verdict):
    found = PairedDifference((low + high) / 2 if np.isfinite(low) else 0.4, low, high, 3)
    assert found.verdict() == verdict
    turned = {"helps": "hurts", "hurts": "helps"}.get(verdict, verdict)
    assert found.verdict(more_is_better=False) == turned


def test_the_margin_is_the_callers():
    found = PairedDifference(0.015, 0.01, 0.02, 5)
    assert found.verdict() == "helps"
    assert found.verdict(margin=0.02) == "equivalent"
    assert PairedDifference(0.0, -1e-9, 1e-9, 3).verdict(margin=0) == "inconclusive"


def test_identical_variants_are_equivalent():
    found = paired_difference([0.5, 0.6, 0.7], [0.5, 0.6, 0.7])
    assert (found.mean, found.low, found.high) == (0, 0, 0)
    assert found.verdict() == found.verdict(margin=0) == "equivalent"


def test_one_seed_has_no_interval():
    found = paired_difference([0.5], [0.9])
    assert (found.low, found.high) == (-np.inf, np.inf)
    assert found.verdict() == "inconclusive"
    assert found.seeds_needed() is None


@pytest.mark.parametrize(("mean", "std"), [(0.01, 0.03), (0.0, 0.02), (0.004, 0.02), (-0.05, 0.1)])
def test_seeds_needed_is_the_first_number_that_decides(mean, std):
    """Oracle: the interval written out for that number of seeds, and for one less."""

    def decides(n):
        half = stats.t.ppf(0.975, n - 1) * std / np.sqrt(n)
        return PairedDifference(mean, mean - half, mean + half, n).verdict() != "inconclusive"

    half = stats.t.ppf(0.975, 2) * std / np.sqrt(3)
    needed = PairedDifference(mean, mean - half, mean + half, 3).seeds_needed()
    assert decides(needed)
    assert not decides(needed - 1)


@pytest.mark.parametrize("n", [MAX_SEEDS - 1, MAX_SEEDS, MAX_SEEDS + 1, 2 * MAX_SEEDS])
def test_seeds_needed_has_a_limit(n):
    """A spread that ``n`` seeds just decide: above the limit, the limit is the answer."""
    std = 0.005 * np.sqrt(n) / stats.t.ppf(0.975, n - 1) * (1 - 1e-6)
    half = stats.t.ppf(0.975, 2) * std / np.sqrt(3)
    needed = PairedDifference(0.005, 0.005 - half, 0.005 + half, 3).seeds_needed()
    assert needed == min(n, MAX_SEEDS)


@pytest.mark.parametrize(("a", "b"), [([1.0], [1.0, 2.0]), ([], [])])
def test_unequal_or_empty_values(a, b):
    with pytest.raises(ValueError, match="one of each per seed"):
        paired_difference(a, b)
