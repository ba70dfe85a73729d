"""The text of lesson 16 against the stored trials that it reads: its sentences are built anew."""

import itertools
import math
import re

import nbformat
import numpy as np
import pytest
from scipy import stats
from torch.optim import SGD

from course_tools.study.lesson_code import read_definitions
from course_utils.config import load_config
from course_utils.measure.paired import paired_difference
from course_utils.results import STUDIES, read_file
from course_utils.study_results import read_study
from lesson_code.optimizers.study import STUDY
from lesson_code.optimizers.study_trials import CANDIDATES
from tests.places import ROOT

SHORT, LONG = 4, 10
PAIRED = ("schedule-free", "AdamW, centralized", "Muon", "AdamW, Lookahead")
SPLIT = 0.003


def read_stored(name="study_trials"):
    return read_file(STUDIES / f"optimizers/{name}.json")


def read_rows(rows, **chosen):
    return [row for row in rows if chosen.items() <= row.items()]


def read_accuracies(rows, order="seed", **chosen):
    """In percent, in this order."""
    found = sorted(read_rows(rows, **chosen), key=lambda row: row[order])
    return np.array([100 * row["accuracies"][-1] for row in found])


def read_trials(rows, name, epochs):
    return read_accuracies(rows, "lr", kind="trial", optimizer=name, epochs=epochs)


def find_best(rows, name, epochs):
    trials = read_rows(rows, kind="trial", optimizer=name, epochs=epochs)
    return max(trials, key=lambda row: row["accuracies"][-1])


def pair_points(rows, name, epochs, side="all"):
    """The paired difference from AdamW over the points of one side of the split."""
    trials = read_rows(rows, kind="trial", optimizer="AdamW", epochs=epochs)
    rates = np.sort([row["lr"] for row in trials])
    chosen = {"all": rates > 0, "low": rates < SPLIT, "high": rates >= SPLIT}[side]
    assert chosen.sum() == (12 if side == "all" else 6)
    adamw, other = (read_trials(rows, x, epochs)[chosen] for x in ("AdamW", name))
    return paired_difference(adamw, other)


def fit_slope(rows, name, epochs):
    """Points that the gain over AdamW grows per decade of the learning rate: mean, edges, p."""
    trials = read_rows(rows, kind="trial", optimizer="AdamW", epochs=epochs)
    decades = np.log10(np.sort([row["lr"] for row in trials]))
    gains = read_trials(rows, name, epochs) - read_trials(rows, "AdamW", epochs)
    line = stats.linregress(decades, gains)
    half = stats.t.ppf(0.975, len(gains) - 2) * line.stderr
    return line.slope, line.slope - half, line.slope + half, line.pvalue


def correct(p_values):
    """Holm's correction: the names whose differences are left."""
    ordered = sorted(p_values, key=p_values.get)
    for rank, name in enumerate(ordered):
        if p_values[name] * (len(ordered) - rank) >= 0.05:
            return set(ordered[:rank])
    return set(ordered)


def judge(rows, name, epochs, kind="fresh"):
    tuned = read_accuracies(rows, kind="fresh", optimizer="AdamW", epochs=epochs)
    found = paired_difference(
        tuned, read_accuracies(rows, kind=kind, optimizer=name, epochs=epochs)
    )
    assert found.n == 5
    return found


def judge_texts(study, name):
    found = study.difference("definitions", name, "AdamW")
    return f"{100 * found.mean:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"


def read_search(study, name, trial):
    """Accuracy in percent, over the seeds on which the learning rate was chosen."""
    found = [
        x.read_metric("val_accuracy")
        for x in study.trainings
        if (x.variant, x.trial) == (name, trial) and x.seed in study.search_seeds
    ]
    assert len(found) == 2
    return 100 * np.mean(found)


def compare_sam(rows, epochs):
    """What SGD is better than SAM at fresh seeds."""
    sam, sgd = (
        read_accuracies(rows, kind="fresh", optimizer=name, epochs=epochs)
        for name in ("SAM", "SGD")
    )
    return paired_difference(sam, sgd)


