"""What lesson 06 defines, by hand; and its text against the results that it reads."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from course_tools.study.lesson_code import read_definitions
from course_utils.results import STUDIES, read_file


@pytest.fixture(scope="module")
def lesson():
    """The functions of the notebook, without its trainings."""
    return read_definitions("06_label_smoothing", NUM_BINS=15)


def make_overconfident(factor):
    """Logits that are calibrated after a division by ``factor``, and their targets."""
    torch.manual_seed(0)
    honest = 2 * torch.randn(5000, 10)
    return factor * honest, torch.multinomial(honest.softmax(dim=1), 1)[:, 0]


@pytest.mark.parametrize("factor", [0.4, 1, 3])
def test_the_temperature_is_found_in_both_directions(lesson, factor):
    logits, targets = make_overconfident(factor)
    assert lesson["fit_temperature"](logits, targets) == pytest.approx(factor, rel=0.05)


def test_the_temperature_has_the_lowest_loss(lesson):
    logits, targets = make_overconfident(2.3)
    best = lesson["fit_temperature"](logits, targets)
    losses = [F.cross_entropy(logits / (best * factor), targets) for factor in (0.97, 1, 1.03)]
    assert losses[1] == min(losses)


def test_bins_with_no_predictions_are_left_out(lesson):
    confidence = torch.tensor([0.2, 0.25, 0.5, 1.0])
    right = torch.tensor([1.0, 0, 1, 1])
    found = lesson["bin_predictions"](confidence, right, num_bins=4)
    expected = [(0.25, 0.2, 1), (0.25, 0.25, 0), (0.25, 0.5, 1), (0.25, 1, 1)]
    np.testing.assert_allclose([[float(x) for x in row] for row in found], expected, rtol=1e-6)


def test_a_threshold_by_hand(lesson):
    """From the most confident answer on: right, right, wrong, right, wrong."""
    confidence = torch.tensor([0.5, 0.9, 0.6, 0.95, 0.8])
    right = torch.tensor([0.0, 1, 1, 1, 0])
    choose = lesson["choose_threshold"]
    assert choose(confidence, right, 0.9) == pytest.approx(0.9)  # 2 of 2
    assert choose(confidence, right, 0.75) == pytest.approx(0.6)  # 3 of 4, though 2 of 3 is less
    assert choose(confidence, right, 0.6) == pytest.approx(0.5)  # 3 of 5
    assert choose(confidence, 0 * right, 0.6) == math.inf


def test_a_reserve_asks_for_more(lesson):
    """Of 100 answers the first 80 are right: 84 reach 95 %, only 80 with a reserve."""
    confidence, right = torch.linspace(1, 0.01, 100), (torch.arange(100) < 80).float()
    choose = lesson["choose_threshold"]
    assert choose(confidence, right, 0.95) == pytest.approx(confidence[83].item())
    assert choose(confidence, right, 0.95, reserve=1.6) == pytest.approx(confidence[79].item())
    assert choose(confidence[:20], right[:20], 0.95, reserve=1.6) == math.inf  # too few to tell


def test_what_a_threshold_accepts(lesson):
    confidence = torch.tensor([0.5, 0.9, 0.6, 0.95, 0.8])
    right = torch.tensor([0.0, 1, 1, 1, 0])
    assert lesson["accept"](confidence, right, 0.9) == pytest.approx((40, 100))
    assert lesson["accept"](confidence, right, 0.6) == pytest.approx((80, 75))
    coverage, accuracy = lesson["accept"](confidence, right, math.inf)
    assert coverage == 0
    assert math.isnan(accuracy)


def test_an_average_is_that_of_the_probabilities(lesson):
    logits = [torch.randn(4, 3), 5 * torch.randn(4, 3)]
    expected = (logits[0].softmax(dim=1) + logits[1].softmax(dim=1)) / 2
    averaged = lesson["average_networks"](logits)
    torch.testing.assert_close(averaged.softmax(dim=1), expected)


def test_the_held_out_images_are_split_without_overlap(lesson):
    to_fit, to_report = lesson["split_held_out"](list(range(10)))
    assert (to_fit, to_report) == ([0, 1, 2], [3, 4, 5, 6, 7, 8, 9])


# ---- The text of the lesson against the results that it reads.


@pytest.fixture(scope="module")
def stored():
    return read_file(STUDIES / "label_smoothing/study.json")


def errors_of(stored, regime, smoothing, when="before"):
    rows = [x for x in stored["strengths"] if x["regime"] == regime]
    rows = [x[when] for x in rows if x["smoothing"] == smoothing]
    return 100 * np.array([row["calibration_error"] for row in rows])


def test_reported_seeds_are_not_those_of_the_search(stored):
    reported = {row["seed"] for row in stored["strengths"]}
    reported |= {seed for group in stored["groups"] for seed in group["seeds"]}
    assert not reported & set(stored["search_seeds"])


def test_the_other_learning_rate_is_as_accurate_and_less_overconfident(stored):
    mean = {}
    for row in stored["searched"]:
        for name in ("accuracy", "calibration_error", "confidence"):
            mean.setdefault((row["lr"], name), []).append(100 * row[name])
    mean = {key: np.mean(values) for key, values in mean.items()}
    other = min(lr for lr, _ in mean)
    assert abs(mean[stored["lr"], "accuracy"] - mean[other, "accuracy"]) < 3
    assert mean[other, "calibration_error"] < mean[stored["lr"], "calibration_error"] - 3
    assert mean[other, "confidence"] > mean[other, "accuracy"] + 5


def test_the_claims_hold_at_other_seeds(stored):
    """At the first seeds 0, 10 and 20: one temperature, and smoothing by 0.1."""
    networks = {(x["smoothing"], x["seeds"][0]): x["networks"] for x in stored["groups"]}
    for first in (0, 10, 20):
        for plain, smoothed in zip(networks[0.0, first], networks[0.1, first], strict=True):
            start = plain["before"]["calibration_error"]
            assert start - plain["after"]["calibration_error"] >= 0.05
            assert start - smoothed["before"]["calibration_error"] >= 0.05


def test_no_strength_suits_both_trainings(stored):
    assert errors_of(stored, "memorised", 0.1).max() < errors_of(stored, "memorised", 0).min()
    assert errors_of(stored, "brief", 0.5).min() > errors_of(stored, "brief", 0).max() + 5


def test_what_the_text_says_of_averages(stored):
    for group in stored["groups"]:
        found = group["found"]
        gained = found["average"]["accuracy"] - found["one network"]["accuracy"]
        assert 0 < gained < 0.01, "less than one point of accuracy"
        before, after = found["average of scaled networks"], found["average, then scaled"]
        assert abs(before["loss"] - after["loss"]) < 0.005
        assert before["loss"] < found["average"]["loss"]
        errors = [found[name]["calibration_error"] for name in ("one network", "average")]
        if group["smoothing"]:
            assert errors[1] > errors[0], "the average is more underconfident than one network"
            assert found["average"]["confidence"] < found["one network"]["confidence"]
        else:
            assert errors[1] > errors[0] / 2, "most of the overconfidence is left"
