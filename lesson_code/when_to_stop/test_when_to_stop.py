"""The text of lesson 18 against the stored trainings that it reads."""

import contextlib
import io
from types import SimpleNamespace

import nbformat
import numpy as np
import pytest

from course_tools.study.lesson_code import read_definitions
from course_utils.claims import claim
from course_utils.measure.paired import paired_difference
from course_utils.study_results import read_study
from lesson_code.when_to_stop.study_curves import judge_restored
from tests.places import ROOT

STEM = "18_when_to_stop"
READING = ("first-read", "check-study", "rules-read", "stored", "photos-read")
DEEPER = ("best-epochs", "retrain-table", "averaged", "folds", "spreads", "intervals-table")


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
    cells = {cell.id: cell.source for cell in notebook.cells}
    names = read_definitions(STEM, claim=claim)
    names |= {"data": SimpleNamespace(val=range(1000)), "num_val": 200}  # of the live training
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in READING + DEEPER:
            exec(cells[cell], names)
    return names


def judge(values):
    return paired_difference(np.zeros(len(values)), values)


def in_points(found):
    return f"{100 * abs(found.mean):.1f} points"


# ---- The declared study, on definitions.

FEW, MANY, HIGH = "few definitions", "many definitions", "too high a learning rate"
LAST, BY_LOSS, COSINE = "last weights", "stopped by the loss", "cosine"


def write_signed(number, digits):
    return f"{number:+.{digits}f}".replace("-", "−")


def write_points(found):
    """As the text has it; of differences in points."""
    edges = f"{write_signed(found.low, 1)} to {write_signed(found.high, 1)}"
    return f"{write_signed(found.mean, 1)} points ({edges})"


def write_nats(found):
    edges = f"{write_signed(found.low, 2)} to {write_signed(found.high, 2)}"
    return f"{write_signed(found.mean, 2)} nats ({edges})"


def read_mean(regime, variant, metric, factor=1):
    return factor * read_study("when_to_stop").values(regime, variant, metric).mean()


def read_rule(regime, variant, rule):
    """What a rule restores against the last weights of the same trainings, in points."""
    study = read_study("when_to_stop")
    values = (
        100 * study.values(regime, variant, metric)
        for metric in ("fresh_accuracy", f"by_{rule}_fresh_accuracy")
    )
    return paired_difference(*values)


def test_where_the_loss_rises_stopping_repairs_the_loss(lesson, text):
    points, nats = lesson["gains"][HIGH, BY_LOSS], lesson["nats"][HIGH, BY_LOSS]
    losses = [read_mean(HIGH, LAST, f"check_{k}_loss") for k in range(1, 31)]
    lowest = int(np.argmin(losses))
    said = f"the validation loss is lowest after epoch {1 + lowest}, with {losses[lowest]:.2f} nats"
    last = read_mean(HIGH, LAST, "val_loss")
    assert f"{said}, and then rises to {last:.2f}." in text
    trained = read_mean(HIGH, LAST, "train_accuracy", 100)
    assert f"The training accuracy ends at {trained:.0f} %" in text
    checks = read_mean(HIGH, BY_LOSS, "checks")
    said = f"ends the training after {checks:.1f} epochs on average, and changes the loss by"
    assert f"{said} {write_nats(nats)}." in text
    verdict = points.verdict(margin=1)
    assert f"But it changes the accuracy by {write_points(points)}, which is *{verdict}*" in text
    assert (
        f"changes the loss by {write_nats(nats)} and the accuracy by {write_points(points)}" in text
    )
    assert nats.high < -0.02
    assert points.high < 1, "no gain of a point"
    assert f"It also saves time: {30 - checks:.0f} of 30 epochs at the high learning rate" in text


def test_with_a_tuned_learning_rate_nothing_is_gained(lesson, text):
    gains, nats = lesson["gains"], lesson["nats"]
    assert gains[FEW, BY_LOSS].verdict(margin=1) == "equivalent"
    assert nats[FEW, BY_LOSS].verdict(False, margin=0.02) == "equivalent"
    assert "both of its differences are *equivalent*" in text
    assert read_study("when_to_stop").best[FEW][LAST] == "lr 0.0002"
    checks = read_mean(FEW, BY_LOSS, "checks")
    assert f"Early stopping ends these trainings after {checks:.1f} of 30 epochs" in text
    assert round(read_mean(FEW, LAST, "train_accuracy", 100)) == 100
    cosine, ema = gains[FEW, COSINE], gains[FEW, "EMA"]
    assert f"The cosine gains {write_points(cosine)} of accuracy over the last weights" in text
    assert f"and the EMA {write_points(ema)}, each at its own best" in text
    assert cosine.low > 0
    assert ema.low > 0
    assert "help the accuracy and *hurt* the loss" in text
    for variant in ("EMA", COSINE):
        assert nats[FEW, variant].verdict(False, margin=0.02) == "hurts"
        assert gains[FEW, variant].verdict(margin=1) == "helps"
    assert f"What gains accuracy there is a cosine, {write_points(cosine)}." in text


