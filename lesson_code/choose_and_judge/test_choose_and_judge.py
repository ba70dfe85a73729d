"""The text of lesson 25 against the stored trainings that it reads."""

import contextlib
import io
import json
import re
from types import SimpleNamespace

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
import torch
from scipy import stats

from course_tools.study.lesson_code import read_definitions
from course_utils.claims import claim
from course_utils.measure.statistics import two_way
from course_utils.results import STUDIES
from lesson_code.choose_and_judge.study import KeepHits, draw_settings, list_jobs
from tests.places import ROOT

STEM = "25_choose_and_judge"
CORE = ("stored", "first-read", "read-pairs", "curse-figure", "curse-table", "two-way", "pairs")
CORE += ("one-pair",)
DEEPER = ("test-split", "searches-table")


@pytest.fixture(scope="module")
def notebook():
    return nbformat.read(ROOT / "notebooks" / f"{STEM}.ipynb", as_version=4)


@pytest.fixture(scope="module")
def text(notebook):
    """All that the notebook says, with single spaces."""
    cells = (cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return " ".join("\n".join(cells).split())


@pytest.fixture(scope="module")
def lesson(notebook):
    """What the lesson computes from the stored trainings, by name."""
    pytest.importorskip("optuna", reason="the extra search is not installed")
    cells = {cell.id: cell.source for cell in notebook.cells}
    import optuna

    plt.switch_backend("agg")
    names = read_definitions(STEM, optuna=optuna, claim=claim)
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in CORE + DEEPER:
            exec(cells[cell].replace("plt.show()", "plt.close('all')"), names)
    return names


def describe(found, low="from", high="to"):
    return f"{low} {found.low:.1f} {high} {found.high:.1f}"


def test_the_study_is_the_one_that_its_script_declares():
    rows = json.loads((STUDIES / "choose_and_judge/study.json").read_text())["rows"]
    measured = ("accuracy", "hits", "commit")
    stored = [{k: v for k, v in row.items() if k not in measured} for row in rows]
    assert sorted(map(str, map(sorted_items, stored))) == sorted(
        map(str, map(sorted_items, list_jobs()))
    )
    assert len(draw_settings()) == 12
    assert {len(row["hits"]) for row in rows if row["kind"] == "pair"} == {1}


def sorted_items(row):
    return sorted(row.items())


def test_the_callback_keeps_what_is_right():
    watching = KeepHits()
    module = SimpleNamespace(__call__=None)
    for _ in range(2):
        watching.on_validation_epoch_start(None, module)
        for targets in (torch.tensor([0, 1]), torch.tensor([2])):
            batch = torch.eye(3)[[0, 0]][: len(targets)], targets
            watching.on_validation_batch_end(None, lambda images: images, None, batch)
        watching.on_validation_epoch_end(None, module)
    assert [hits.tolist() for hits in watching.hits] == [[True, False, False]] * 2


def test_the_winner_is_good_and_looks_better(lesson, text):
    gap, worth, chosen = lesson["curse_gap"], lesson["worth"], lesson["chosen"]
    means = {name: values.mean() for name, values in chosen.items()}
    assert f"give the chosen setting {means['seen']:.1f} %" in text
    assert f"give the same network {means['same network']:.1f} %" in text
    said = f"its own number is {gap.mean:.1f} points too high on average, with an interval over the"
    assert f"{said} five seeds {describe(gap)}." in text
    others = f"the chosen setting has {means['other seeds']:.1f} % and the average of all twelve"
    assert f"{others} {means['average']:.1f} %" in text
    assert (
        f"the chosen setting is {worth.mean:.1f} points better than the average one, "
        f"{describe(worth)}" in text
    )
    assert worth.low > 0
    assert f"only {np.mean(lesson['is_best']):.0%} of the choices find".replace("%", " %") in text
    assert "because five seeds leave the luck of the seed undecided" in text
    assert lesson["seed_gap"].low < 0 < lesson["seed_gap"].high
    assert gap.low > 1
    assert f"The best of twelve settings looks {gap.mean:.1f} points better than it is" in text
    assert "can be seven points too high or two points too low: eight of ten lie between" in text
    assert np.array_equal(np.round(np.quantile(lesson["single"], (0.1, 0.9))), (-2, 7))


def test_a_single_choice_is_as_noisy_as_no_choice(lesson, text):
    """The spread of seen minus fresh, of the winner and of networks fixed in advance."""
    assert "because it is about as large without a choice: only the shift of the mean comes" in text
    fixed = [100 * (seen - fresh) for seen, fresh in lesson["splits_of_seed"]]
    assert abs(np.mean(fixed)) < 0.01
    assert np.std(lesson["single"]) == pytest.approx(np.std(fixed), rel=0.1)


def test_the_set_up_counts_the_trainings_that_are_read(lesson, text):
    seeds, settings, epochs, _ = lesson["tried"].shape
    assert (settings, seeds, epochs) == (12, 5, 6)
    assert "twelve settings at five seeds, for six epochs" in text
    variants = [lesson["constant"], lesson["cosine"]]  # of 16 epochs: see the cell that reads them
    assert [len(hits) for hits in variants] == [8, 8]
    assert "and two schedules at eight seeds, for 16" in text
    read = seeds * settings + sum(map(len, variants))
    assert f"come from {read} of the {len(lesson['rows'])} stored trainings" in text


def test_more_candidates_and_fewer_images_are_luckier(lesson, text):
    assert "still about two points, where the formula gives 5.5 at their mean accuracy" in text
    share = lesson["share"]
    noise = 100 * (share * (1 - share) / 200) ** 0.5
    assert abs(noise * lesson["expect_luck"](12) - 5.5) < 0.05
    assert abs(lesson["curse"][200][-1] - 2) < 0.5
    assert "each solid line is below the dotted line of its colour" in text
    bounds = [100 * (0.22 / size) ** 0.5 * lesson["expect_luck"](12) for size in lesson["curse"]]
    for gains, bound in zip(lesson["curse"].values(), bounds, strict=True):
        assert 0.5 < gains[-1] < bound
        assert np.all(np.diff(gains) > 0)
    assert "three settings and 500 photographs give about half a point" in text
    assert 0.4 < lesson["curse"][500][2] < 0.7


def test_the_best_of_four(lesson, text):
    found = [lesson["measure_curse"](one, 200, 4) for one in lesson["final"]]
    with contextlib.redirect_stdout(io.StringIO()):
        gap = lesson["tell_mean"]("", 100 * np.subtract(*np.transpose(found)))
    said = f"the best of four settings looks {gap.mean:.1f} points too good, {describe(gap)}"
    assert said in text


def test_a_large_test_split_bears_a_hundred_looks(lesson, text):
    assert "With 10,000 test images about a hundred times, which costs about a point" in text
    assert abs(lesson["too_high"][100][-1] - 1) < 0.2
    assert "and with 200 hardly more than once" in text
    assert lesson["too_high"][2][0] > 1.5


def test_halving_saves_epochs(lesson, text):
    assert "Halving trains 12 + 6 + 3 × 2 + 2 × 2 of them, and Optuna's pruner about half" in text
    table = lesson["table"]
    trained, accuracy, optimism = (table.iloc[:, column] for column in range(3))
    assert (trained["train all"], trained["halving"]) == (72, 28)
    assert 0.4 < trained["Optuna's pruner"] / 72 < 0.6
    assert "On the mean of five seeds their winners are no worse" in text
    assert accuracy.min() > accuracy["train all"] - 0.1
    both = f"{accuracy['halving']:.1f} % against {accuracy['train all']:.1f} %"
    gain, luck = lesson["fresh_gap"], lesson["luck_gap"]
    edges = f"between {gain.low:+.2f} and {gain.high:+.2f} points over five seeds"
    assert f"its winner has {both}. The difference lies {edges}, so a gain is not certain" in text
    assert gain.mean == pytest.approx(accuracy["halving"] - accuracy["train all"])
    assert gain.low < 0 < gain.mean
    edges = f"{-luck.mean:.1f} points ({-luck.high:.1f} to {-luck.low:.1f})"
    assert f"Halving's winner is less inflated, by {edges}" in text
    assert luck.mean == pytest.approx(optimism["halving"] - optimism["train all"])
    assert luck.high < 0


def test_other_photographs_widen_the_intervals_over_seeds(lesson, text):
    """Standard errors in points; a review computed them from the same stored hits, by itself."""
    constant, cosine = lesson["constant"], lesson["cosine"]  # (seeds, photographs)
    assert constant.shape == cosine.shape == (8, 1000)
    found = two_way(constant, cosine)
    assert found.mean == pytest.approx(lesson["only_seeds"].mean)
    errors = [f"{100 * error:.2f}" for error in (found.se_seeds, found.se_examples)]
    assert (
        "the standard error is {} points over seeds and {} over photographs".format(*errors) in text
    )
    assert "and the rest makes most of both" in text
    assert found.se_residual**2 > max(found.se_seeds, found.se_examples) ** 2 / 2
    assert f"With both counted it is {100 * found.se_both:.2f}, the root of seeds²" in text
    squares = np.square([found.se_seeds, found.se_examples, found.se_residual])
    assert found.se_both**2 == pytest.approx(squares @ [1, 1, -1])
    mean, low, high = (f"{100 * x:.1f}" for x in (found.mean, found.low, found.high))
    assert f"the cosine is {mean} points ahead, from {low} to {high}" in text
    assert f"the cosine is {mean} points ahead on average, on 1,000 photographs" in text
    short = two_way(constant, lesson["of_pairs"]["cosine", 4])
    assert np.round([100 * short.se_seeds, 100 * short.se_both], 2).tolist() == [0.57, 0.8]
    assert "from about a tenth at 1,000 to over a fifth at 100" in text
    ratios = np.array([line[:, 1] / line[:, 0] for line in lesson["errors"].values()])
    assert ratios[:, 0].min() > 1.2
    assert ratios[:, -1] == pytest.approx(1.1, abs=0.025)
    assert np.all(np.diff(ratios) < 0)
    assert "With fewer seeds both rise together" in text
    few, some, many = lesson["errors"].values()  # each (images, over seeds and over both)
    assert np.all(few > some)
    assert np.all(some > many)


def test_one_pair_of_networks_and_one_network(lesson, text):
    significant = sum(pair.p_value < 0.05 for pair in lesson["pairs"])
    assert (significant, len(lesson["pairs"])) == (2, 8)
    assert "Of eight pairs from the same two variants, two are significant" in text
    assert "McNemar's test calls two different, and none after a correction" in text
    assert "After the correction for eight comparisons none is." in text
    assert lesson["corrected"].min() > 0.05
    last = lesson["cosine"][0]
    widths = [
        100 * np.diff(lesson["wilson_interval"](int(part.sum()), len(part)))[0]
        for part in (last, last[:200])
    ]
    assert "of {:.1f} points on 1,000 photographs and of {:.1f} on 200".format(*widths) in text


def find_power(count, share, difference):
    """Of McNemar's exact test at 5 % with so many images, summed over the numbers of throws."""
    throws = np.arange(*stats.binom.ppf([1e-6, 1 - 1e-6], count, share).astype(int))
    rejects = stats.binom.ppf(0.025, throws, 0.5) - 1  # of the fewer ones; at the quantile p > 5 %
    heads = (1 + difference / share) / 2
    ends = stats.binom.cdf(rejects, throws, heads) + stats.binom.sf(
        throws - rejects - 1, throws, heads
    )
    return ends @ stats.binom.pmf(throws, count, share)


def test_so_many_photographs_show_the_difference_in_one_pair(lesson, text):
    share, difference, enough = lesson["divided"], lesson["both"].mean, lesson["enough"]
    only_one = [pair.only_a + pair.only_b for pair in lesson["pairs"]]
    assert share == pytest.approx(np.mean(only_one) / 1000)
    assert f"On {share:.0%} of them exactly one network".replace("%", " %") in text
    said = f"truly {100 * difference:.1f} points better, the test needs about"
    assert f"{said} {round(enough, -2):,} photographs to find it in four of five cases" in text
    assert find_power(enough, share, difference) == pytest.approx(0.8, abs=0.02)
    assert "So 1,000 photographs are too few for one pair" in text
    assert find_power(1000, share, difference) < 0.25
    assert "four times as many for half the difference" in text
    assert lesson["count_images"](share, difference / 2) / enough == pytest.approx(4, rel=0.01)


def test_in_both_recipes_the_fresh_accuracy_is_the_higher_one(notebook, text):
    assert "Here and in Lightning the fresh accuracy is the higher one" in text
    cards = [cell for cell in notebook.cells if "card" in cell.metadata.get("tags", [])]
    assert len(cards) == 2
    for cell in cards:
        printed = "".join(output.get("text", "") for output in cell.outputs)
        seen, fresh = re.search(r"([\d.]+)% seen; report ([\d.]+)%", printed).groups()
        assert float(fresh) > float(seen)
