"""The text of lesson 14 against the stored trainings that it reads."""

import itertools

import nbformat
import numpy as np
import pytest

from course_utils.measure.paired import paired_difference
from course_utils.results import STUDIES, read_file
from tests.places import ROOT

CASES = list(itertools.product(("pretrained", "from scratch"), ("AdamW", "SGD")))
READINGS = ("steepest slope", "a tenth of the lowest", "Lightning's suggestion")


@pytest.fixture(scope="module")
def stored():
    return read_file(STUDIES / "finders/study.json")


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
    assert "With pretrained weights, each reading moves by a factor of 3 at most" in text
    assert "From scratch, the steepest slope moves by a factor of up to 8" in text
    assert "and a tenth of the lowest loss by up to 5" in text
    scatter = {
        (case, reading): measure_scatter(stored, case, reading)
        for case, reading in itertools.product(CASES, READINGS)
    }
    assert all(factor <= 3 for (case, _), factor in scatter.items() if case[0] == "pretrained")
    for reading, expected in (("steepest slope", 8), ("a tenth of the lowest", 5)):
        highest = max(scatter[case, reading] for case in CASES if case[0] == "from scratch")
        assert round(highest) == expected


def test_what_the_readings_cost(stored, text):
    assert "Lightning's suggestion costs 8 points or more in all four cases, on the mean" in text
    assert "With pretrained weights and AdamW both other readings are as good" in text
    assert "With SGD a tenth of the lowest loss is worse" in text
    assert "and the steepest slope is inconclusive" in text
    assert "From scratch the steepest slope costs more than 5 points" in text
    costs = {
        (case, reading): measure_cost(stored, case, reading)
        for case, reading in itertools.product(CASES, READINGS)
    }
    verdicts = {place: cost.verdict(margin=2) for place, cost in costs.items()}
    assert all(costs[case, "Lightning's suggestion"].mean <= -8 for case in CASES)
    for reading in ("steepest slope", "a tenth of the lowest"):
        assert verdicts[("pretrained", "AdamW"), reading] == "equivalent"
    assert verdicts[("pretrained", "SGD"), "a tenth of the lowest"] == "hurts"
    assert verdicts[("pretrained", "SGD"), "steepest slope"] == "inconclusive"
    assert all(costs[("from scratch", o), "steepest slope"].mean < -5 for o in ("AdamW", "SGD"))


def test_where_a_sweep_should_begin(stored, text):
    assert "is between 0.6 and 10 times the tenth of the lowest" in text
    for case in CASES:
        best, tenth = (
            read_learning_rates(stored, case, name) for name in ("sweep", "a tenth of the lowest")
        )
        assert (best / tenth).min() > 0.6
        assert (best / tenth).max() < 10


def test_cycles_do_not_help_and_one_fall_does(stored, text):
    assert "With AdamW the triangular and the Welch shape are equivalent" in text
    assert "and Hann is inconclusive" in text
    assert "With SGD all three cyclical shapes are inconclusive" in text
    assert "One fall gains 5.9 points with SGD, and is equivalent with AdamW" in text
    found = {}
    for optimizer in ("AdamW", "SGD"):
        constant, *others = (
            100 * read_values(stored["cycles"], "accuracy", optimizer=optimizer, shape=shape)
            for shape in ("constant", "triangular", "Hann", "Welch", "one fall")
        )
        found[optimizer] = [paired_difference(constant, other) for other in others]
    verdicts = {name: [one.verdict(margin=2) for one in of] for name, of in found.items()}
    assert verdicts["AdamW"] == ["equivalent", "inconclusive", "equivalent", "equivalent"]
    assert verdicts["SGD"] == ["inconclusive", "inconclusive", "inconclusive", "helps"]
    assert round(found["SGD"][-1].mean, 1) == 5.9


def test_the_sweep_is_the_best_of_the_search(stored):
    for start, optimizer in CASES:
        searched = [
            row
            for row in stored["rows"]
            if (row["start"], row["optimizer"], row["seed"]) == (start, optimizer, 100)
        ]
        best = max(searched, key=lambda row: row["accuracy"])["lr"]
        assert set(read_learning_rates(stored, (start, optimizer), "sweep")) == {best}
