"""The text of lesson 18 against the stored trainings that it reads."""

import contextlib
import io

import nbformat
import numpy as np
import pytest

from course_tools.study.lesson_code import read_definitions
from course_utils.claims import claim
from course_utils.measure.paired import paired_difference
from course_utils.measure.statistics import two_way
from tests.places import ROOT

STEM = "18_when_to_stop"
READING = ("stored", "best-epochs", "judge-patience", "patience-table", "retrain-table", "averaged")
CHOOSING = ("settings", "curse-sizes", "curse-seeds", "curse-table", "searches", "searches-table")
SPLITTING = ("folds", "spreads", "intervals-table")


@pytest.fixture(scope="module")
def notebook():
    return nbformat.read(ROOT / "notebooks" / f"{STEM}.ipynb", as_version=4)


@pytest.fixture(scope="module")
def text(notebook):
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


@pytest.fixture(scope="module")
def lesson(notebook):
    """What the lesson computes from the stored trainings, by name."""
    pytest.importorskip("optuna", reason="the extra search is not installed")
    cells = {cell.id: cell.source for cell in notebook.cells}
    import optuna

    names = read_definitions(STEM, optuna=optuna, claim=claim)
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in READING + CHOOSING + SPLITTING:
            exec(cells[cell], names)
    return names


def judge(values):
    return paired_difference(np.zeros(len(values)), values)


def test_the_best_epoch_is_luck_where_the_curve_is_flat(lesson, text):
    assert "the curve is flat from epoch 6 on" in text
    curve = 100 * lesson["constant"].mean(axis=(0, 2))
    assert np.ptp(curve[5:]) < 1.5
    assert "between 5 and 15 in eight of ten choices. The median of five narrows this to 7" in text
    found = [np.quantile(lesson[name], (0.1, 0.9)) for name in ("best_epochs", "medians")]
    assert np.array_equal(np.round(found), [(5, 15), (7, 12)])
    assert "The median was 10 epochs." in text
    assert np.median(lesson["medians"]) == 10


def test_early_stopping_saves_time_and_costs_accuracy_in_a_cosine(lesson, text):
    stops = lesson["stops"]
    assert "a patience of 3 saves about six of the 16 epochs" in text
    trained = [
        lesson["judge_patience"](h, lesson["stored_masks"], 3)[1] for h in lesson["constant"]
    ]
    assert 5 < 16 - np.mean(trained) < 7
    assert "its accuracy is within one point of that of the last epoch" in text
    assert stops["constant", 3].verdict(margin=1) == "equivalent"
    assert "The best of all 16 epochs shows no clear gain either." in text
    assert stops["constant", 16].low < 0 < stops["constant", 16].high
    assert "**In a cosine, early stopping costs accuracy.**" in text
    assert "Even the best of all its epochs is worse than the last one" in text
    for patience in (3, 5, 16):
        assert stops["cosine", patience].high < 0
    assert stops["cosine", 3].n == 8


def test_the_length_of_a_cosine(lesson, text):
    assert "A cosine over 8 or 16 epochs beats the constant learning rate, and over 4" in text
    gains = {n: judge(values - lesson["flat"]) for n, values in lesson["ends"].items()}
    assert gains[8].low > 0
    assert gains[16].low > 0
    assert gains[4].mean < 0
    assert "Eight seeds show no difference between 8 and 16 epochs, and none with 200" in text
    for found in (lesson["lengths"], lesson["added"]):
        assert found.low < 0 < found.high
    assert "8 and 16 epochs differed by less than half a point" in text
    assert abs(lesson["lengths"].mean) < 0.5
    assert "4 epochs lost about three points against 8" in text
    assert 2 < (lesson["ends"][8] - lesson["ends"][4]).mean() < 4


def test_with_an_average_the_choice_does_not_matter(lesson, text):
    assert "each one is about three points better than the last epoch without it" in text
    means = [found.mean for found in lesson["gains"].values()]
    assert all(found.low > 0 for found in lesson["gains"].values())
    assert 2.5 < min(means) <= max(means) < 3.5
    assert np.ptp(means) < 0.5
    assert "the lower learning rate above did at least as well without an average" in text
    assert lesson["flat"].mean() >= (lesson["plain_end"] + lesson["gains"]["last"].mean).mean()


