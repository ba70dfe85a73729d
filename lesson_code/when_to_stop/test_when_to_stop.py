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
DEEPER = ("best-epochs", "retrain-table", "averaged", "spreads")


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
    said = f"ends the training after {checks:.1f} epochs on average, and lowers the loss on the"
    before, after = (read_mean(HIGH, variant, "fresh_loss") for variant in (LAST, BY_LOSS))
    said += f" fresh definitions from {before:.2f} to {after:.2f}, a change of {write_nats(nats)}."
    assert said in text
    verdict = points.verdict(margin=1)
    assert f"But it changes the accuracy by {write_points(points)}, which is *{verdict}*" in text
    said = f"changes the loss by {write_nats(nats)} and the accuracy by {write_points(points)}"
    assert f"{said}, which is {verdict}, but excludes a gain of a point." in text
    assert nats.high < -0.02
    assert points.high < 1, "no gain of a point"
    assert read_study("when_to_stop").best[HIGH] == dict.fromkeys((LAST, BY_LOSS), "lr 0.00125")
    assert f"It also saves time: {30 - checks:.0f} of 30 epochs at 0.00125" in text


def test_with_a_tuned_learning_rate_nothing_is_gained(lesson, text):
    gains, nats = lesson["gains"], lesson["nats"]
    assert gains[FEW, BY_LOSS].verdict(margin=1) == "equivalent"
    assert nats[FEW, BY_LOSS].verdict(False, margin=0.02) == "equivalent"
    assert "both of its differences are *equivalent*" in text
    assert read_study("when_to_stop").best[FEW][LAST] == "lr 0.0002"
    checks = read_mean(FEW, BY_LOSS, "checks")
    assert f"ends the trainings at 0.0002 after {checks:.1f} of 30 epochs" in text
    losses = [read_mean(FEW, LAST, f"check_{k}_loss") for k in range(1, 31)]
    assert "there the loss flattens and does not rise" in text
    assert losses[-1] < min(losses) + 0.01
    cosine, ema = gains[FEW, COSINE], gains[FEW, "EMA"]
    assert f"The cosine gains {write_points(cosine)} over the last weights" in text
    assert f"and the EMA {write_points(ema)}, each at its own best" in text
    assert cosine.low > 0
    assert ema.low > 0
    assert "help the accuracy and *hurt* the loss" in text
    for variant in ("EMA", COSINE):
        assert nats[FEW, variant].verdict(False, margin=0.02) == "hurts"
        assert gains[FEW, variant].verdict(margin=1) == "helps"
    assert f"What gains accuracy there is a cosine, {write_points(cosine)}." in text


def test_the_higher_learning_rate_is_too_high_for_the_loss_alone(lesson, text):
    values = (lesson["read_fresh_percent"](regime, LAST) for regime in (FEW, HIGH))
    found = paired_difference(*values)
    said = f"its last weights differ from those at 0.0002 by {write_points(found)}, which is"
    assert f"too high for the loss, but not for the accuracy: {said} *equivalent*." in text
    assert found.verdict(margin=1) == "equivalent"


def test_the_search_prefers_the_lowest_learning_rate(text):
    study = read_study("when_to_stop")
    found = {}
    for x in study.trainings:
        if (x.regime, x.variant) == (FEW, LAST) and x.seed in study.search_seeds:
            found.setdefault(x.trial, []).append(x.read_metric("val_accuracy"))
    means = sorted(100 * np.mean(values) for values in found.values())
    assert means[-1] == pytest.approx(100 * np.mean(found["lr 0.0002"]))
    assert means[-1] > means[-2]
    assert min(found, key=lambda trial: float(trial.split()[1])) == "lr 0.0002"
    assert "prefers 0.0002 for the last weights, the lowest that was tried" in text


