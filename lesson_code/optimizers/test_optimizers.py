"""The text of lesson 16 against the stored trials that it reads."""

import math

import nbformat
import numpy as np
import pytest
from scipy.stats import ttest_rel

from course_utils.measure.paired import paired_difference
from course_utils.results import STUDIES, read_file
from tests.places import ROOT

SHORT, LONG = 4, 10


@pytest.fixture(scope="module")
def stored():
    return read_file(STUDIES / "optimizers/study_trials.json")


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


def find_place(rows, names, name, epochs, trials):
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
    trials = {n: read_accuracies(rows, kind="trial", optimizer=n, epochs=LONG) for n in names}
    spread, most = np.ptp(trials["AdamW"]), np.ptp(trials["Adafactor"])
    said = f"{spread:.1f} points lie between the best and the worst trial of AdamW, and {most:.1f}"
    assert said in text
    best = {name: accuracies.max() for name, accuracies in trials.items()}
    lead = max(best.values()) - best["AdamW"]
    assert f"Between the best trials of AdamW and of the winner lie {lead:.1f}." in text


def test_a_best_learning_rate_at_the_edge_is_named(rows, names, stored, text):
    assert "The best trial of Adafactor stands next to the upper edge of its space." in text
    for name in names:
        low, high = stored["spaces"][name][0]
        place = math.log(find_best(rows, name, LONG)["lr"] / low) / math.log(high / low)
        assert (place > 0.9) == (name == "Adafactor")
        assert place > 0.1


def test_half_of_the_trials_in_the_first_space_of_sgd(text):
    stored = read_file(STUDIES / "optimizers/study_first_space.json")
    sgd = read_accuracies(stored["rows"], optimizer="SGD")
    assert "The first space of SGD and SAM reached from 0.003 to 0.3" in text
    assert stored["spaces"]["SGD"][0] == [0.003, 0.3]
    assert "half of SGD's twelve short trials ended at 20 % or below" in text
    assert (len(sgd), (sgd <= 20).sum()) == (12, 6)


def test_another_space_turns_a_verdict_around(rows, text):
    first = read_file(STUDIES / "optimizers/study_first_space.json")["rows"]
    assert "The first space of AdamW, Lookahead and centralized gradients ended at 0.01" in text
    for name in ("AdamW", "AdamW, Lookahead"):
        assert max(row["lr"] for row in read_rows(first, kind="trial", optimizer=name)) < 0.01
    assert find_best(first, "AdamW", LONG)["lr"] > 0.75 * 0.01
    found = judge(first, "AdamW, Lookahead", LONG)
    assert f"by {found.mean:.1f} points ({found.low:.1f} to {found.high:.1f})" in text
    assert "With the second one it is below AdamW" in text
    assert judge(rows, "AdamW, Lookahead", LONG).mean < 0


def test_places_depend_on_the_number_of_trials(rows, names, text):
    assert "Adafactor is 8th with one trial and 2nd with twelve" in text
    assert find_place(rows, names, "Adafactor", SHORT, 1) == 8
    assert find_place(rows, names, "Adafactor", SHORT, 12) == 2
    assert "Schedule-free is first everywhere here" in text
    for epochs in (SHORT, LONG):
        for trials in (1, 3, 12):
            assert find_place(rows, names, "schedule-free", epochs, trials) == 1
            last = {find_place(rows, names, name, epochs, trials) for name in ("SGD", "SAM")}
            assert last == {9, 10}


def list_survivors(rows, names):
    """The comparisons with AdamW that Holm's correction leaves, as ``(epochs, name)``."""
    p_values = {
        (epochs, name): ttest_rel(
            read_accuracies(rows, kind="fresh", optimizer=name, epochs=epochs),
            read_accuracies(rows, kind="fresh", optimizer="AdamW", epochs=epochs),
        ).pvalue
        for epochs in (SHORT, LONG)
        for name in names
        if name != "AdamW"
    }
    ordered = sorted(p_values, key=p_values.get)
    fails = [rank for rank, key in enumerate(ordered) if p_values[key] * (18 - rank) >= 0.05]
    return set(ordered[: fails[0]])


def test_verdicts_on_fresh_seeds(rows, names, text):
    verdicts = {
        (epochs, name): judge(rows, name, epochs).verdict(margin=1)
        for epochs in (SHORT, LONG)
        for name in names
        if name != "AdamW"
    }
    helps = {key for key, verdict in verdicts.items() if verdict == "helps"}
    beats = "Schedule-free beats the tuned AdamW in both trainings"
    assert f"{beats}, and centralized gradients do so in the long one." in text
    survive = {(SHORT, "schedule-free"), (LONG, "schedule-free"), (LONG, "AdamW, centralized")}
    chance = "Muon in the long training and of Adafactor in the short one exclude zero, too"
    assert chance in text
    assert helps == survive | {(LONG, "Muon"), (SHORT, "Adafactor")}
    assert list_survivors(rows, names) & helps == survive
    assert "SGD and SAM lose in both" in text
    for name in ("SGD", "SAM"):
        assert verdicts[SHORT, name] == verdicts[LONG, name] == "hurts"


