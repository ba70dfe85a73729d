"""What lesson 15 plants and defines, and what it says of its study is what the study found."""

import copy
import math
import re
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD

from course_tools.run.lessons import NOTEBOOKS
from course_tools.study.lesson_code import read_definitions
from course_utils.config import load_config
from course_utils.data.load import load_data
from course_utils.measure.paired import paired_difference
from course_utils.study_results import read_study
from course_utils.training.fit import fit
from course_utils.training.torchrun import torchrun
from lesson_code.gradient_clipping import sharded_norm
from lesson_code.gradient_clipping import study as study_module
from lesson_code.gradient_clipping.planted import (
    OneSpike,
    RecordNorms,
    heavy_tailed_cross_entropy,
)

SPIKED, TAILS = "one spike, planted", "heavy tails, planted"
NOTHING, SCRATCH = "nothing planted", "from scratch"


@pytest.fixture(scope="module")
def lesson():
    """The functions and classes of the notebook, without its trainings."""
    return read_definitions("15_gradient_clipping")


# ---- What is planted.


def test_one_step_gets_a_gradient_that_is_too_large_and_it_is_measured_before_clipping():
    config = load_config("smoke", dataset="shapes").replace(num_train=64, num_val=40, batch_size=16)
    data = load_data(config)

    def train(*planted):
        trainer = {"callbacks": [*planted, RecordNorms()], "gradient_clip_val": 1e-6}
        options = {"make_optimizer": lambda named: SGD(named, lr=1e-9), "trainer": trainer}
        return fit(
            config,
            data,
            save=False,
            model=lambda n: nn.Sequential(nn.Flatten(), nn.Linear(3072, n)),
            **options,
        )

    healthy, spiked = train(), train(OneSpike(2))
    before, after = (np.array(run.callback(RecordNorms).norms) for run in (healthy, spiked))
    np.testing.assert_allclose(after / before, [1, 1, 1000, 1], rtol=1e-3)
    assert spiked.metrics["norm_max"] == pytest.approx(after.max(), rel=1e-5)
    assert spiked.metrics["norm_median"] == pytest.approx(np.median(after), rel=1e-5)


def test_the_heavy_tails_are_those_that_the_text_names():
    torch.manual_seed(0)
    logits, targets = torch.zeros(1, 4), torch.tensor([0])
    found = [heavy_tailed_cross_entropy(logits, targets).item() for _ in range(20_000)]
    weights = np.array(found) / math.log(4)
    assert np.median(weights) == pytest.approx(1, abs=0.05)
    assert (weights > 64).mean() == pytest.approx(0.01, abs=0.003)


# ---- What the lesson defines.


def test_a_gradient_below_the_threshold_stays_as_it_is(lesson):
    gradients = [torch.tensor([0.3, 0.4]), torch.tensor([0.0])]
    for mine, clipped in zip(gradients, lesson["clip_by_norm"](gradients, 1.0), strict=True):
        torch.testing.assert_close(mine, clipped)
    clipped = lesson["clip_by_norm"](gradients, 0.25)
    assert torch.cat(clipped).norm() == pytest.approx(0.25, rel=1e-4)


def test_adam_takes_steps_of_the_learning_rate_while_nothing_happens(lesson):
    moved, memory = lesson["follow_adam"](np.ones(50))
    np.testing.assert_allclose(moved, 1, rtol=1e-6)
    np.testing.assert_allclose(memory, 1, rtol=1e-6)


def test_how_a_spike_disturbs_adam(lesson):
    """What the text says of the table, and of the steps after a spike early in a training."""
    mild, _ = lesson["follow_adam"](np.where(np.arange(1200) == 1000, 30.0, 1.0))
    assert mild[1100] == pytest.approx(2 / 3, abs=0.02)
    severe, _ = lesson["follow_adam"](np.where(np.arange(1200) == 1000, 1000.0, 1.0))
    assert 35 < 1 / severe[1100] < 40
    early, _ = lesson["follow_adam"](np.where(np.arange(60) == 15, 1000.0, 1.0))
    np.testing.assert_allclose(early[16:50] / early[15:49], 0.91, atol=0.03)


def test_the_first_batch_may_be_bad_for_a_policy_that_goes_back(lesson):
    model = nn.Linear(2, 1)
    optimizer, before = SGD(model.parameters(), lr=0.1), copy.deepcopy(model.state_dict())
    policy = lesson["RollBack"]()
    assert not policy(model, optimizer, math.nan)
    assert policy(model, optimizer, 1.0)
    nn.init.zeros_(model.weight)
    assert not policy(model, optimizer, 100.0)
    torch.testing.assert_close(model.state_dict(), before)


