"""The text of lesson 18 against the stored trainings that it reads."""

import contextlib
import io
from types import SimpleNamespace

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest

from course_tools.study.lesson_code import read_definitions
from course_utils.claims import claim
from course_utils.measure.paired import paired_difference
from course_utils.measure.statistics import two_way
from lesson_code.when_to_stop.study import judge_restored
from tests.places import ROOT

STEM = "18_when_to_stop"
READING = ("stored", "first-read", "check-first")
CHOOSING = ("settings", "curse-figure", "curse-seeds", "curse-table", "two-way", "pairs")
DEEPER = ("best-epochs", "retrain-table", "averaged", "test-split", "searches", "searches-table")
SPLITTING = ("folds", "spreads", "intervals-table")


@pytest.fixture(scope="module")
def notebook():
    return nbformat.read(ROOT / "notebooks" / f"{STEM}.ipynb", as_version=4)


@pytest.fixture(scope="module")
def text(notebook):
    """All that the notebook says, with single spaces."""
    cells = (cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return " ".join("\n".join(cells).split())


@pytest.fixture(scope="module")
def lesson(notebook):
    """What the lesson computes from the stored trainings, by name."""
    pytest.importorskip("optuna", reason="the extra search is not installed")
    cells = {cell.id: cell.source for cell in notebook.cells}
    import optuna

    plt.switch_backend("agg")
    names = read_definitions(STEM, optuna=optuna, claim=claim)
    names |= {"data": SimpleNamespace(val=range(1000)), "num_val": 200}  # of the live training
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in READING + CHOOSING + DEEPER + SPLITTING:
            exec(cells[cell].replace("plt.show()", "plt.close('all')"), names)
    return names


def judge(values):
    return paired_difference(np.zeros(len(values)), values)


def in_points(found):
    return f"{100 * abs(found.mean):.1f} points"


def test_early_stopping_costs_accuracy_in_a_cosine(lesson, text):
    stops, trained = lesson["stops"], lesson["trained_epochs"]
    stopped = stops["cosine", "patience 3"]
    assert f"In the cosine a patience of 3 costs {in_points(stopped)}" in text
    loses = "In a cosine over 16 epochs, early stopping with a patience of 3 loses"
    assert f"{loses} {in_points(stopped)}" in text
    more = stops["cosine", "patience 5"]
    assert f"less with a patience of 5 ({in_points(more)})" in text
    assert stopped.mean < more.mean < 0
    assert more.high < 0
    assert stopped.verdict() == "hurts"
    assert stopped.high < -2 * 0.01, "far outside the grey band"
    assert f"It stops after {trained['cosine', 'patience 3']:.1f} epochs on average" in text
    epoch, judged = lesson["restored_at"]["cosine", "patience 3"]
    last = 100 * lesson["cosine"][:, -1].mean()
    assert f"right on {judged:.1f} % of the photographs that judge, and the last weights on" in text
    assert f"the last weights on {last:.1f} %" in text
    assert judged - last == pytest.approx(100 * stopped.mean)
    assert "the weights that it restores are up to three epochs older" in text
    assert 2 < trained["cosine", "patience 3"] - epoch <= 3
    best = stops["cosine", "best of all 16"]
    assert f"Even the best of all 16 epochs loses {in_points(best)} in the cosine" in text
    assert best.high < 0
    assert {found.n for found in stops.values()} == {8}


def test_the_study_keeps_what_the_restored_epoch_reaches(lesson):
    curves = lesson["rows"][lesson["rows"]["kind"] == "curve"]
    for row in curves[curves["seed"] == 0].to_dict("records"):
        hits = lesson["curves"][row["variant"], row["epochs"]][0]
        assert row["restored"] == judge_restored(hits)
    kept = curves[(curves["variant"] == "cosine") & (curves["epochs"] == 16)].sort_values("seed")
    gains = 100 * (kept["restored"] - kept["accuracy"])
    np.testing.assert_allclose(gains, lesson["stop_gains"]["cosine", "patience 3"], atol=0.001)


def test_at_a_constant_learning_rate_it_saves_time(lesson, text):
    stops, trained = lesson["stops"], lesson["trained_epochs"]["constant", "patience 3"]
    assert f"the same patience stops after {trained:.1f} epochs and is equivalent" in text
    assert stops["constant", "patience 3"].verdict() == "equivalent"
    assert "so it saves time and costs less than a point" in text
    assert stops["constant", "patience 3"].low > -0.01
    assert "it is equivalent to the last epoch and saves six of 16 epochs" in text
    assert round(16 - trained) == 6
    best = stops["constant", "best of all 16"]
    assert f"its gain of {100 * best.mean:.1f} points is undecided" in text
    assert best.verdict() == "inconclusive"
    curve = 100 * lesson["constant"].mean(axis=(0, 2))
    assert "at a constant learning rate the accuracy stays flat to the end" in text
    assert "the curve is flat from epoch 6 on" in text
    assert np.ptp(curve[5:]) < 1.5


def test_the_shorter_cosine(lesson, text):
    hits = lesson["curves"]["cosine", 8]
    judged = [lesson["judge_patience"](one, lesson["stored_masks"], 3)[0] for one in hits]
    found = paired_difference(hits[:, -1].mean(axis=1), np.array(judged) / 100)
    assert f"a patience of 3 loses {in_points(found)} over eight epochs" in text
    assert f"or over eight epochs ({in_points(found)})" in text
    assert "surely a loss, but inside our margin" in text
    assert found.verdict() == "equivalent"
    assert found.high < 0


def test_the_best_epoch_is_luck_where_the_curve_is_flat(lesson, text):
    assert "between 5 and 15 in eight of ten choices, and the median of five narrows" in text
    assert "narrows this to 7 to 12" in text
    found = [np.quantile(lesson[name], (0.1, 0.9)) for name in ("best_epochs", "medians")]
    assert np.array_equal(np.round(found), [(5, 15), (7, 12)])
    assert "The median of all medians is 10 epochs." in text
    assert "The rule names 10, between 8 and 16 epochs, which both beat" in text
    assert np.median(lesson["medians"]) == 10


def test_the_length_of_a_cosine(lesson, text):
    assert "A cosine over 8 or 16 epochs beats the constant learning rate, and over 4" in text
    gains = {n: judge(values - lesson["flat"]) for n, values in lesson["ends"].items()}
    assert gains[8].low > 0
    assert gains[16].low > 0
    assert gains[4].mean < 0
    assert "cosines over 8 and over 16 epochs differ by 0.3 points" in text
    assert round(abs(lesson["lengths"].mean), 1) == 0.3
    assert "both intervals exclude a gain of one point" in text
    for found in (lesson["lengths"], lesson["added"]):
        assert found.low < 0 < found.high < 1
    assert "8 and 16 epochs differed by less than half a point" in text
    assert abs(lesson["lengths"].mean) < 0.5
    assert "4 epochs lost about three points against 8" in text
    assert 2 < (lesson["ends"][8] - lesson["ends"][4]).mean() < 4


def test_with_an_average_the_choice_does_not_matter(lesson, text):
    assert "each one is about three points better than the last epoch without the average" in text
    means = [found.mean for found in lesson["average_gains"].values()]
    assert all(found.low > 0 for found in lesson["average_gains"].values())
    assert 2.5 < min(means) <= max(means) < 3.5
    assert np.ptp(means) < 0.5
    assert "the lower learning rate of the First result does at least as well without" in text
    averaged = lesson["plain_end"] + lesson["average_gains"]["last"].mean
    assert lesson["flat"].mean() >= averaged.mean()
    curves = (lesson["averaged"] * 1.0 - lesson["current"]).mean(axis=(0, 2))
    assert curves.min() > 0, "the figure's title: ahead from the first epochs on"


def test_the_winner_is_good_and_looks_better(lesson, text):
    gap, worth = lesson["curse_gap"], lesson["worth"]
    assert f"the chosen setting is {worth.mean:.1f} points better than the average one" in text
    assert worth.low > 0
    assert "because five seeds leave the luck of the seed undecided" in text
    assert lesson["seed_gap"].low < 0 < lesson["seed_gap"].high
    assert gap.low > 1
    assert f"its own number is {gap.mean:.1f} points too high on average" in text
    assert f"The best of twelve settings looks {gap.mean:.1f} points better than it is" in text
    assert "can be seven points too high or two points too low" in text
    assert np.array_equal(np.round(np.quantile(lesson["single"], (0.1, 0.9))), (-2, 7))
    assert "still about two points, where the formula gives 5.5 at their mean accuracy" in text
    share = lesson["share"]
    noise = 100 * (share * (1 - share) / 200) ** 0.5
    assert abs(noise * lesson["expect_luck"](12) - 5.5) < 0.05
    assert abs(lesson["curse"][200][-1] - 2) < 0.5
    assert "each solid line is below the dotted line of its colour" in text
    bounds = [100 * (0.22 / size) ** 0.5 * lesson["expect_luck"](12) for size in lesson["curse"]]
    for gains, bound in zip(lesson["curse"].values(), bounds, strict=True):
        assert 0.5 < gains[-1] < bound
        assert np.all(np.diff(gains) > 0)


def test_a_large_test_split_bears_a_hundred_looks(lesson, text):
    assert "With 10,000 test images about a hundred times, which costs about a point" in text
    assert abs(lesson["too_high"][100][-1] - 1) < 0.2
    assert "and with 200 hardly more than once" in text
    assert lesson["too_high"][2][0] > 1.5


def test_halving_saves_epochs(lesson, text):
    assert "Halving trains 12 + 6 + 3 × 2 + 2 × 2 of them, and Optuna's pruner about half" in text
    table = lesson["table"]
    trained, accuracy, optimism = (table.iloc[:, column] for column in range(3))
    assert (trained["train all"], trained["halving"]) == (72, 28)
    assert 0.4 < trained["Optuna's pruner"] / 72 < 0.6
    assert "On the mean of five seeds their winners are no worse" in text
    assert accuracy.min() > accuracy["train all"] - 0.1
    both = f"{accuracy['halving']:.1f} % against {accuracy['train all']:.1f} %"
    assert f"its winner has {both}, without an interval" in text
    assert "Halving's winner is less inflated" in text
    assert optimism["halving"] < optimism["train all"] - 1


def test_folds_differ_more_than_seeds(lesson, text):
    assert "spreads more over folds than over seeds" in text
    spreads, unpaired = lesson["spreads"], lesson["unpaired"]
    for name in ("constant", "cosine"):
        assert spreads[name][1] > 1.2 * spreads[name][0]
    assert "For one variant between folds" in text
    assert "For the difference neither spread is clearly larger." in text
    assert 0.8 < spreads["difference"][1] / spreads["difference"][0] < 1.25
    assert "200 photographs alone make a spread as large as that" in text
    assert abs(lesson["chance"] - (spreads["constant"][1] + spreads["cosine"][1]) / 2) < 0.5
    assert "so its spread over folds is smaller than it would be without pairing" in text
    assert spreads["difference"][1] < unpaired


def test_intervals_over_folds_and_over_seeds(lesson, text):
    assert "the plain interval does not contain 0, and the corrected one does" in text
    assert lesson["over_folds"].low > 0
    low, high = lesson["correct_interval"](lesson["of_folds"], 1 / 5)
    assert low < 0 < high
    assert "Over seeds only one fold has an interval above 0." in text
    assert sum(found.low > 0 for found in lesson["over_seeds"].values()) == 1


def test_other_photographs_widen_the_intervals_over_seeds(lesson, text):
    """Standard errors in points; a review computed them from the same stored hits, by itself."""
    constant, curves = lesson["constant"][:, -1], lesson["curves"]  # (seeds, photographs)
    assert constant.shape == (8, 1000)
    found = two_way(constant, curves["cosine", 16][:, -1])
    over_seeds = judge(lesson["ends"][16] - lesson["flat"])
    assert 100 * found.mean == pytest.approx(over_seeds.mean)
    errors = [f"{100 * error:.2f}" for error in (found.se_seeds, found.se_examples)]
    assert (
        "the standard error is {} points over seeds and {} over photographs".format(*errors) in text
    )
    assert "and the rest makes most of both" in text
    assert found.se_residual**2 > max(found.se_seeds, found.se_examples) ** 2 / 2
    assert f"With both counted it is {100 * found.se_both:.2f}, the root of seeds²" in text
    squares = np.square([found.se_seeds, found.se_examples, found.se_residual])
    assert found.se_both**2 == pytest.approx(squares @ [1, 1, -1])
    mean, low, high = (f"{100 * x:.1f}" for x in (found.mean, found.low, found.high))
    assert f"the cosine is {mean} points ahead, from {low} to {high}" in text
    short = two_way(constant, curves["cosine", 4][:, -1])
    assert np.round([100 * short.se_seeds, 100 * short.se_both], 2).tolist() == [0.57, 0.8]
    assert "above the dashed ones by up to a quarter" in text
    ratios = [line[:, 1] / line[:, 0] for line in lesson["errors"].values()]
    assert np.min(ratios) > 1
    assert 1.2 < np.max(ratios) < 1.275


def test_one_pair_of_networks_and_one_network(lesson, text):
    significant = sum(pair.p_value < 0.05 for pair in lesson["pairs"])
    assert (significant, len(lesson["pairs"])) == (2, 8)
    assert "Of eight pairs from the same two variants, two are significant" in text
    last = lesson["cosine"][0, -1]
    widths = [
        100 * np.diff(lesson["wilson_interval"](int(part.sum()), len(part)))[0]
        for part in (last, last[:200])
    ]
    assert "of {:.1f} points on 1,000 photographs and of {:.1f} on 200".format(*widths) in text