def list_halves(rows, name, epochs):
    """The lead of the best of six trials over AdamW's, for every choice of six points."""
    adamw, other = read_trials(rows, "AdamW", epochs), read_trials(rows, name, epochs)
    halves = [list(half) for half in itertools.combinations(range(12), 6)]
    return np.array([other[half].max() - adamw[half].max() for half in halves])


def say(found, digits=1):
    return f"({found.low:+.{digits}f} to {found.high:+.{digits}f})"


def write_sentences():
    """What the lesson says of the stored trainings, by a name each."""
    rows, texts = read_stored()["rows"], read_study("optimizers")
    first = read_stored("study_first_space")["rows"]
    free = pair_points(rows, "schedule-free", LONG)
    sides = {
        (name, side): f"{pair_points(rows, name, LONG, side).mean:+.1f}"
        for name in PAIRED
        for side in ("low", "high")
    }
    slope, low, high, _ = fit_slope(rows, "schedule-free", LONG)
    slopes = [fit_slope(rows, name, LONG)[0] for name in PAIRED]
    spread = np.ptp(read_trials(rows, "AdamW", LONG))
    fresh = {name: judge(rows, name, LONG) for name in (*PAIRED, "SGD", "SAM", "Lion", "MADGRAD")}
    tuned = {
        name: read_accuracies(rows, kind="fresh", optimizer=name, epochs=LONG).mean()
        for name in ("AdamW", "schedule-free")
    }
    best = find_best(rows, "AdamW", LONG)
    moved = judge(first, "AdamW, Lookahead", LONG)
    halves = list_halves(rows, "schedule-free", LONG)
    edges = np.quantile(halves, (0.025, 0.975))
    default = judge(rows, "AdamW", LONG, "default")
    sam, sam_short = (compare_sam(rows, epochs) for epochs in (LONG, SHORT))
    times = [find_best(rows, name, LONG)["lr"] / best["lr"] for name in PAIRED[:2]]
    lost = [
        read_search(texts, name, "lr 0.0005") - read_search(texts, name, "lr 0.008")
        for name in ("schedule-free", "AdamW")
    ]
    bests = [
        max(read_accuracies(rows, kind="trial", optimizer=name, epochs=epochs))
        for name, epochs in itertools.product(read_stored()["spaces"], (SHORT, LONG))
    ]
    return {
        "reached": f"where the best trials reached {min(bests):.1f} to {max(bests):.1f} %",
        "mean": (
            f"In the long training schedule-free AdamW is {free.mean:.1f} points better than AdamW "
            f"on the mean of the twelve settings ({free.low:.1f} to {free.high:.1f})"
        ),
        "split": (
            f"At the six lower learning rates it gains {sides['schedule-free', 'low']} points, and "
            f"at the six higher ones {sides['schedule-free', 'high']}"
        ),
        "split_centralized": f"{sides['AdamW, centralized', 'low']} and "
        f"{sides['AdamW, centralized', 'high']} points",
        "slope": (
            f"{slope:.1f} points for every factor of ten in the learning rate ({low:.1f} to "
            f"{high:.1f})"
        ),
        "slopes": f"The four long slopes are alike, {min(slopes):.1f} to {max(slopes):.1f}",
        "spread": f"{spread:.1f} points lie between AdamW's best and its worst trial",
        "lost": (
            f"{100 * best['accuracies'][-1]:.1f} %, and on fresh seeds the same setting has "
            f"{tuned['AdamW']:.1f} %"
        ),
        "moved": (
            f"by {moved.mean:.1f} points on the fresh seeds ({moved.low:.1f} to {moved.high:.1f})"
        ),
        "moved_back": f"it is {-fresh['AdamW, Lookahead'].mean:.1f} points below AdamW",
        "halves": (
            f"lead AdamW's best by {edges[0]:+.1f} to {edges[1]:+.1f} points in 95 % of the "
            f"{len(halves)} choices"
        ),
        "fresh": (
            f"schedule-free AdamW {fresh['schedule-free'].mean:+.1f} points "
            f"{say(fresh['schedule-free'])} and centralized gradients "
            f"{fresh['AdamW, centralized'].mean:+.1f} {say(fresh['AdamW, centralized'])}"
        ),
        "behind": f"SGD is {-fresh['SGD'].mean:.1f} points behind",
        "default": f"{-default.mean:.1f} points below the tuned one {say(default)}",
        "optimum": f"at {times[0]:.1f} and {times[1]:.1f} times its learning rate",
        "texts": (
            f"schedule-free {judge_texts(texts, 'schedule-free')}, SGD {judge_texts(texts, 'SGD')} "
            f"and Muon {judge_texts(texts, 'Muon')}"
        ),
        "texts_high": f"{lost[0]:.1f} points, and AdamW {lost[1]:.1f}",
        "sam": (
            f"{sam.mean:.1f} ± {sam.high - sam.mean:.1f} points in the long training and "
            f"{sam_short.mean:.1f} ± {sam_short.high - sam_short.mean:.1f} in the short one"
        ),
        "others": (
            f"Lookahead {fresh['AdamW, Lookahead'].mean:+.1f} {say(fresh['AdamW, Lookahead'])}, "
            f"Lion {fresh['Lion'].mean:+.1f} {say(fresh['Lion'])} and MADGRAD "
            f"{fresh['MADGRAD'].mean:+.1f} {say(fresh['MADGRAD'])}"
        ),
    }


