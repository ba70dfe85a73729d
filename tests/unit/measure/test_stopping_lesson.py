"""The text of lesson 18 against the stored trainings that it reads."""

import contextlib
import io

import nbformat
import numpy as np
import pytest

from course_utils.measure.paired import paired_difference
from course_utils.tools.report.lesson_code import read_definitions
from tests.conftest import ROOT

STEM = "18_when_to_stop"
READING = ("stored", "best-epochs", "retrain-table", "averaged", "settings", "curse-sizes")
SEARCHING = ("curse-seeds", "searches", "searches-table", "folds", "spreads", "intervals-table")


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

    names = read_definitions(STEM, optuna=optuna)
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in READING + SEARCHING:
            exec(cells[cell], names)
    return names


def judge(values):
    return paired_difference(np.zeros(len(values)), values)


def test_the_best_epoch_is_not_steady(lesson, text):
    assert "Even the median of five seeds is not steady." in text
    low, high = np.quantile(lesson["medians"], (0.1, 0.9))
    assert high - low >= 6


def test_a_cosine_beats_the_best_epoch(lesson, text):
    assert "A cosine beats both, even over a quarter of the epochs" in text
    gains = {name: judge(values - lesson["reference"]) for name, values in lesson["ends"].items()}
    assert gains["cosine over 4"].low > 0
    longer = judge(lesson["ends"]["cosine over 16"] - lesson["ends"]["cosine over 8"])
    assert "Between 8 and 16 epochs its length makes no difference here." in text
    assert longer.low < 0 < longer.high
    assert "the best epoch is little better than the last one" in text
    assert -2 < gains["constant, last epoch"].mean < 0
    assert "change nothing that eight seeds could show" in text
    assert lesson["added"].low < 0 < lesson["added"].high
    assert len(lesson["reference"]) == 8


def test_with_an_average_the_choice_does_not_matter(lesson, text):
    assert "the three ways are nearly equal, and each one beats the best epoch without" in text
    ways = np.array(
        [
            100 * hits[-1].mean() - reference
            for hits, reference in zip(lesson["averaged"], lesson["reference"], strict=True)
        ]
    )
    assert judge(ways).low > 0
    best = [lesson["judge_best"](hits, lesson["stored_masks"]) for hits in lesson["averaged"]]
    assert abs(np.mean(best) - np.mean(ways + lesson["reference"])) < 0.5


def test_the_winner_is_good_and_looks_better(lesson, text):
    assert "The chosen setting is better than the average setting on fresh photographs." in text
    means = lesson["means"]
    assert means["average"] < means["other seeds"] < means["seen"] - 1
    bounds = [100 * (0.24 / size) ** 0.5 * lesson["expect_luck"](12) for size in lesson["curse"]]
    assert "the measured optimism is below the dotted lines" in text
    assert all(
        0.5 < gains[-1] < bound
        for gains, bound in zip(lesson["curse"].values(), bounds, strict=True)
    )
    assert all(np.all(np.diff(gains) > 0) for gains in lesson["curse"].values())


def test_halving_saves_epochs(lesson, text):
    assert "Halving trains less than half of the epochs, Optuna's pruner about half" in text
    trained, accuracy = lesson["table"].iloc[:, 0], lesson["table"].iloc[:, 1]
    for name, most in (("halving", 0.5), ("Optuna's pruner", 0.6)):
        assert trained[name] < most * trained["train all"]
        assert accuracy[name] > accuracy["train all"] - 0.3


def test_folds_differ_more_than_seeds_until_they_are_paired(lesson, text):
    assert "spreads more over folds than over seeds" in text
    assert "the two spreads are alike" in text
    for name in ("constant", "cosine"):
        over_seeds, over_folds = lesson["split_spread"](lesson["grids"][name])
        assert over_folds > 1.2 * over_seeds
    over_seeds, over_folds = lesson["split_spread"](lesson["grids"]["difference"])
    assert abs(over_seeds - over_folds) < 1