def test_the_search_prefers_the_lowest_learning_rate_by_little(text):
    study = read_study("when_to_stop")
    found = {}
    for x in study.trainings:
        if (x.regime, x.variant) == (FEW, LAST) and x.seed in study.search_seeds:
            found.setdefault(x.trial, []).append(x.read_metric("val_accuracy"))
    means = sorted(100 * np.mean(values) for values in found.values())
    assert means[-1] == pytest.approx(100 * np.mean(found["lr 0.0002"]))
    assert means[-1] - means[-2] == pytest.approx(0.25)
    assert "prefer the lowest of them by a quarter of a point" in text


def test_many_definitions_lose(lesson, text):
    found, best = lesson["gains"][MANY, BY_LOSS], read_study("when_to_stop").best[MANY]
    assert best[LAST] != best[BY_LOSS], "another learning rate"
    said = f"the difference of {write_points(found)} is {found.verdict(margin=1)}."
    assert said in text
    by_loss, by_accuracy = (read_rule(MANY, LAST, rule) for rule in ("loss_5", "accuracy_3"))
    said = f"a short patience costs most: {write_points(by_loss)} by the loss with a patience of"
    assert f"{said} 5, and {write_points(by_accuracy)} by the accuracy with a patience of 3" in text
    assert max(by_loss.high, by_accuracy.high) < 0
    assert f"at the learning rate of the last weights, {write_points(by_loss)}." in text
    assert read_study("when_to_stop").best[MANY][LAST] == "lr 0.00125"
    best = read_rule(MANY, LAST, "loss_all")
    verdict = best.verdict(margin=1)
    assert f"without any stop, differs by {write_points(best)}, which is {verdict}." in text


def test_no_rule_gains_a_point(lesson, text):
    assert "No rule gains a point of accuracy on average." in text
    assert max(found.mean for found in lesson["rule_gains"].values()) < 1
    found = read_rule(FEW, COSINE, "loss_5")
    said = f"a patience of 5 differs by {write_points(found)}, which is {found.verdict(margin=1)}"
    trained = read_mean(FEW, COSINE, "by_loss_5_checks")
    assert f"{said}, and it trains {trained:.1f} of 30 epochs" in text


def test_a_stopped_training_is_the_beginning_of_a_whole_one():
    """At the same learning rate both variants train alike, so the rule's numbers must agree."""
    study = read_study("when_to_stop")
    for regime in (HIGH, FEW):
        assert study.best[regime][LAST] == study.best[regime][BY_LOSS]
        for name in ("checks", "restored", "fresh_accuracy", "fresh_loss"):
            whole = study.values(regime, LAST, f"by_loss_5_{name}")
            np.testing.assert_allclose(study.values(regime, BY_LOSS, name), whole, atol=2e-6)


def test_the_toy_of_the_idea(notebook, text):
    cell = next(cell.source for cell in notebook.cells if cell.id == "scale-toy")
    names = read_definitions(STEM)
    exec(cell, names)
    losses, right = np.array(names["toy_loss"]), 100 * np.array(names["toy_right"])
    assert f"The accuracy is {right.mean():.1f} % at every factor." in text
    assert np.ptp(right) == 0
    lowest, factor = losses.min(), names["scales"][losses.argmin()]
    said = f"The loss is lowest, {lowest:.2f} nats, at a factor of {factor:.1f}, and it rises to"
    assert f"{said} {losses[-1]:.2f} nats at {names['scales'][-1]:g}." in text


# ---- The stored trainings on photographs.


def test_early_stopping_costs_accuracy_in_a_cosine(lesson, text):
    stops, trained = lesson["stops"], lesson["trained_epochs"]
    stopped = stops["cosine", "patience 3"]
    assert f"In the cosine a patience of 3 costs {in_points(stopped)}" in text
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
    assert "the lower learning rate of the piece before does at least as well without" in text
    averaged = lesson["plain_end"] + lesson["average_gains"]["last"].mean
    assert lesson["flat"].mean() >= averaged.mean()
    curves = (lesson["averaged"] * 1.0 - lesson["current"]).mean(axis=(0, 2))
    assert curves.min() > 0, "the figure's title: ahead from the first epochs on"


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
