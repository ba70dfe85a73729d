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
    assert found.seeds_range() is None
    assert found.p_value() == 1


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


@pytest.mark.parametrize("n", [2, 3, 8])
def test_the_p_value_is_that_of_the_paired_test(n):
    rng = np.random.default_rng(n)
    baseline = rng.normal(60, 5, n)
    treated = baseline + rng.normal(1, 1, n)
    expected = stats.ttest_rel(treated, baseline).pvalue
    assert paired_difference(baseline, treated).p_value() == pytest.approx(expected)
    assert paired_difference(treated, baseline).p_value() == pytest.approx(expected)


def test_the_p_value_is_below_5_percent_where_the_interval_excludes_zero():
    for low, high in ((0.001, 0.03), (-0.001, 0.03), (-0.03, -0.001), (-0.03, 0.001)):
        found = PairedDifference((low + high) / 2, low, high, 4)
        assert (found.p_value() < 0.05) == (low > 0 or high < 0)
    assert PairedDifference(0.015, 0.0, 0.03, 4).p_value() == pytest.approx(0.05)


def test_the_p_value_without_a_spread():
    assert PairedDifference(0.0, 0.0, 0.0, 3).p_value() == 1
    assert PairedDifference(0.01, 0.01, 0.01, 3).p_value() == 0
    assert PairedDifference(0.0, -0.1, 0.1, 3).p_value() == 1


def test_p_values_are_uniform_without_a_difference():
    """300 studies of three seeds."""
    values = np.random.default_rng(0).standard_normal((300, 2, 3))
    p_values = [paired_difference(*study).p_value() for study in values]
    assert stats.kstest(p_values, "uniform").pvalue > 0.05


@pytest.mark.parametrize(("mean", "std"), [(0.01, 0.03), (0.0, 0.02), (-0.02, 0.03)])
def test_the_range_of_three_seeds_by_hand(mean, std):
    """With two degrees of freedom, the quantile q of chi-square is -2 ln(1 - q)."""

    def find(std, n):
        half = stats.t.ppf(0.975, n - 1) * std / np.sqrt(n)
        return PairedDifference(mean, mean - half, mean + half, n)

    low, high = (std * np.sqrt(2 / (-2 * np.log(1 - q))) for q in (0.975, 0.025))
    expected = (find(low, 3).seeds_needed(), find(high, 3).seeds_needed())
    assert find(std, 3).seeds_range() == expected
    assert expected[0] <= find(std, 3).seeds_needed() < expected[1]
    wide, narrow = find(std, 3).seeds_range(), find(std, 30).seeds_range()
    assert wide[0] <= narrow[0] <= find(std, 30).seeds_needed() <= narrow[1] < wide[1]


def test_the_range_depends_on_the_margin_and_ends_at_the_limit():
    found = PairedDifference(0.0, -0.03, 0.03, 3)
    assert found.seeds_range(0.02)[1] < found.seeds_range(0.01)[1] < MAX_SEEDS
    assert found.seeds_range(0.0001)[1] == MAX_SEEDS
    assert PairedDifference(0.02, 0.02, 0.02, 3).seeds_range() == (2, 2)  # no spread


@pytest.mark.parametrize("n", [2, 3, 6])
def test_the_range_covers_the_number_that_the_true_spread_needs(n):
    """200 studies: what the range covers is the spread, the mean is that of the study."""
    rng, covered = np.random.default_rng(n), []
    true = 0.015
    for differences in rng.normal(0.0, true, (200, n)):
        found = paired_difference(np.zeros(n), differences)
        half = stats.t.ppf(0.975, n - 1) * true / np.sqrt(n)
        exact = PairedDifference(found.mean, found.mean - half, found.mean + half, n)
        low, high = found.seeds_range()
        covered.append(low <= exact.seeds_needed() <= high)
    assert 0.92 < np.mean(covered) <= 0.985


@pytest.mark.parametrize(("a", "b"), [([1.0], [1.0, 2.0]), ([], [])])
def test_unequal_or_empty_values(a, b):
    with pytest.raises(ValueError, match="one of each per seed"):
        paired_difference(a, b)