def test_controls(rows, text):
    assert "New BatchNorm statistics change AdamW and SAM by less than a point" in text
    for name in ("AdamW", "SAM"):
        for epochs in (SHORT, LONG):
            new = read_accuracies(rows, kind="new statistics", optimizer=name, epochs=epochs)
            old = read_accuracies(rows, kind="fresh", optimizer=name, epochs=epochs)
            assert abs(new.mean() - old.mean()) < 1
    short, long = (judge(rows, "AdamW", epochs, "default") for epochs in (SHORT, LONG))
    for found, words in ((short, "in the short training"), (long, "in the long one")):
        interval = f"(from {-found.low:.1f} below to {found.high:.1f} above)"
        assert f"{-found.mean:.1f} points below the tuned one {words} {interval}" in text or (
            f"{-found.mean:.1f} {words} {interval}" in text
        )


def test_the_accuracy_at_an_epoch_depends_on_the_length(rows, text):
    long, short = (
        [row["accuracies"][3] for row in read_rows(rows, kind="fresh", optimizer="AdamW", epochs=e)]
        for e in (LONG, SHORT)
    )
    said = "at epoch 4 the long training of AdamW has {:.1f} %, and the finished short one {:.1f} %"
    assert said.format(100 * np.mean(long), 100 * np.mean(short)) in text


def test_sam_against_its_base(rows, text):
    parts = []
    for epochs in (LONG, SHORT):
        sgd, sam = (
            read_accuracies(rows, kind="fresh", optimizer=name, epochs=epochs)
            for name in ("SGD", "SAM")
        )
        found = paired_difference(sam, sgd)
        parts += [found.mean, found.high - found.mean]
    said = "{:.1f} ± {:.1f} points in the stored long training, {:.1f} ± {:.1f} in the short one"
    assert said.format(*parts) in text
    assert "SAM's accuracy falls with every larger" in text
    rhos = sorted({row["rho"] for row in read_rows(rows, kind="rho")})
    means = [read_accuracies(rows, kind="rho", rho=rho).mean() for rho in rhos]
    assert rhos[0] == 0
    assert means == sorted(means, reverse=True)


def test_the_sweep_of_the_decay(rows, text):
    swept = read_rows(rows, kind="decay", optimizer="AdamW")
    means = [
        read_accuracies(
            rows, kind="decay", optimizer="AdamW", weight_decay=d, decay_norms=norms
        ).mean()
        for d, norms in {(row["weight_decay"], row["decay_norms"]) for row in swept}
    ]
    assert "Decays from 0 to 10 change AdamW's mean accuracy by less than one point" in text
    assert max(means) - min(means) < 1
    assert "the learning rates add up to about 0.2" in text
    assert find_best(rows, "AdamW", LONG)["lr"] * 150 / 2 == pytest.approx(0.2, abs=0.02)
    assert "SGD gains two points with a decay of 0.005" in text
    sgd = {
        d: read_accuracies(rows, kind="decay", optimizer="SGD", weight_decay=d).mean()
        for d in (0.0, 0.0005, 0.005, 0.05)
    }
    assert max(sgd, key=sgd.get) == 0.005
    assert round(sgd[0.005] - sgd[0.0]) == 2


def test_the_answer_is_open(rows, names, text):
    default = read_accuracies(rows, kind="default", optimizer="AdamW", epochs=LONG)
    tuned = read_accuracies(rows, kind="fresh", optimizer="AdamW", epochs=LONG)
    leads = {}
    for name in names:
        own = read_accuracies(rows, kind="fresh", optimizer=name, epochs=LONG).mean()
        if name != "AdamW" and own > default.mean():
            leads[name] = own - default.mean(), own - tuned.mean()
    assert "the interval allows all three answers" in text
    mean = np.mean([before for before, _ in leads.values()])
    gain = paired_difference(default, tuned)
    assert 1 - gain.high / mean < 1 / 3
    assert 1 - gain.low / mean > 2 / 3
    assert (
        "Schedule-free keeps two thirds of its lead, Lookahead, Lion and MADGRAD keep nothing"
        in text
    )
    assert leads["schedule-free"][1] / leads["schedule-free"][0] == pytest.approx(2 / 3, abs=0.03)
    assert {name for name, (_, after) in leads.items() if after < 0} == {
        "AdamW, Lookahead",
        "Lion",
        "MADGRAD",
    }
