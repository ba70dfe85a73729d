import dataclasses

import numpy as np
import pytest
from scipy import stats

from course_utils.errors import CourseError
from course_utils.training.compare import Comparison, compare, paired_difference
from course_utils.training.run import Run


def make_run(arm, seed, accuracy):
    metrics = {"val_accuracy": accuracy, "val_loss": 2 - accuracy, "val_calibration_error": 0.1}
    return Run(arm, seed, metrics, [], 1.0, 100.0, 10, 10, 1000, None, {})


def make_comparison(**arms):
    seeds = tuple(range(len(next(iter(arms.values())))))
    runs = [
        make_run(a, s, v) for a, values in arms.items() for s, v in zip(seeds, values, strict=True)
    ]
    return Comparison("test", tuple(arms), seeds, tuple(runs))


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
    assert found.verdict() == "no evidence"


def test_identical_arms_show_no_evidence():
    found = paired_difference([0.5, 0.6, 0.7], [0.5, 0.6, 0.7])
    assert (found.mean, found.low, found.high) == (0, 0, 0)
    assert found.verdict() == "no evidence"


def test_one_seed_has_no_interval():
    found = paired_difference([0.5], [0.9])
    assert (found.low, found.high) == (-np.inf, np.inf)
    assert found.verdict() == "no evidence"


@pytest.mark.parametrize(("a", "b"), [([1.0], [1.0, 2.0]), ([], [])])
def test_unequal_or_empty_values(a, b):
    with pytest.raises(ValueError, match="one of each a seed"):
        paired_difference(a, b)


@pytest.mark.parametrize(
    ("shift", "accuracy", "loss"), [(0.1, "helps", "helps"), (-0.1, "hurts", "hurts")]
)
def test_verdict_knows_which_direction_is_better(shift, accuracy, loss):
    base = [0.5, 0.52, 0.54]
    comparison = make_comparison(baseline=base, other=[x + shift + x / 100 for x in base])
    assert comparison.verdict("other").endswith(f": {accuracy}.")
    assert comparison.verdict("other", "val_loss").endswith(f": {loss}.")


def test_table_holds_points_and_verdicts():
    comparison = make_comparison(baseline=[0.5, 0.6, 0.7], other=[0.51, 0.62, 0.71])
    table = comparison.table()
    assert table.loc["baseline", "accuracy (mean)"] == 60.0
    assert table.loc["baseline", "verdict"] == "–"
    assert table.loc["other", "difference (points)"] == pytest.approx(1.33)
    assert table.loc["other", "verdict"] == "no evidence"
    assert comparison.noise_floor() == pytest.approx(0.1)


def test_verdict_of_one_seed_says_so():
    comparison = make_comparison(baseline=[0.5], other=[0.9])
    assert "1 paired seed, one seed, no interval): no evidence." in comparison.verdict("other")
    assert np.isnan(comparison.noise_floor())


def test_compare_trains_every_arm_at_every_seed(tiny_config, tiny_data):
    config = tiny_config.replace(num_seeds=2, first_seed=3)
    short = dataclasses.replace(config, epochs=2)
    arms = {
        "baseline": {},
        "null": {"batch_transform": lambda x, t: (x, t)},
        "long": {"config": short},
    }
    comparison = compare(arms, config, tiny_data, name="null case")
    assert comparison.seeds == (3, 4)
    assert [(run.arm, run.seed) for run in comparison.runs] == [
        (arm, seed) for seed in (3, 4) for arm in arms
    ]
    assert np.array_equal(comparison.values("baseline"), comparison.values("null"))
    assert comparison.difference("null").verdict() == "no evidence"
    assert len(comparison.runs[2].history) == 2
    assert all(run.comparison == "null case" and run.model is None for run in comparison.runs)


@pytest.mark.parametrize(
    ("arms", "seeds"), [({}, [0]), ({"baseline": {}}, []), ({"b": {}}, [1, 1])]
)
def test_compare_refuses_nothing_and_twice(tiny_config, tiny_data, arms, seeds):
    with pytest.raises(CourseError, match="needs arms and different seeds"):
        compare(arms, tiny_config, tiny_data, seeds=seeds)


def test_summary_gives_every_metric_with_interval_and_verdict():
    found = make_comparison(off=[0.50, 0.60, 0.70], on=[0.60, 0.71, 0.79])
    summary = found.summarize("on")
    assert list(summary.index) == ["accuracy", "validation loss", "calibration error"]
    assert summary["accuracy"] == "+10.00 (+7.52 to +12.48) points: helps"
    assert summary["validation loss"].endswith("nats: helps")  # it falls by as much
    assert summary["calibration error"] == "+0.00 (+0.00 to +0.00) points: no evidence"
