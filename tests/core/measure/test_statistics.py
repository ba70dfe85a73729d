import itertools

import numpy as np
import pytest
from scipy import stats

from course_utils.measure.paired import paired_difference
from course_utils.measure.statistics import (
    McNemar,
    adjust_holm,
    fieller_interval,
    mcnemar,
    two_way,
    wilson_interval,
)

# Holm


@pytest.mark.parametrize(
    ("p_values", "adjusted"),
    [
        ([0.001, 0.01, 0.03, 0.5], [0.004, 0.03, 0.06, 0.5]),  # manual of MultipleTesting.jl
        ([0.001, 0.01, 0.05, 0.1, 0.5, 0.9], [0.006, 0.05, 0.2, 0.3, 1, 1]),  # p.adjust of R 4.5
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),  # Wikipedia, Holm-Bonferroni
        ([0.03, 0.04], [0.06, 0.06]),  # never below a smaller one
        ([0.6, 0.7], [1, 1]),
        ([0.04], [0.04]),  # a family of one needs no correction
        ([], []),
    ],
)
def test_holm_is_the_published_one(p_values, adjusted):
    found = adjust_holm(p_values)
    assert isinstance(found, np.ndarray)
    assert found == pytest.approx(adjusted)


@pytest.mark.parametrize("seed", range(5))
def test_holm_tests_every_family_that_a_comparison_belongs_to(seed):
    """Oracle: the closure principle, with Bonferroni's correction of each subset."""
    p_values = np.random.default_rng(seed).beta(0.3, 3, size=6)
    subsets = [s for k in range(1, 7) for s in itertools.combinations(range(6), k)]
    corrected = {s: min(1, len(s) * min(p_values[i] for i in s)) for s in subsets}
    expected = [max(p for s, p in corrected.items() if i in s) for i in range(6)]
    assert adjust_holm(p_values) == pytest.approx(expected)


def test_holm_changes_nothing_in_what_it_is_given():
    p_values = np.array([0.3, 0.1])
    adjust_holm(p_values)
    assert p_values.tolist() == [0.3, 0.1]


@pytest.mark.parametrize("effects", [0, 4])
def test_a_null_comparison_rarely_survives(effects):
    """10,000 studies of 8 comparisons, some with an effect, which share their baseline's seeds."""
    rng = np.random.default_rng(0)
    baseline = rng.standard_normal((10_000, 1, 3))
    differences = rng.standard_normal((10_000, 8, 3)) - baseline
    differences[:, :effects] += 8
    p_values = stats.ttest_1samp(differences, 0, axis=-1).pvalue  # (studies, comparisons)
    adjusted = np.array([adjust_holm(family) for family in p_values])
    for values, low, high in ((p_values, 0.12, 1), (adjusted, 0.02, 0.05)):
        assert low < np.mean(values[:, effects:].min(axis=1) < 0.05) <= high


def test_a_family_of_paired_comparisons_is_corrected():
    baseline = np.array([0.60, 0.61, 0.63, 0.60])
    gains = ([0.010, 0.012, 0.011, 0.009], [0.01, 0.03, 0.01, 0.02], [0.01, -0.02, 0.0, 0.01])
    found = [paired_difference(baseline, baseline + gain) for gain in gains]
    p_values = [difference.p_value() for difference in found]
    assert [difference.low > 0 for difference in found] == [True, True, False]
    assert (adjust_holm(p_values) < 0.05).tolist() == [True, False, False]


@pytest.mark.parametrize("p_values", [[0.1, np.nan], [0.1, 1.2], [-0.1], [[0.1], [0.2]], 0.1])
def test_what_is_no_list_of_p_values(p_values):
    with pytest.raises(ValueError, match=r"give one in \[0, 1\] for each comparison$") as raised:
        adjust_holm(p_values)
    assert "\n" not in str(raised.value)


# Wilson


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    [  # R. Newcombe, Two-sided confidence intervals for the single proportion, 1998, table I
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_is_the_published_one(right, count, low, high):
    found = wilson_interval(right, count)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.00005)
    turned = wilson_interval(count - right, count)
    assert turned == pytest.approx((1 - found.high, 1 - found.low))


def test_at_the_edges_of_wilsons_interval_the_score_test_just_decides():
    for edge in wilson_interval(680, 1000):
        z = (0.68 - edge) / np.sqrt(edge * (1 - edge) / 1000)
        assert 2 * stats.norm.sf(abs(z)) == pytest.approx(0.05)


