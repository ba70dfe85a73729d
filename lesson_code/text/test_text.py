"""What lesson 21 says of its study in words is what the study found."""

import pytest

from course_utils.study_results import read_study


@pytest.fixture(scope="module")
def study():
    return read_study("text")


@pytest.mark.parametrize(
    ("treated", "baseline", "on_photographs", "on_texts"),
    [
        ("full fine-tuning", "constant learning rate", "helps", "equivalent"),
        ("constant, averaged weights", "constant learning rate", "helps", "equivalent"),
        ("SGD", "full fine-tuning", "equivalent", "equivalent"),
        ("LoRA", "full fine-tuning", "hurts", "hurts"),
        ("linear probe", "full fine-tuning", "hurts", "hurts"),
        ("full fine-tuning", "from scratch", "helps", "helps"),
    ],
)
def test_the_verdict_is_that_of_the_study(study, treated, baseline, on_photographs, on_texts):
    for regime, expected in (("photographs", on_photographs), ("texts", on_texts)):
        assert study.difference(regime, treated, baseline).verdict(margin=study.margin) == expected


def test_smoothing_and_clipping_change_little(study):
    for regime in study.regimes:
        for variant in ("label smoothing", "clipping"):
            assert abs(study.difference(regime, variant).mean) < study.margin


def test_a_probe_costs_more_on_texts(study):
    photographs, texts = (
        study.difference(regime, "linear probe") for regime in ("photographs", "texts")
    )
    assert texts.high < photographs.low


def test_lora_costs_one_to_two_points(study):
    for regime in study.regimes:
        assert -0.02 < study.difference(regime, "LoRA").mean < -0.01