def test_many_definitions_lose(lesson, text):
    found, best = lesson["gains"][MANY, BY_LOSS], read_study("when_to_stop").best[MANY]
    assert best[LAST] != best[BY_LOSS], "another learning rate"
    said = f"the difference of {write_points(found)} is {found.verdict(margin=1)}."
    assert said in text
    assert read_study("when_to_stop").best[MANY][LAST] == "lr 0.00125"
    assert "on 2,880 definitions at 0.00125, and not at the 0.0005 of stopping" in text
    assert read_study("when_to_stop").best[MANY][BY_LOSS] == "lr 0.0005"
    by_loss, by_accuracy = (read_rule(MANY, LAST, rule) for rule in ("loss_3", "accuracy_3"))
    said = f"with a patience of 3 it is {write_points(by_loss)} by the loss, and"
    assert f"{said} {write_points(by_accuracy)} by the accuracy." in text
    longer, longest = (read_rule(MANY, LAST, rule) for rule in ("loss_5", "loss_10"))
    said = f"{write_points(by_loss)} with a patience of 3 by the loss"
    assert f"{said}, and {write_points(longer)} with 5." in text
    assert max(by_loss.high, by_accuracy.high, longer.high) < 0
    assert by_loss.mean < longer.mean < longest.mean, "a short patience costs most"
    said = f"A patience of 10 by the loss differs by {write_points(longest)}, which is"
    assert f"{said} {longest.verdict(margin=1)}." in text
    assert f"on 2,880 definitions 3 cost {abs(by_loss.mean):.1f} points, and the" in text
    assert f"and the {abs(longest.mean):.1f} points of 10 are undecided" in text
    assert longest.verdict(margin=1) == "inconclusive"


def test_on_many_definitions_the_score_had_only_paused(lesson, text):
    paused = lesson["paused"]
    said = f"because in {sum(paused)} of {len(paused)} trainings a lower validation loss came later"
    assert said in text
    assert len(paused) == 10
    ends = lesson["read_rule"](MANY, LAST, "loss", "3")
    losses = -lesson["read_checks"](MANY, LAST, "loss")  # (checks, seeds)
    for one, (end, best), later in zip(losses.T, ends, paused, strict=True):
        assert best == 1 + one[:end].argmin()
        assert later == (one[end:].min() < one[best - 1])


def test_no_rule_gains_a_point(lesson, text):
    assert "No rule gains a point of accuracy on average." in text
    assert "because no rule gained a point here" in text
    assert max(found.mean for found in lesson["rule_gains"].values()) < 1


def test_the_accuracy_is_not_clearly_the_better_score(lesson, text):
    assert "Watching the accuracy was not clearly better than watching the loss" in text
    assert "because the accuracy was not clearly better" in text
    found = lesson["score_gains"].values()
    means = [x.mean for x in found]
    assert f"restores between {-min(means):.1f} points less and {max(means):.1f} more" in text
    undecided = sum(x.low <= 0 <= x.high for x in found)
    assert f"and {undecided} of {len(found)} intervals contain 0" in text
    assert all(x.verdict(margin=1) != "helps" for x in found)
    study = read_study("when_to_stop")
    values = (
        study.values(HIGH, LAST, f"by_{score}_5_fresh_loss") for score in ("loss", "accuracy")
    )
    worse = paired_difference(*values)
    assert f"the rule by the accuracy keeps a higher loss, by {write_nats(worse)}." in text
    assert worse.low > 0


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
    assert f"Too early: a patience of 3 costs {in_points(stopped)}." in text
    more = stops["cosine", "patience 5"]
    said = f"In a cosine on photographs it costs {in_points(stopped)} with a patience of 3"
    assert f"{said}, less with 5 ({in_points(more)})" in text
    assert stopped.mean < more.mean < 0
    assert more.high < 0
    assert stopped.verdict() == "hurts"
    assert f"3 stops after {trained['cosine', 'patience 3']:.1f} epochs on average" in text
    _, judged = lesson["restored_at"]["cosine", "patience 3"]
    last = 100 * lesson["cosine"][:, -1].mean()
    assert f"right on {judged:.1f} % of the photographs that judge, and the last weights on" in text
    assert f"the last weights on {last:.1f} %" in text
    assert judged - last == pytest.approx(100 * stopped.mean)
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
    said = "at a constant learning rate six of 16, where it is equivalent to the last epoch"
    assert said in text
    assert round(16 - trained) == 6
    curve = 100 * lesson["constant"].mean(axis=(0, 2))
    assert "the curve is flat from epoch 6 on" in text
    assert np.ptp(curve[5:]) < 1.5


def test_no_mean_accuracy_falls_long_before_the_end(lesson, text):
    assert "In none of these trainings does the mean accuracy fall long before the end" in text
    texts = [
        [read_mean(*whole, f"check_{k}_accuracy", 100) for k in range(1, 31)]
        for whole in lesson["WHOLE"]
    ]
    for curve in texts + [100 * hits.mean(axis=(0, 2)) for hits in lesson["curves"].values()]:
        assert max(curve) - curve[-1] < 1


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