def test_all_right_still_leaves_a_width():
    z = stats.norm.ppf(0.975)
    assert wilson_interval(50, 50) == pytest.approx((50 / (50 + z**2), 1))
    assert wilson_interval(np.int64(1), 1).high == 1


def test_wilson_covers_the_accuracy():
    """Exact: the chance of the numbers of right answers whose interval holds the truth."""
    count, right = 200, np.arange(201)
    edges = np.array([wilson_interval(k, count) for k in right])
    for accuracy in (0.02, 0.5, 0.9, 0.99):
        holds = (edges[:, 0] <= accuracy) & (accuracy <= edges[:, 1])
        assert 0.93 < stats.binom.pmf(right, count, accuracy)[holds].sum() < 0.97


@pytest.mark.parametrize(
    ("right", "count"), [(3, 2), (-1, 2), (0, 0), (0.68, 1000), (3, 4.5), (np.nan, 2)]
)
def test_what_is_no_number_of_right_answers(right, count):
    with pytest.raises(ValueError, match=r"two whole numbers, 0 ≤ right ≤ count and count ≥ 1$"):
        wilson_interval(right, count)


# McNemar


def make_hits(both, only_a, only_b, neither):
    """Hits of two networks with these counts, in a mixed order."""
    pairs = np.repeat([[1, 1], [1, 0], [0, 1], [0, 0]], [both, only_a, only_b, neither], axis=0)
    a, b = np.random.default_rng(0).permutation(pairs).astype(bool).T
    return a, b


@pytest.mark.parametrize(
    ("table", "p_value"),
    [  # Vassar College's calculator, as in the tests of statsmodels
        ((101, 121, 59, 33), 0.000004),
        ((101, 70, 59, 33), 0.378688),
        ((101, 80, 59, 33), 0.089452),
        ((101, 30, 60, 33), 0.00206),
        ((101, 10, 30, 33), 0.002221),
        ((101, 10, 10, 33), 1),
    ],
)
def test_mcnemar_is_the_published_one(table, p_value):
    a, b = make_hits(*table)
    found = mcnemar(a, b)
    assert (found.only_a, found.only_b) == table[1:3]
    assert found.p_value == pytest.approx(p_value, abs=0.0000005)
    assert mcnemar(b, a) == pytest.approx((found.only_b, found.only_a, found.p_value))


def test_examples_on_which_both_agree_do_not_count():
    assert mcnemar(*make_hits(0, 3, 9, 0)) == mcnemar(*make_hits(900, 3, 9, 80))


def test_networks_that_never_differ():
    assert mcnemar(*make_hits(5, 0, 0, 3)) == McNemar(0, 0, 1.0)
    assert mcnemar(*make_hits(5, 1, 0, 3)).p_value == 1


def test_mcnemar_rarely_finds_a_difference_where_there_is_none():
    """Exact: without a difference, the number of examples that only a gets right is binomial."""
    differ, only_a = 40, np.arange(41)
    p_values = np.array([mcnemar(*make_hits(0, k, differ - k, 0)).p_value for k in only_a])
    chance = stats.binom.pmf(only_a, differ, 0.5)[p_values < 0.05].sum()
    assert 0.03 < chance <= 0.05


# Seeds and examples


def draw_hits(rng, num_seeds, num_examples, seed_std=0.0, example_std=0.0, shift=0.0):
    """Hits of two variants; ``b`` has its own luck of the seed and its own difficult examples."""
    shape = (num_seeds, num_examples)
    difficulty = rng.standard_normal((1, num_examples))
    noise_a, noise_b = rng.standard_normal((2, *shape))
    own = seed_std * rng.standard_normal((num_seeds, 1))
    own = own + example_std * rng.standard_normal((1, num_examples))
    return difficulty + noise_a > 0, difficulty + own + shift + noise_b > 0


@pytest.mark.parametrize("seed", range(4))
def test_each_error_alone_is_that_of_the_means(seed):
    a, b = draw_hits(np.random.default_rng(seed), 5, 40, 0.5, 1.0)
    found, differences = two_way(a, b), b.astype(float) - a
    over_seeds = paired_difference(a.mean(axis=1), b.mean(axis=1))
    assert found.mean == pytest.approx(over_seeds.mean)
    t = stats.t.ppf(0.975, 4)
    assert found.se_seeds * t == pytest.approx((over_seeds.high - over_seeds.low) / 2)
    assert found.se_examples == pytest.approx(stats.sem(differences.mean(axis=0)))
    assert found.se_seeds != pytest.approx(found.se_examples)


