"""The text of lesson 13 against the stored trainings that it reads."""

import itertools

import nbformat
import numpy as np
import pytest

from course_utils.measure.paired import paired_difference
from course_utils.results import STUDIES, read_file
from tests.places import ROOT

GROUPS = list(itertools.product(("pretrained", "from scratch"), ("AdamW", "SGD")))


@pytest.fixture(scope="module")
def rows():
    return read_file(STUDIES / "weight_averaging/study.json")["rows"]


@pytest.fixture(scope="module")
def text():
    notebook = nbformat.read(ROOT / "notebooks" / "13_weight_averaging.ipynb", as_version=4)
    return "\n".join(cell.source for cell in notebook.cells)


def read_accuracies(rows, start, optimizer, schedule):
    """In percent: of the last weights and of the mean, both one per seed."""
    kind = {"start": start, "optimizer": optimizer, "schedule": schedule}
    found = [row for row in rows if row["seed"] != 100 and kind.items() <= row.items()]
    assert sorted(row["seed"] for row in found) == list(range(8))
    return [np.array([100 * row[name] for row in found]) for name in ("last", "mean")]


def test_the_average_helps_at_a_constant_learning_rate_in_all_four_cases(rows, text):
    assert "In all four cases the average, with its new statistics, helps at the constant" in text
    for case in GROUPS:
        last, mean = read_accuracies(rows, *case, "constant")
        assert paired_difference(last, mean).verdict(margin=1) == "helps"


def test_after_a_cosine_it_changes_less_than_one_point_and_helps_nowhere(rows, text):
    assert "After one cosine its mean difference is below one point" in text
    assert "it helps in none of the four" in text
    for case in GROUPS:
        last, mean = read_accuracies(rows, *case, "cosine")
        found = paired_difference(last, mean)
        assert abs(found.mean) < 1
        assert found.verdict(margin=1) != "helps"


def test_with_three_cosines_it_helps_once_and_hurts_once(rows, text):
    assert "it helps in one case and hurts in another" in text
    verdicts = [
        paired_difference(*read_accuracies(rows, *case, "cyclic")).verdict(margin=1)
        for case in GROUPS
    ]
    assert verdicts.count("helps") == verdicts.count("hurts") == 1


def test_the_average_reaches_the_cosine_on_the_mean(rows, text):
    assert "The averages are at least as good on the mean." in text
    for case in GROUPS:
        _, mean = read_accuracies(rows, *case, "constant")
        last, _ = read_accuracies(rows, *case, "cosine")
        assert mean.mean() > last.mean()


def test_what_is_left_at_each_ones_best_learning_rate(rows, text):
    for optimizer in ("AdamW", "SGD"):
        kind = {"optimizer": optimizer, "schedule": "constant", "seed": 100}
        found = [row for row in rows if kind.items() <= row.items()]
        best = {name: max(100 * row[name] for row in found) for name in ("last", "mean")}
        assert f"{best['mean'] - best['last']:.1f} points ({optimizer})" in text


def test_the_lesson_has_the_best_learning_rates_of_the_search(rows):
    for optimizer, chosen in (("AdamW", 0.002), ("SGD", 0.02)):
        kind = {"optimizer": optimizer, "schedule": "constant", "seed": 100}
        found = {row["lr"]: row["mean"] for row in rows if kind.items() <= row.items()}
        assert max(found, key=found.get) == chosen