@pytest.fixture(scope="module")
def stored():
    return read_stored()


@pytest.fixture(scope="module")
def rows(stored):
    return stored["rows"]


@pytest.fixture(scope="module")
def names(stored):
    return list(stored["spaces"])


@pytest.fixture(scope="module")
def text():
    """All that the notebook says, with single spaces."""
    notebook = nbformat.read(ROOT / "notebooks" / "16_optimizers.ipynb", as_version=4)
    cells = (cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return " ".join("\n".join(cells).split()).replace("−", "-")


@pytest.mark.parametrize("name", write_sentences())
def test_the_lesson_says_what_was_measured(name, text):
    assert write_sentences()[name] in text


def test_all_trials_are_there(rows, names):
    assert len(names) == 10
    for name, epochs in itertools.product(names, (SHORT, LONG)):
        trials = read_rows(rows, kind="trial", optimizer=name, epochs=epochs)
        assert sorted(row["seed"] for row in trials) == list(range(100, 112))


def test_the_number_of_steps_is_that_of_the_trials(stored, text):
    each_epoch = stored["num_train"] // load_config("quick").batch_size  # full batches only
    assert f"for {SHORT * each_epoch} or {LONG * each_epoch} steps" in text


def test_the_paired_optimizers_share_points_and_seeds(rows):
    for epochs in (SHORT, LONG):
        points = {
            name: sorted(
                (row["seed"], row["lr"], row["weight_decay"])
                for row in read_rows(rows, kind="trial", optimizer=name, epochs=epochs)
            )
            for name in ("AdamW", *PAIRED)
        }
        assert all(points[name] == points["AdamW"] for name in PAIRED)


def test_holm_leaves_every_slope_and_no_mean(rows, text):
    pairs = list(itertools.product(PAIRED, (SHORT, LONG)))
    slopes = {pair: fit_slope(rows, *pair)[3] for pair in pairs}
    means = {}
    for name, epochs in pairs:
        gains = read_trials(rows, name, epochs) - read_trials(rows, "AdamW", epochs)
        means[name, epochs] = stats.ttest_1samp(gains, 0).pvalue
    assert correct(slopes) == set(pairs)
    assert correct(means) == set()
    assert "all eight slopes survive Holm's correction, and none of the eight means does" in text
    assert "None of the table's eight means over all twelve survives Holm's correction" in text
    assert "The mean gain over all twelve settings does not survive Holm's correction" in text
    assert all(fit_slope(rows, *pair)[0] > 0 for pair in pairs)


def test_only_at_high_learning_rates_is_the_gain_one(rows, text):
    for epochs, name in itertools.product((SHORT, LONG), ("schedule-free", "AdamW, centralized")):
        low, high = (pair_points(rows, name, epochs, side) for side in ("low", "high"))
        assert low.low < 0 < low.high
        assert high.mean > 4
    assert "In both trainings the intervals of the lower six contain zero" in text


def test_holm_on_fresh_seeds(rows, names, text):
    p_values = {
        (epochs, name): stats.ttest_rel(
            read_accuracies(rows, kind="fresh", optimizer=name, epochs=epochs),
            read_accuracies(rows, kind="fresh", optimizer="AdamW", epochs=epochs),
        ).pvalue
        for epochs in (SHORT, LONG)
        for name in names
        if name != "AdamW"
    }
    kept = {(LONG, "AdamW, centralized")}
    for epochs in (SHORT, LONG):
        kept |= {(epochs, name) for name in ("schedule-free", "SGD", "SAM")}
    assert correct(p_values) == kept
    assert "Of 18 comparisons Holm's correction leaves seven" in text
    assert judge(rows, "Muon", LONG).low > 0
    assert judge(rows, "Adafactor", SHORT).low > 0
    assert "Muon's lead in the long training and Adafactor's in the short one do not" in text


def test_holm_on_texts(text):
    study = read_study("optimizers")
    found = {
        name: study.difference("definitions", name, "AdamW").p_value()
        for name in ("schedule-free", "Muon", "SGD")
    }
    assert correct(found) == {"Muon"}
    assert "only Muon's loss survives Holm's correction" in text
    assert "schedule-free's gain here did not survive Holm's correction" in text
    assert study.best["definitions"]["AdamW"] == "lr 0.0005"
    assert "AdamW's best learning rate is the lowest of its three" in text


def test_the_controls(rows, text):
    assert "New BatchNorm statistics change AdamW by less than a point" in text
    for name, epochs in itertools.product(("AdamW", "SAM"), (SHORT, LONG)):
        new = read_accuracies(rows, kind="new statistics", optimizer=name, epochs=epochs)
        old = read_accuracies(rows, kind="fresh", optimizer=name, epochs=epochs)
        assert abs(new.mean() - old.mean()) < 1


def test_the_order_changes_with_the_length(rows, names, text):
    places = {}
    for epochs in (SHORT, LONG):
        means = {
            name: read_accuracies(rows, kind="fresh", optimizer=name, epochs=epochs).mean()
            for name in names
        }
        ordered = sorted(means, key=means.get, reverse=True)
        places[epochs] = {name: ordered.index(name) + 1 for name in names}
    assert "Adafactor is second in the short training and fourth in the long one" in text
    assert (places[SHORT]["Adafactor"], places[LONG]["Adafactor"]) == (2, 4)
    assert "Schedule-free is first in both, SGD and SAM are among the last three" in text
    assert {places[e]["schedule-free"] for e in (SHORT, LONG)} == {1}
    assert all(places[e][name] >= 8 for e in (SHORT, LONG) for name in ("SGD", "SAM"))


def test_a_best_learning_rate_at_the_edge_is_named(rows, names, stored, text):
    assert "The best trial of Adafactor stands next to the upper edge of its space" in text
    for name in names:
        low, high = stored["spaces"][name][0]
        place = np.log(find_best(rows, name, LONG)["lr"] / low) / np.log(high / low)
        assert (place > 0.9) == (name == "Adafactor")
        assert place > 0.1


def test_the_spaces_were_moved_for_what_their_first_trials_showed(stored, text):
    first = read_stored("study_first_space")
    moved = {name: (space[0], stored["spaces"][name][0]) for name, space in first["spaces"].items()}
    signs = {name: set(np.sign(np.subtract(*reversed(pair)))) for name, pair in moved.items()}
    assert signs == {"SGD": {-1}, "AdamW": {1}, "AdamW, Lookahead": {1}}
    assert stored["spaces"]["AdamW, centralized"] == stored["spaces"]["AdamW"]
    assert stored["spaces"]["SAM"] == stored["spaces"]["SGD"]
    assert "AdamW's moved up, with those of its two variants" in text
    low, high = moved["AdamW"][0]
    best = find_best(first["rows"], "AdamW", LONG)
    assert np.log(best["lr"] / low) / np.log(high / low) > 0.9
    assert "because its best trial lay next to the upper edge" in text
    failed = read_trials(first["rows"], "SGD", SHORT) <= 20
    assert (len(failed), failed.sum()) == (12, 6)
    assert "because six of SGD's twelve short trials reached at most 20 %" in text


def test_sgd_has_momentum_wherever_it_is_trained(stored, text):
    assert "SGD, also inside SAM and on texts, has Nesterov's momentum of 0.9" in text
    options = {"momentum": 0.9, "nesterov": True}
    assert CANDIDATES["SGD"].make.func is SGD
    assert CANDIDATES["SGD"].make.keywords == options
    assert CANDIDATES["SAM"].make.keywords["base"] is CANDIDATES["SGD"].make
    on_texts = STUDY.regimes["definitions"].variants["SGD"]
    for trial in on_texts.values():
        assert trial["make_optimizer"].func is SGD
        assert options.items() <= trial["make_optimizer"].keywords.items()
    declared = {name: [*map(list, candidate[1:])] for name, candidate in CANDIDATES.items()}
    assert declared == stored["spaces"]


def test_decay(rows, text):
    swept = read_rows(rows, kind="decay", optimizer="AdamW")
    means = [
        read_accuracies(
            rows, kind="decay", optimizer="AdamW", weight_decay=d, decay_norms=norms
        ).mean()
        for d, norms in {(row["weight_decay"], row["decay_norms"]) for row in swept}
    ]
    assert "Decays from 0 to 10 change AdamW's accuracy by less than one point" in text
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


def test_schedule_free_leads_at_every_number_of_trials(rows, names, text):
    assert "Schedule-free leads at every number of trials" in text
    for epochs in (SHORT, LONG):
        ordered = {name: np.sort(read_trials(rows, name, epochs)) for name in names}
        for k in range(1, 13):
            weights = [math.comb(number, k - 1) for number in range(12)]
            assert max(names, key=lambda name: ordered[name] @ weights) == "schedule-free"


def test_the_live_test_is_told_as_it_came_out(text):
    notebook = nbformat.read(ROOT / "notebooks" / "16_optimizers.ipynb", as_version=4)
    printed = "\n".join(
        o.get("text", "") for cell in notebook.cells for o in cell.get("outputs", [])
    )
    edges = {
        name: [
            float(edge) for edge in re.search(f"{name}: .*\\((\\S+) to (\\S+)\\)", printed).groups()
        ]
        for name in ("gain at 0.001", "the second minus the first")
    }
    assert "live schedule-free gained at 0.001" in text
    assert edges["gain at 0.001"][0] > 0
    assert "schedule-free already gains, unlike at the six lower settings of the stored" in text
    assert "the growth's interval contains zero" in text
    assert "The live test was inconclusive" in text
    assert edges["the second minus the first"][0] < 0 < edges["the second minus the first"][1]


def test_the_lesson_draws_the_points_of_the_trials(stored, rows):
    points = read_definitions("16_optimizers")["draw_points"](
        *zip(*stored["spaces"]["AdamW"], strict=True)
    )
    trials = read_rows(rows, kind="trial", optimizer="AdamW", epochs=SHORT)
    own = [(row["lr"], row["weight_decay"]) for row in sorted(trials, key=lambda row: row["seed"])]
    np.testing.assert_allclose(points, own, rtol=0.005)