def test_both_errors_are_those_of_the_variance_components():
    """Oracle: seeds vary together on two examples, so their covariance is the seeds' variance."""
    a, b = draw_hits(np.random.default_rng(1), 6, 50, 1.0, 1.0)
    differences = b.astype(float) - a

    def mean_covariance(rows):
        covariances = np.cov(rows)
        return covariances[~np.eye(len(rows), dtype=bool)].mean()

    of_seeds, of_examples = mean_covariance(differences.T), mean_covariance(differences)
    assert min(of_seeds, of_examples) > 0
    # the variance over the seeds, at one example, is that of seeds and residual
    residual = differences.var(axis=0, ddof=1).mean() - of_seeds
    found = two_way(a, b)
    assert found.se_residual**2 == pytest.approx(residual / 300)
    assert found.se_both**2 == pytest.approx(of_seeds / 6 + of_examples / 50 + residual / 300)


def test_two_way_by_hand():
    a = np.zeros((2, 3), dtype=bool)
    b = np.array([[1, 1, 0], [1, 0, 0]], dtype=bool)
    # means of seeds 2/3, 1/3; of examples 1, 1/2, 0; all: 1/2. Residuals ± (1/6, 1/3, 1/6)
    seeds, examples, residual = 3 * 2 / 36, 2 * 2 / 4 / 2, 2 * (1 + 4 + 1) / 36 / 2  # MS
    found = two_way(a, b)
    assert found.mean == pytest.approx(0.5)
    assert found.se_seeds**2 == pytest.approx(seeds / 6)
    assert found.se_examples**2 == pytest.approx(examples / 6)
    assert found.se_residual**2 == pytest.approx(residual / 6)
    assert found.se_both**2 == pytest.approx((seeds + examples - residual) / 6)
    df = (seeds + examples - residual) ** 2 / (seeds**2 / 1 + examples**2 / 2 + residual**2 / 2)
    half_width = stats.t.ppf(0.975, df) * found.se_both
    assert (found.low, found.high) == pytest.approx((0.5 - half_width, 0.5 + half_width))


def test_a_negative_variance_counts_as_none():
    b = np.array([[1, 1, 0, 0], [0, 0, 1, 1]], dtype=bool)  # all means: 1/2
    found = two_way(np.zeros_like(b), b)
    assert (found.se_seeds, found.se_examples) == (0, 0)
    assert found.se_both == found.se_residual > 0
    b = np.array([[1, 1, 0, 0, 1, 0], [1, 1, 0, 0, 0, 1]], dtype=bool)  # examples differ, seeds not
    found = two_way(np.zeros_like(b), b)
    assert found.se_seeds == 0 < found.se_residual < found.se_examples
    assert found.se_both == pytest.approx(found.se_examples)


def test_seeds_and_examples_change_their_roles_when_turned():
    a, b = draw_hits(np.random.default_rng(2), 4, 9, 0.5, 1.0)
    found, turned = two_way(a, b), two_way(a.T, b.T)
    assert found.se_seeds == pytest.approx(turned.se_examples)
    assert found.se_examples == pytest.approx(turned.se_seeds)
    assert found.se_both == pytest.approx(turned.se_both)


def test_equal_hits_have_no_difference_and_no_errors():
    a, _ = draw_hits(np.random.default_rng(0), 3, 10)
    found = two_way(a, a)
    assert (found.mean, found.se_seeds, found.se_examples, found.se_both) == (0, 0, 0, 0)
    assert (found.low, found.high) == (0, 0)


def test_one_seed_knows_nothing_of_others():
    a, b = draw_hits(np.random.default_rng(0), 1, 100)
    found = two_way(a, b)
    assert found.se_examples == pytest.approx(stats.sem(b[0].astype(float) - a[0]))
    assert found.se_seeds == found.se_residual == found.se_both == np.inf
    assert (found.low, found.high) == (-np.inf, np.inf)


def test_one_example_knows_nothing_of_others():
    a, b = draw_hits(np.random.default_rng(0), 10, 1)
    found = two_way(a, b)
    assert np.isfinite(found.se_seeds)
    assert found.se_examples == found.se_both == np.inf
    assert (found.low, found.high) == (-np.inf, np.inf)


