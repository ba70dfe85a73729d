"""The text of lesson 14 against the stored trainings that it reads."""

import itertools

import nbformat
import numpy as np
import pytest

from course_utils.measure.paired import paired_difference
from course_utils.results import RESULTS, read_file
from tests.conftest import ROOT

CASES = list(itertools.product(("pretrained", "from scratch"), ("AdamW", "SGD")))
READINGS = ("steepest slope", "a tenth of the lowest", "Lightning's suggestion")


@pytest.fixture(scope="module")
def stored():
    return read_file(RESULTS / "finders_2cores.json")


@pytest.fixture(scope="module")
def text():
    notebook = nbformat.read(ROOT / "notebooks" / "14_finders.ipynb", as_version=4)
    return "\n".join(cell.source for cell in notebook.cells)


def read_values(rows, what, **kind):
    """One value per seed, in the order of the seeds."""
    found = [row for row in rows if kind.items() <= row.items()]
    found.sort(key=lambda row: row["seed"])
    assert [row["seed"] for row in found] == list(range(6))
    return np.array([row[what] for row in found])


def measure_cost(stored, case, reading):
    start, optimizer = case
    kind = {"start": start, "optimizer": optimizer}
    accuracies = (
        100 * read_values(stored["rows"], "accuracy", **kind, reading=name)
        for name in ("sweep", reading)
    )
    return paired_difference(*accuracies)


def read_learning_rates(stored, case, reading):
    start, optimizer = case
    return read_values(stored["rows"], "lr", start=start, optimizer=optimizer, reading=reading)


def measure_scatter(stored, case, reading):
    learning_rates = read_learning_rates(stored, case, reading)
    return learning_rates.max() / learning_rates.min()


def test_how_far_the_readings_scatter(stored, text):
    assert "With pretrained weights, each reading moves by a factor of 4 at most" in text
    assert "From scratch the steepest slope moves by a factor of 100 and more" in text
    assert "A tenth of the lowest loss moves by a factor of 2 at most in all four cases" in text
    for case in CASES:
        assert measure_scatter(stored, case, "a tenth of the lowest") <= 2
        if case[0] == "pretrained":
            assert all(measure_scatter(stored, case, reading) <= 4 for reading in READINGS)
        else:
            assert measure_scatter(stored, case, "steepest slope") >= 100


def test_what_the_readings_cost(stored, text):
    assert "Lightning's suggestion costs more than ten points in all four cases" in text
    assert "With pretrained weights the steepest slope is as good as the sweep." in text
    assert "From scratch it loses more than fifteen points on the mean" in text
    assert "A tenth of the lowest loss is as good with AdamW on pretrained weights" in text
    assert "and loses 2 to 13 points in the other cases" in text
    for case in CASES:
        steepest, tenth, lightnings = (measure_cost(stored, case, name) for name in READINGS)
        assert lightnings.mean < -10
        if case[0] == "pretrained":
            assert steepest.verdict(margin=2) == "equivalent"
        else:
            assert steepest.mean < -15
        if case == ("pretrained", "AdamW"):
            assert tenth.verdict(margin=2) == "equivalent"
        else:
            assert -13 < tenth.mean < -2


def test_where_a_sweep_should_begin(stored, text):
    assert "is between 0.7 and 15 times the tenth of the lowest" in text
    for case in CASES:
        best, tenth = (
            read_learning_rates(stored, case, name) for name in ("sweep", "a tenth of the lowest")
        )
        assert (best / tenth).min() > 0.7
        assert (best / tenth).max() < 15


def test_cycles_do_not_help_and_one_fall_does(stored, text):
    assert "None of the three cyclical shapes differs clearly" in text
    assert "One fall helps with SGD" in text
    for optimizer in ("AdamW", "SGD"):
        constant, *others = (
            100 * read_values(stored["cycles"], "accuracy", optimizer=optimizer, shape=shape)
            for shape in ("constant", "triangular", "Hann", "Welch", "one fall")
        )
        verdicts = [paired_difference(constant, other).verdict(margin=2) for other in others]
        assert not {"helps", "hurts"} & set(verdicts[:3])
        assert (verdicts[3] == "helps") == (optimizer == "SGD")


def test_the_sweep_is_the_best_of_the_search(stored):
    for start, optimizer in CASES:
        searched = [
            row
            for row in stored["rows"]
            if (row["start"], row["optimizer"], row["seed"]) == (start, optimizer, 100)
        ]
        best = max(searched, key=lambda row: row["accuracy"])["lr"]
        assert set(read_learning_rates(stored, (start, optimizer), "sweep")) == {best}