def test_the_winner_is_good_and_looks_better(lesson, text):
    assert "The choice is worth something" in text
    assert lesson["worth"].low > 0
    assert "although five seeds cannot show it here" in text
    assert lesson["seed_gap"].low < 0 < lesson["seed_gap"].high
    assert lesson["curse_gap"].low > 1
    assert "On average it is about two points too high." in text
    assert 1.75 < lesson["curse_gap"].mean < 2.5
    assert "it can be seven points too high, or two points too low" in text
    assert np.array_equal(np.round(np.quantile(lesson["single"], (0.1, 0.9))), (-2, 7))
    assert "it is about two points, where equal and independent settings would show 5.5" in text
    share = lesson["share"]
    noise = 100 * (share * (1 - share) / 200) ** 0.5
    assert abs(noise * lesson["expect_luck"](12) - 5.5) < 0.05
    assert abs(lesson["curse"][200][-1] - 2) < 0.5
    assert "each solid line is below the dotted line of its colour" in text
    bounds = [100 * (0.22 / size) ** 0.5 * lesson["expect_luck"](12) for size in lesson["curse"]]
    for gains, bound in zip(lesson["curse"].values(), bounds, strict=True):
        assert 0.5 < gains[-1] < bound
        assert np.all(np.diff(gains) > 0)


def test_halving_saves_epochs(lesson, text):
    assert "Halving trains 12 + 6 + 3 × 2 + 2 × 2 of them, Optuna's pruner about half" in text
    table = lesson["table"]
    trained, accuracy, optimism = (table.iloc[:, column] for column in range(3))
    assert (trained["train all"], trained["halving"]) == (72, 28)
    assert 0.4 < trained["Optuna's pruner"] / 72 < 0.6
    assert "Their winners are no worse on the mean of the seeds" in text
    assert accuracy.min() > accuracy["train all"] - 0.1
    assert "The winner of halving is less optimistic at its end" in text
    assert optimism["halving"] < optimism["train all"] - 1


def test_folds_differ_more_than_seeds_until_they_are_paired(lesson, text):
    assert "spreads more over folds than over seeds" in text
    spreads, unpaired = lesson["spreads"], lesson["unpaired"]
    for name in ("constant", "cosine"):
        assert spreads[name][1] > 1.2 * spreads[name][0]
    assert "200 photographs alone make a spread as large as that" in text
    assert abs(lesson["chance"] - (spreads["constant"][1] + spreads["cosine"][1]) / 2) < 0.5
    assert "the spread over folds is smaller than it would be without pairing" in text
    assert spreads["difference"][1] < unpaired[1]
    assert "Over seeds the paired spread is even larger here than the unpaired one" in text
    assert spreads["difference"][0] > unpaired[0]


def test_intervals_over_folds_and_over_seeds(lesson, text):
    assert "the plain interval does not contain 0, and the corrected one does" in text
    assert lesson["over_folds"].low > 0
    low, high = lesson["correct_interval"](lesson["of_folds"], 1 / 5)
    assert low < 0 < high
    assert "Over seeds only one fold has an interval above 0." in text
    assert sum(found.low > 0 for found in lesson["over_seeds"].values()) == 1


def test_other_photographs_widen_the_intervals_over_seeds(lesson):
    """Standard errors in points; a review computed them from the same stored hits, by itself."""
    constant, curves = lesson["constant"][:, -1], lesson["curves"]  # (seeds, photographs)
    assert constant.shape == (8, 1000)
    found = two_way(constant, curves["cosine", 16][:, -1])
    over_seeds = judge(lesson["ends"][16] - lesson["flat"])
    assert 100 * found.mean == pytest.approx(over_seeds.mean)
    assert round(over_seeds.mean, 1) == 1.3
    errors = [found.se_seeds, found.se_residual, found.se_both]
    assert np.round(100 * np.array(errors), 2).tolist() == [0.46, 0.41, 0.52]
    counted_twice = np.hypot(found.se_seeds, found.se_examples)
    assert 100 * counted_twice == pytest.approx(0.66, abs=0.005)
    assert np.round([100 * found.low, 100 * found.high], 1).tolist() == [0.1, 2.4]
    short = two_way(constant, curves["cosine", 4][:, -1])
    assert np.round([100 * short.se_seeds, 100 * short.se_both], 2).tolist() == [0.57, 0.8]
