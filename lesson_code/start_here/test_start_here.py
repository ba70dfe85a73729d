"""What lesson 00 says of the study, against the study; its four verdicts, its seeds, its prices."""

import inspect
import re
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from course_tools.run.lessons import find_lessons
from course_utils.measure.paired import paired_difference
from course_utils.results import STUDIES, read_file
from course_utils.study_results import read_study
from course_utils.training.fit import fit

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
def stored():
    """The comparisons of one run of all lessons, and how much luck each one's trainings share."""
    rows = pd.DataFrame(read_file(STUDIES / "start_here/study.json")["comparisons"])
    pairs = [(np.array(row.before), np.array(row.after)) for row in rows.itertuples()]
    stds = [[x.std(ddof=1) for x in (b - a, a, b)] for a, b in pairs]
    rows["ratio"] = [paired / np.hypot(one, other) for paired, one, other in stds]
    return rows


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
    edges = f"from −{-pairs.min():.1f} to {pairs.max():+.1f} points"
    assert f"they show anything {edges}" in cells["verdict-text"]
    assert "above zero and not within the margin" in cells["first-read"]
    assert study.difference(regime, treated, baseline).high > study.margin
    rates = (study.best[regime][name].removeprefix("lr ") for name in (baseline, treated))
    assert "{} without averaging and {} with it".format(*rates) in cells["first-read"]
    against_usual = study.difference(regime, treated, "full fine-tuning").mean
    assert 0 < 100 * against_usual < gains.mean(), "it is smaller, as a table below shows"
    assert "even the unpaired interval excludes zero" in cells["toy"]
    assert stats.ttest_ind(averaged, last).confidence_interval(0.95).low > 0
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


def choose_all(differences, size):
    """Each choice of so many differences: its verdict, and how much it scatters."""
    chosen = [np.array(x) for x in combinations(differences, size)]
    words = [paired_difference(np.zeros(size), x).verdict(margin=1) for x in chosen]
    return pd.DataFrame({"verdict": words, "std": [x.std(ddof=1) for x in chosen]})


def test_few_seeds_often_say_nothing_and_sometimes_something_else(cells, study):
    """Helps where ten seeds say hurts, or equivalent where they say either, and so on."""
    assert "Few seeds often tell nothing" in cells["power-md"]
    assert "a definite verdict that all ten do not confirm" in cells["power-md"]
    something_else = 0
    for verdict, place in CHOSEN.items():
        differences = list_differences(study, *place)
        words = list(choose_all(differences, 3)["verdict"])
        others = [word for word in words if word not in (verdict, "inconclusive")]
        if verdict != "inconclusive":
            assert len(others) < 0.1 * len(words)
            assert "inconclusive" in words
        something_else += len(others)
    assert something_else > 0


def test_a_schedule_is_called_equivalent_by_seeds_that_lie_close_together(cells, study):
    differences = list_differences(study, *CHOSEN["equivalent"])
    three, five = (choose_all(differences, size) for size in (3, 5))
    share = (five["verdict"] == "hurts").mean()
    said = f"in {share:.0%} of the choices, five seeds say that the cosine schedule hurts"
    assert said.replace("%", " %") in cells["power-md"]
    assert "*equivalent* of it more often than five" in cells["power-md"]
    equal = three[three["verdict"] == "equivalent"]
    assert len(equal) / len(three) > (five["verdict"] == "equivalent").mean()
    assert equal["std"].max() < differences.std(ddof=1), "they lie close together by chance"


def test_what_is_said_of_shared_luck_is_what_the_comparisons_show(cells, stored):
    assert "Most real trainings share less luck" in cells["toy"]
    toy = 0.4 / np.hypot(2.0, 0.4)  # what each has of its own, relative to all of its spread
    assert (stored["ratio"] > toy).mean() > 0.8
    tuned = stored[(stored["lesson"] == "02_freezing") & (stored["baseline"] == "from scratch")]
    tuned = tuned[tuned["variant"] == "full fine-tuning"].set_index("comparison")["ratio"]
    few, many = tuned["few photographs"], tuned["many photographs"]
    expected = f"ratio of {few:.2f} with few photographs and of {many:.2f} with many"
    assert expected in cells["ratio-md"]


def test_the_two_examples_of_shared_luck_are_those_that_the_text_explains(cells, stored):
    parallel = stored[stored["ratio"] > 0].nsmallest(1, "ratio").iloc[0]
    assert (parallel["lesson"], parallel["variant"]) == ("11_dali", "untouched validation")
    assert "only the validation images differ" in cells["ratio-md"]
    crossing = stored.nlargest(1, "ratio").iloc[0]
    assert crossing["lesson"] == "17_hard_examples"
    assert crossing["comparison"] == "10% wrong labels"
    assert (crossing["baseline"], crossing["variant"]) == ("mean", "easiest 80 %")
    assert "a tenth of the training labels is wrong" in cells["ratio-md"]
    assert crossing["ratio"] > 1, "pairing made the interval wider"


def test_the_map_names_arguments_of_fit(cells):
    rows = [row.split("|")[1:3] for row in cells["how"].splitlines() if row.startswith("| **")]
    assert len(rows) == 6
    named = [name for _, arguments in rows for name in re.findall(r"`(\w+)`", arguments)]
    assert len(named) == 8
    assert set(named) <= inspect.signature(fit).parameters.keys()


def test_from_four_seeds_on_pairing_is_worth_it_at_the_median_ratio(stored):
    """As Going deeper says: about even with three."""
    width = {
        n: stored["ratio"].median() * stats.t.ppf(0.975, n - 1) / stats.t.ppf(0.975, 2 * n - 2)
        for n in (3, 4, 10)
    }
    assert 1 < width[3] < 1.15
    assert width[10] < width[4] < 0.95