def test_two_processes_clip_by_the_norm_of_the_whole_gradient():
    """What the lesson says of `fully_shard`, and why its card calls `full_tensor`."""
    found = torchrun(Path(sharded_norm.__file__)).outputs
    whole = sharded_norm.measure_whole()
    parts = [float(re.search(r"my parts ([\d.]+)", text)[1]) for text in found]
    assert math.hypot(*parts) == pytest.approx(whole, rel=1e-4)
    for text in found:
        assert "returns a DTensor" in text
        full = float(re.search(r"full_tensor\(\) ([\d.]+)", text)[1])
        assert full == pytest.approx(whole, rel=1e-4)
        assert float(text.split()[-1]) == pytest.approx(sharded_norm.MAX_NORM, rel=1e-3)


# ---- The text of the lesson against the study that it reads.


@pytest.fixture(scope="module")
def study():
    return read_study("gradient_clipping")


@pytest.fixture(scope="module")
def read_text():
    """The source of a cell of the notebook, by its id, in one line."""
    notebook = nbformat.read(NOTEBOOKS / "15_gradient_clipping.ipynb", as_version=4)
    cells = {cell.id: " ".join(cell.source.split()) for cell in notebook.cells}
    return cells.__getitem__


@pytest.fixture(scope="module")
def points(study):
    """Accuracies of the seeds, in percent."""
    return lambda regime, variant: 100 * study.values(regime, variant)


@pytest.fixture(scope="module")
def find_gain(points):
    """What clipping adds to an optimizer, in points."""
    return lambda regime, kind: paired_difference(
        points(regime, kind), points(regime, f"{kind}, clipped")
    )


@pytest.fixture(scope="module")
def lost(points):
    """What one spike costs AdamW without clipping, in points."""
    return paired_difference(points(SPIKED, "AdamW"), points(NOTHING, "AdamW"))


def test_what_the_study_is_said_to_have_trained(study, read_text):
    assert len(study.seeds) == 10
    for regime in study.regimes.values():
        assert (regime.config.num_train, regime.config.epochs) == (500, 5)
    tried = {(x.regime, x.variant, x.trial) for x in study.trainings}
    assert len(tried) == 4 * sum(len(variants) for variants in study.best.values())
    data = load_data(regime.config)  # all four have the same
    steps = len(data.train_loader())
    text = read_text("question")
    assert "500 definitions" in text
    assert f"has {5 * steps} steps, {steps} in each of five epochs" in text
    assert f"after {study_module.SPIKE_STEP} steps one gradient" in text
    assert f"one step of {5 * steps}" in read_text("verdict-card")
    assert f"The trainings have {5 * steps} steps" in read_text("verdict-card")
    assert f"which are {4 * steps} steps" in read_text("experiment")
    assert data.num_classes == 10
    assert "ten kinds of thing" in read_text("setup")
    assert "chance is 10 %" in read_text("setup")
    assert f"only {5 * steps - study_module.SPIKE_STEP - 1} are left" in read_text("beta-read")


def test_what_one_spike_costs(lost, points, find_gain, read_text):
    assert lost.low > 0
    text = read_text("first-read-md")
    assert f"One planted spike costs AdamW {lost.mean:.0f} points" in text
    assert f"SGD is left with {points(SPIKED, 'SGD').mean():.0f} %" in text
    cost = f"costs AdamW {lost.mean:.0f} points"
    assert f"{cost}, even at the best of four learning rates (the lowest)" in read_text(
        "verdict-card"
    )
    clipped = paired_difference(points(SPIKED, "AdamW, clipped"), points(NOTHING, "AdamW"))
    assert clipped.verdict(margin=1) == "equivalent"
    assert find_gain(SPIKED, "AdamW").low > 0


def test_clipping_takes_away_what_is_wrong_with_the_spike(points):
    """It has the direction of a healthy gradient, which is clipped, too."""
    for kind in ("AdamW, clipped", "SGD, clipped"):
        np.testing.assert_array_equal(points(SPIKED, kind), points(NOTHING, kind))


def test_what_clipping_brings_with_heavy_tails_and_from_scratch(points, find_gain, read_text):
    adamw, sgd = (find_gain(TAILS, kind) for kind in ("AdamW", "SGD"))
    scratch = find_gain(SCRATCH, "SGD")
    assert {gain.verdict(margin=1) for gain in (adamw, sgd, scratch)} == {"helps"}
    text = read_text("first-read-md")
    assert f"brings AdamW {adamw.mean:.0f} points and SGD {sgd.mean:.0f}" in text
    unclipped = points(SCRATCH, "SGD").mean()
    assert f"hardly learns without clipping ({unclipped:.1f} %, chance is 10 %)" in text
    gains, lowest = f"gains {scratch.mean:.0f} points", "at the lowest learning rate that was tried"
    assert f"{gains}, both {lowest}, and AdamW stays undecided" in text
    undecided = find_gain(SCRATCH, "AdamW")
    assert undecided.verdict(margin=1) == "inconclusive"
    text = read_text("verdict-card")
    assert f"From scratch SGD {gains}, {lowest}, and AdamW is undecided" in text
    interval = f"{undecided.low:+.1f} to {undecided.high:+.1f}".replace("-", "−")
    assert f"From scratch with AdamW a loss is not excluded ({interval} points)" in text
    assert f"From scratch SGD gained {scratch.mean:.0f} points, {lowest}" in read_text("recap")
    assert find_gain(SPIKED, "AdamW").mean > adamw.mean
    assert min(find_gain(SPIKED, "SGD").mean, sgd.mean) > 50
    assert f"it brings AdamW {adamw.mean:.0f} points or more, and SGD more than 50" in text