@pytest.mark.parametrize(
    ("seeds", "seed_std", "example_std"), [(3, 0.2, 0.5), (8, 0.1, 1.5), (8, 0.0, 0.0)]
)
def test_two_way_covers_other_seeds_and_other_examples(seeds, seed_std, example_std):
    """400 studies; the truth is the accuracy over all seeds and examples."""
    rng = np.random.default_rng(0)
    spread = np.sqrt(2 + seed_std**2 + example_std**2)  # of what is compared with zero
    truth = stats.norm.cdf(0.3 / spread) - 0.5
    studies = [
        two_way(*draw_hits(rng, seeds, 200, seed_std, example_std, shift=0.3)) for _ in range(400)
    ]
    assert 0.92 < np.mean([found.low <= truth <= found.high for found in studies]) <= 0.99
    errors = np.array([(f.se_both, f.se_seeds, f.se_examples) for f in studies])
    assert np.all(errors.max(axis=1) <= errors[:, 0] * (1 + 1e-9))
    if example_std > 1:  # an interval over seeds alone covers other seeds, but not other examples
        t = stats.t.ppf(0.975, seeds - 1)
        alone = np.mean([abs(f.mean - truth) <= t * f.se_seeds for f in studies])
        assert alone < 0.85


@pytest.mark.parametrize("call", [mcnemar, two_way])
def test_what_is_no_pair_of_hits(call):
    right = np.ones((2, 5), dtype=bool) if call is two_way else np.ones(5, dtype=bool)
    order = r"give both as \((seeds, )?examples,?\), in the same order$"
    for a, b in ((right, right[..., :4]), (right[None], right[None]), (right[..., :0],) * 2):
        with pytest.raises(ValueError, match=order):
            call(a, b)
    with pytest.raises(ValueError, match=r"give booleans, predictions == targets$"):
        call(right, 7 * right.astype(int))


# Fieller


@pytest.mark.parametrize("seed", range(4))
def test_at_the_edges_of_fiellers_interval_a_paired_test_just_decides(seed):
    rng = np.random.default_rng(seed)
    below = 5 + rng.standard_normal(6)
    above = 2 + 0.5 * below + rng.standard_normal(6)
    low, high = fieller_interval(above, below)
    assert low < above.mean() / below.mean() < high
    for ratio in (low, high):
        assert stats.ttest_rel(above, ratio * below).pvalue == pytest.approx(0.05)
    turned = fieller_interval(-above, -below)
    assert turned == pytest.approx((low, high))


def test_a_constant_denominator_only_scales():
    numerators = np.array([1.0, 2.0, 4.0, 3.0])
    low, high = stats.ttest_1samp(numerators, 0).confidence_interval(0.95)
    assert fieller_interval(numerators, [-2] * 4) == pytest.approx((-high / 2, -low / 2))


def test_a_constant_ratio_has_no_width():
    below = np.array([0.9, 1.1, 1.3])
    assert fieller_interval(0.7 * below, below) == pytest.approx((0.7, 0.7))
    assert fieller_interval([0, 0, 0], below) == pytest.approx((0, 0))


@pytest.mark.parametrize(
    ("numerators", "denominators"),
    [
        ([1.0, 2.0, 3.0], [-1.0, 0.5, 1.0]),
        ([1.0, 2.0, 3.0], [0.0, 0.0, 0.0]),
        ([1.0], [2.0]),  # one pair has no spread
    ],
)
def test_a_ratio_is_unbounded_if_what_divides_may_be_zero(numerators, denominators):
    assert fieller_interval(numerators, denominators) == (-np.inf, np.inf)


def test_fieller_is_bounded_just_where_the_denominator_differs_from_zero():
    values = np.array([1.0, 2.0, 4.0])
    low, _ = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    above = values[::-1]
    assert np.isfinite(fieller_interval(above, values - low + 1e-6)).all()
    assert not np.isfinite(fieller_interval(above, values - low - 1e-6)).any()


def test_fieller_covers_the_ratio():
    """1,000 studies of five seeds, in which the noise of the baseline is in both gains."""
    rng = np.random.default_rng(0)
    baseline, lora, full = 0.5 * rng.standard_normal((3, 1000, 5))
    studies = zip(1.2 + lora - baseline, 2 + full - baseline, strict=True)
    edges = np.array([fieller_interval(*study) for study in studies])
    assert 0.935 < np.mean((edges[:, 0] <= 0.6) & (edges[:, 1] >= 0.6)) < 0.965


@pytest.mark.parametrize(
    ("numerators", "denominators", "message"),
    [
        ([1.0], [1.0, 2.0], "give one of each per seed$"),
        ([], [], "give one of each per seed$"),
        ([[1.0]], [[1.0]], "give one of each per seed$"),
        ([1.0, np.nan], [1.0, 2.0], "leave out both of its pair$"),
        ([1.0, 2.0], [1.0, np.inf], "leave out both of its pair$"),
    ],
)
def test_what_is_no_ratio(numerators, denominators, message):
    with pytest.raises(ValueError, match=message):
        fieller_interval(numerators, denominators)
