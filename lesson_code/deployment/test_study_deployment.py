"""What lesson 24 says of its study in words is what the study found."""

import pytest

from course_utils.results import STUDIES, read_file
from lesson_code.deployment.changes import FAULT, Changes

KINDS = ("photographs", "texts")


@pytest.fixture(scope="module")
def study():
    return Changes(read_file(STUDIES / "deployment/study.json"))


def test_it_has_ten_networks_of_each_kind(study):
    for kind in KINDS:
        assert len(study.values(kind, "fp32")) == 10
    assert study.study["commit"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", ["accuracy", "calibration_error"])
def test_int8_is_equivalent(study, kind, metric):
    found = study.difference(kind, "int8", metric)
    assert found.verdict(metric == "accuracy", 0.01) == "equivalent"


def test_bgr_costs_more_than_ten_points(study):
    assert study.difference("photographs", f"{FAULT}BGR").high < -0.1


def test_only_imagenets_normalisation_costs_little(study):
    *_, worst = faults = study.list_faults("photographs")
    small = [x for x in faults if study.difference("photographs", x).mean > -0.03]
    assert small == [f"{FAULT}ImageNet's mean and std"]
    assert study.values("photographs", worst).mean() < 0.15


def test_not_normalised_costs_most_of_the_three_of_the_exercise(study):
    names = ("not normalised", "BGR", "resized to 36, middle 32")
    means = [study.difference("photographs", FAULT + name).mean for name in names]
    assert means == sorted(means)
