"""What lesson 01 says of its study and of the race in words is what they found."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from course_utils.results import STUDIES, read_file
from course_utils.study_results import read_study

VARIANTS = ("baseline", "cosine schedule")


@pytest.fixture(scope="module")
def study():
    return read_study("baseline")


@pytest.fixture(scope="module")
def race():
    """The accuracies of each recipe."""
    found = {}
    for row in read_file(STUDIES / "putting_it_together/study_race.json")["rows"]:
        found.setdefault(row["rival"], []).append(row["curve"][-1][1])
    return {rival: np.array(values) for rival, values in found.items()}


def list_distances(accuracies):
    return [100 * abs(a - b) for a, b in itertools.combinations(accuracies, 2)]


def find_noise(accuracies):
    return 100 * np.std(accuracies, ddof=1)


def test_two_epochs_on_1000_photographs(study):
    distances = list_distances(study.values("1,000 for 2 epochs", "baseline"))
    assert np.mean(distances) == pytest.approx(2.9, abs=0.05)
    assert max(distances) == pytest.approx(7.75, abs=0.005)


def test_the_pooled_noise_floor_of_the_race(race):
    squares = sum(np.sum((values - values.mean()) ** 2) for values in race.values())
    df = sum(len(values) - 1 for values in race.values())
    std = 100 * math.sqrt(squares / df)
    assert (len(race), df) == (8, 16)
    assert std == pytest.approx(0.35, abs=0.005)
    edges = std * np.sqrt(df / stats.chi2.ppf((0.975, 0.025), df))
    assert edges == pytest.approx([0.3, 0.5], abs=0.05)
    apart = [distance for values in race.values() for distance in list_distances(values)]
    assert np.mean(apart) == pytest.approx(0.4, abs=0.05)
    assert stats.norm.ppf(0.975) * math.sqrt(2) * std == pytest.approx(1.0, abs=0.05)
    assert np.mean(race["scratch"]) == pytest.approx(0.86, abs=0.005)


def test_the_noise_floor_of_the_race_is_below_that_of_every_setting_of_the_study(study, race):
    largest = max(find_noise(values) for values in race.values())
    for regime in study.regimes:
        for variant in VARIANTS:
            assert find_noise(study.values(regime, variant)) > largest


def test_a_falling_learning_rate_makes_the_noise_floor_smaller(study):
    for regime in study.regimes:
        constant, falling = (find_noise(study.values(regime, variant)) for variant in VARIANTS)
        assert falling < constant


def test_the_numbers_below_the_first_figure(study):
    values = study.values("1,000 for 8 epochs", "baseline")
    assert np.mean(list_distances(values)) == pytest.approx(1.6, abs=0.05)
    assert max(list_distances(values)) == pytest.approx(4.1, abs=0.05)
    assert find_noise(values) == pytest.approx(1.37, abs=0.005)
    found = [
        find_noise(study.values(regime, variant))
        for variant in VARIANTS
        for regime in ("1,000 for 8 epochs", "4,000 for 2 epochs")
    ]
    assert found == pytest.approx([1.37, 1.45, 1.01, 0.73], abs=0.005)


def test_the_range_of_the_noise_floor_in_the_recap(study):
    found = [find_noise(study.values(x, variant)) for x in study.regimes for variant in VARIANTS]
    assert (min(found), max(found)) == pytest.approx((0.7, 2.5), abs=0.05)


def test_how_far_two_normal_values_are_apart():
    """On average 2/√π standard deviations."""
    drawn = np.random.default_rng(0).normal(size=(2, 1_000_000))
    assert np.abs(drawn[0] - drawn[1]).mean() == pytest.approx(1.13, abs=0.005)


def test_what_two_single_runs_must_differ_by(study):
    std = find_noise(study.values("1,000 for 8 epochs", "baseline"))
    assert stats.norm.ppf(0.975) * math.sqrt(2) * std == pytest.approx(3.8, abs=0.05)


@pytest.mark.parametrize(
    ("regime", "points", "verdict", "seen", "misled"),
    [
        ("1,000 for 2 epochs", -2.7, "hurts", 0.16, 0.18),
        ("1,000 for 8 epochs", 2.6, "helps", 0.32, 0.04),
        ("4,000 for 2 epochs", 3.2, "helps", 0.56, 0.03),
    ],
)
def test_the_effect_of_the_schedule(study, regime, points, verdict, seen, misled):
    found = study.difference(regime, "cosine schedule")
    assert 100 * found.mean == pytest.approx(points, abs=0.05)
    assert found.verdict(margin=study.margin) == verdict
    baseline, cosine = (study.values(regime, variant) for variant in VARIANTS)
    differences = (cosine[None] - baseline[:, None])[~np.eye(len(baseline), dtype=bool)]
    right = 100 * np.sign(points) * differences
    limit = stats.norm.ppf(0.975) * math.hypot(find_noise(baseline), find_noise(cosine))
    assert np.mean(right > limit) == pytest.approx(seen, abs=0.005)
    assert np.mean(right < 0) == pytest.approx(misled, abs=0.005)
    assert abs(100 * found.mean) > find_noise(baseline)


def test_the_noise_floor_of_a_constant_learning_rate_is_larger(study):
    """Over the three settings together; an F test of each alone would not decide it."""
    variances = [
        np.mean([np.var(study.values(x, variant), ddof=1) for x in study.regimes])
        for variant in VARIANTS
    ]
    df = sum(len(study.seeds) - 1 for _ in study.regimes)
    assert 100 * np.sqrt(variances) == pytest.approx([1.83, 1.10], abs=0.005)
    p = 2 * stats.f.sf(variances[0] / variances[1], df, df)
    assert p == pytest.approx(0.011, abs=0.0005)
