"""What lesson 00 says of the study, against the study; its four verdicts, its seeds, its prices."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from course_tools.run.lessons import find_lessons
from course_utils.measure.paired import paired_difference
from course_utils.study_results import read_study

CHOSEN = {
    "helps": ("photographs", "constant, averaged weights", "constant learning rate"),
    "hurts": ("texts", "LoRA", "full fine-tuning"),
    "equivalent": ("texts", "full fine-tuning", "constant learning rate"),
    "inconclusive": ("photographs", "label smoothing", "full fine-tuning"),
}


@pytest.fixture(scope="module")
def cells():
    (lesson,) = (lesson for lesson in find_lessons() if lesson.name.startswith("00"))
    return {cell.id: cell.source for cell in lesson.read().cells}


@pytest.fixture(scope="module")
def study():
    return read_study("text")


def list_differences(study, regime, treated, baseline):
    return 100 * (study.values(regime, treated) - study.values(regime, baseline))


def test_the_first_result_is_decided_and_told_right(cells, study):
    regime, treated, baseline = CHOSEN["helps"]
    last, averaged = (100 * study.values(regime, name) for name in (baseline, treated))
    gains = averaged - last
    assert "gained at every seed" in cells["pairs-figure"]
    assert min(gains) > 0
    assert "nearly nothing and almost three points" in cells["first-read"]
    assert min(gains) < 0.2
    assert 2.5 < max(gains) < 3
    assert "without averaging are further apart than the effect" in cells["first-read"]
    assert np.ptp(last) > gains.mean()
    pairs = averaged[:, None] - last
    assert 0 < (pairs < 0).sum() < pairs.size / 4, "most pairs tell the direction"
    p_values = [
        study.difference(name, variant, other).p_value() for name, variant, other in CHOSEN.values()
    ]
    assert p_values[0] < 0.01 / 16, "it holds beside all other comparisons of the study"


@pytest.mark.parametrize("verdict", CHOSEN)
def test_four_comparisons_have_the_four_verdicts(cells, study, verdict):
    found = study.difference(*CHOSEN[verdict])
    assert found.verdict(margin=study.margin) == verdict
    assert all(
        f'"{name}"' in cells["chosen"]
        for name in CHOSEN[verdict][:2]
        if name != "constant, averaged weights"
    )


def test_two_means_of_half_a_point_have_different_verdicts(cells, study):
    equal, unknown = (study.difference(*CHOSEN[x]) for x in ("equivalent", "inconclusive"))
    assert "two means are of the same size" in cells["opposites-md"]
    assert 100 * equal.mean == pytest.approx(-0.5, abs=0.1)
    assert 100 * unknown.mean == pytest.approx(0.5, abs=0.1)
    assert equal.high < 0, "equivalent, although zero is excluded"
    assert unknown.high > study.margin


def test_few_seeds_often_say_nothing_and_sometimes_something_else(cells, study):
    """Helps where ten seeds say hurts, or equivalent where they say either, and so on."""
    assert "Few seeds often tell you nothing" in cells["power-md"]
    assert "give another verdict than all ten" in cells["power-md"]
    something_else = 0
    for verdict, place in CHOSEN.items():
        differences = list_differences(study, *place)
        words = [
            paired_difference(np.zeros(3), chosen).verdict(margin=1)
            for chosen in combinations(differences, 3)
        ]
        others = [word for word in words if word not in (verdict, "inconclusive")]
        if verdict != "inconclusive":
            assert len(others) < 0.1 * len(words)
            assert "inconclusive" in words
        something_else += len(others)
    assert something_else > 0


def test_from_four_seeds_on_pairing_is_worth_it_at_the_median_ratio():
    """As Going deeper says: about even with three."""
    width = {
        n: 0.71 * stats.t.ppf(0.975, n - 1) / stats.t.ppf(0.975, 2 * n - 2) for n in (3, 4, 10)
    }
    assert 1 < width[3] < 1.15
    assert width[10] < width[4] < 0.95
