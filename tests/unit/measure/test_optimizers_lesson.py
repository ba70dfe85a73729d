"""The text of lesson 16 against the stored trials that it reads."""

import math

import nbformat
import numpy as np
import pytest

from course_utils.measure.paired import paired_difference
from course_utils.results import RESULTS, read_file
from tests.conftest import ROOT

SHORT, LONG = 4, 10


@pytest.fixture(scope="module")
def stored():
    return read_file(RESULTS / "optimizers_2cores.json")


@pytest.fixture(scope="module")
def rows(stored):
    return stored["rows"]


@pytest.fixture(scope="module")
def names(stored):
    return list(stored["spaces"])


@pytest.fixture(scope="module")
def text():
    notebook = nbformat.read(ROOT / "notebooks" / "16_optimizers.ipynb", as_version=4)
    return "\n".join(cell.source for cell in notebook.cells)


def read_rows(rows, **chosen):
    return [row for row in rows if chosen.items() <= row.items()]


def read_accuracies(rows, **chosen):
    """In percent, in the order of the seeds."""
    found = sorted(read_rows(rows, **chosen), key=lambda row: row["seed"])
    return np.array([100 * row["accuracies"][-1] for row in found])


def find_best(rows, name, epochs):
    trials = read_rows(rows, kind="trial", optimizer=name, epochs=epochs)
    return max(trials, key=lambda row: row["accuracies"][-1])


def judge(rows, name, epochs, kind="fresh"):
    tuned = read_accuracies(rows, kind="fresh", optimizer="AdamW", epochs=epochs)
    found = paired_difference(
        tuned, read_accuracies(rows, kind=kind, optimizer=name, epochs=epochs)
    )
    assert found.n == 5
    return found


def place(rows, names, name, epochs, trials):
    """The place of an optimizer by the mean of the best of so many trials."""
    means = {}
    for other in names:
        ordered = np.sort(read_accuracies(rows, kind="trial", optimizer=other, epochs=epochs))
        assert len(ordered) == 12
        weights = [math.comb(number, trials - 1) for number in range(12)]
        means[other] = np.dot(weights, ordered) / math.comb(12, trials)
    return sorted(means, key=means.get, reverse=True).index(name) + 1


def test_all_trials_are_there(rows, names):
    assert len(names) == 10
    for name in names:
        for epochs in (SHORT, LONG):
            seeds = [
                r["seed"] for r in read_rows(rows, kind="trial", optimizer=name, epochs=epochs)
            ]
            assert sorted(seeds) == list(range(100, 112))


def test_settings_differ_more_than_optimizers(rows, names, text):
    assert "Between the best and the worst trial of AdamW lie 14 points" in text
    own = read_accuracies(rows, kind="trial", optimizer="AdamW", epochs=LONG)
    assert round(own.max() - own.min()) == 14
    assert "Between the best trials of AdamW and of the winner lie 3" in text
    best = {n: read_accuracies(rows, kind="trial", optimizer=n, epochs=LONG).max() for n in names}
    assert round(max(best.values()) - best["AdamW"]) == 3
    assert "among the seven best optimizers" in text
    seven = sorted(best.values(), reverse=True)[:7]
    assert seven[0] - seven[-1] < 14 / 2


def test_best_learning_rates_at_the_edge_are_named(rows, names, stored, text):
    assert "The best learning rate of AdamW in the long training, 0.008," in text
    assert f"{find_best(rows, 'AdamW', LONG)['lr']:.1g}" == "0.008"
    at_edge = [
        name
        for name in names
        if find_best(rows, name, LONG)["lr"] > 0.7 * stored["spaces"][name][0][1]
    ]
    assert set(at_edge) == {"AdamW", "AdamW, Lookahead", "AdamW, centralized", "Adafactor"}
    assert "with Lookahead, with centralized gradients and of Adafactor" in text


def test_places_depend_on_the_number_of_trials(rows, names, text):
    assert "Adafactor is 8th with one trial and 2nd with twelve" in text
    assert place(rows, names, "Adafactor", SHORT, 1) == 8
    assert place(rows, names, "Adafactor", SHORT, 12) == 2
    assert "from 4th to 8th" in text
    assert place(rows, names, "MADGRAD", LONG, 1) == 4
    assert place(rows, names, "MADGRAD", LONG, 12) == 8
    assert "Schedule-free is first everywhere here, SGD and SAM are last" in text
    for epochs in (SHORT, LONG):
        for trials in (1, 3, 12):
            assert place(rows, names, "schedule-free", epochs, trials) == 1
            last = {place(rows, names, name, epochs, trials) for name in ("SGD", "SAM")}
            assert last == {9, 10}


def test_verdicts_on_fresh_seeds(rows, names, text):
    rivals = [name for name in names if name != "AdamW"]
    helps = {
        e: {n for n in rivals if judge(rows, n, e).verdict(margin=1) == "helps"} for e in (4, 10)
    }
    hurts = {
        e: {n for n in rivals if judge(rows, n, e).verdict(margin=1) == "hurts"} for e in (4, 10)
    }
    assert "one of nine rivals beats the tuned AdamW: schedule-free" in text
    assert helps[SHORT] == {"schedule-free"}
    assert "four do: schedule-free, Lookahead, Muon and centralized gradients" in text
    assert helps[LONG] == {"schedule-free", "AdamW, Lookahead", "Muon", "AdamW, centralized"}
    assert "SGD and SAM lose in both" in text
    assert {"SGD", "SAM"} <= hurts[SHORT] & hurts[LONG]


def test_controls(rows, text):
    assert "change the tuned AdamW by less than a point" in text
    assert "is 1.5 to 2.5 points below the tuned one" in text
    for epochs in (SHORT, LONG):
        assert abs(judge(rows, "AdamW", epochs, "new statistics").mean) < 1
        assert 1.5 <= -judge(rows, "AdamW", epochs, "default").mean <= 2.5


def read_decays(rows, optimizer, norms=True):
    """Mean accuracy for each decay, in percent."""
    chosen = {"kind": "decay", "optimizer": optimizer, "decay_norms": norms}
    decays = {row["weight_decay"] for row in read_rows(rows, **chosen)}
    return {d: read_accuracies(rows, **chosen, weight_decay=d).mean() for d in sorted(decays)}


def test_the_sweep_of_the_decay(rows, text):
    norms, none = read_decays(rows, "AdamW"), read_decays(rows, "AdamW", norms=False)
    usual = [value for decay, value in (norms | none).items() if decay <= 1]
    assert "changes AdamW's mean accuracy by less than two points" in text
    assert max(usual) - min(usual) < 2
    assert "it costs 21 points, and 8 points if norms and biases do not decay" in text
    assert round(norms[0.0] - norms[10.0]) == 21
    assert round(norms[0.0] - none[10.0]) == 8
    assert "SGD gains two points with a decay of 0.005" in text
    sgd = read_decays(rows, "SGD")
    assert max(sgd, key=sgd.get) == 0.005
    assert round(sgd[0.005] - sgd[0.0]) == 2
    assert "the learning rates add up to about 0.6" in text
    assert find_best(rows, "AdamW", LONG)["lr"] * 150 / 2 == pytest.approx(0.6, abs=0.05)