def test_where_nothing_is_planted_clipping_is_equivalent(find_gain, read_text):
    gains = [find_gain(NOTHING, kind) for kind in ("AdamW", "SGD")]
    assert {gain.verdict(margin=1) for gain in gains} == {"equivalent"}
    text = read_text("verdict-card")
    assert f"clipping brings {gains[0].mean:.1f} points, which is *equivalent*" in text
    added = f"{gains[1].mean:.1f}".replace("-", "−")
    assert f"clipping adds {added} points on the definitions" in read_text("clip-groups-md")


def test_what_the_search_found(study, find_gain, read_text):
    def read_lr(regime, variant):
        return float(study.best[regime][variant].removeprefix("lr "))

    def list_tried(regime, variant):
        found = [x for x in study.trainings if (x.regime, x.variant) == (regime, variant)]
        return [float(x.trial.removeprefix("lr ")) for x in found]

    def write_tried(regime, variant):
        tried = [f"{lr:g}" for lr in sorted(set(list_tried(regime, variant)))]
        return f"{', '.join(tried[:-1])} and {tried[-1]}"

    text = read_text("check-factor-md")
    for regime in study.best:
        assert f"{write_tried(regime, 'AdamW')} for AdamW" in text
        where = "from scratch" if regime == SCRATCH else "in fine-tuning"
        assert f"{write_tried(regime, 'SGD')} for SGD {where}" in text
        for kind in ("AdamW", "SGD"):
            assert write_tried(regime, kind) == write_tried(regime, f"{kind}, clipped")
    assert [read_lr(NOTHING, x) for x in ("SGD", "SGD, clipped")] == [0.01, 0.03]
    assert "0.01 without clipping and 0.03 with it" in read_text("exercises")
    assert {read_lr(x, y) for x in (NOTHING, TAILS) for y in ("AdamW", "AdamW, clipped")} == {1e-3}
    assert read_lr(SPIKED, "AdamW") == 0.0003
    assert read_lr(SPIKED, "AdamW, clipped") == 0.001
    assert "0.0003 against 0.001" in read_text("live-read")
    lowest = [(SPIKED, "AdamW"), (SPIKED, "SGD"), (TAILS, "SGD")]
    for regime, variant in [*lowest, (SCRATCH, "SGD"), (SCRATCH, "SGD, clipped")]:
        assert read_lr(regime, variant) == min(list_tried(regime, variant))
    for regime in (SPIKED, TAILS, NOTHING):
        assert read_lr(regime, "SGD, clipped") == max(list_tried(regime, "SGD, clipped"))
    tried = {
        (x.regime, x.variant, x.trial): x.read_metric("val_accuracy")
        for x in study.trainings
        if x.seed in study.search_seeds
    }
    assert tried[NOTHING, "SGD", "lr 0.03"] < 0.2
    lower = 100 * (tried[NOTHING, "AdamW", "lr 0.001"] - tried[NOTHING, "AdamW", "lr 0.0003"])
    assert f"it costs about {lower:.0f} points on the one search seed" in read_text("live-read")
    best = {
        kind: [
            max(100 * value for (x, y, _), value in tried.items() if (x, y) == (TAILS, variant))
            for variant in (kind, f"{kind}, clipped")
        ]
        for kind in ("AdamW", "SGD")
    }
    adamw, sgd = (clipped - plain for plain, clipped in best.values())
    text = read_text("search-read")
    assert f"is {adamw:.0f} points below that of clipped AdamW" in text
    assert f"for SGD the gap is {sgd:.0f} points" in text
    adamw, sgd = (find_gain(TAILS, kind).mean for kind in ("AdamW", "SGD"))
    assert f"Over the ten seeds of the First result the gaps are {adamw:.0f} and {sgd:.0f}" in text


def test_what_a_shorter_memory_brings(study, points, read_text, lesson):
    gain = paired_difference(points(SPIKED, "AdamW"), points(SPIKED, "AdamW, β2 0.95")).mean
    clipping = paired_difference(points(SPIKED, "AdamW"), points(SPIKED, "AdamW, clipped")).mean
    text = read_text("beta-read")
    assert f"brings {gain:.1f} points, whereas clipping brings {clipping:.0f}" in text
    spiked = np.where(np.arange(9000) == 1000, 1000.0, 1.0)
    short = [
        (lesson["follow_adam"](spiked, beta2)[0][1000:] < 0.5).sum() for beta2 in (0.95, 0.999)
    ]
    assert short[0] == pytest.approx(190, abs=5)
    assert short[1] > 5000
