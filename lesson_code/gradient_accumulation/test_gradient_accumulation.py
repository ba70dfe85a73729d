"""What lesson 08 says of its study and of its map, and that Lightning clips once per step."""

import re

import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader

from course_tools.run.lessons import NOTEBOOKS
from course_utils.measure.paired import paired_difference
from course_utils.results import STUDIES, read_file
from course_utils.study_results import read_study
from course_utils.training import LitClassifier, quiet_trainer


@pytest.fixture(scope="module")
def trained():
    rows = pd.DataFrame(read_file(STUDIES / "gradient_accumulation/study_map.json")["rows"])
    rows["accuracy"] *= 100
    return rows


def means_of(trained, optimizer):
    """Mean accuracy for each number of accumulation steps and learning rate."""
    rows = trained[(trained["part"] == "map") & (trained["optimizer"] == optimizer)]
    return rows.groupby(["accumulated", "lr"])["accuracy"].mean()


def test_sgds_rule_holds_for_short_steps_only(trained):
    means = means_of(trained, "SGD")
    for lr in (0.003125, 0.00625):
        assert abs(means[1, lr] - means[16, 16 * lr]) < 1.5
    for lr in (0.025, 0.05, 0.1):
        assert means[1, lr] - means[16, 16 * lr] > 10
    assert means[1].max() - means[16].max() > 3


def test_adamws_curves_peak_at_the_same_place_and_height(trained):
    means = means_of(trained, "AdamW")
    peaks = {k: means[k].idxmax() / k**0.5 for k in (1, 4, 16)}
    assert list(peaks.values()) == pytest.approx([0.0004] * 3)
    heights = [means[k].max() for k in (1, 4, 16)]
    assert max(heights) - min(heights) < 1


def test_accumulation_does_not_gain_over_small_batches(trained):
    pairs = trained[trained["part"] == "pair"].sort_values("seed")
    found = {}
    for optimizer, rows in pairs.groupby("optimizer"):
        by_k = {k: np.array(of_k["accuracy"]) for k, of_k in rows.groupby("accumulated")}
        found[optimizer] = paired_difference(by_k[1], by_k[16])
    assert found["SGD"].high < 0
    assert found["AdamW"].mean < 1


def test_batch_norm_needs_more_than_two_images(trained):
    rows = trained[trained["part"] == "micro-batch"]
    means = rows.groupby(["batch_norm", "micro_batch"])["accuracy"].mean()["trained"]
    frozen = rows[rows["batch_norm"] == "frozen"]["accuracy"].mean()
    assert means[64] - means[2] > 5
    assert means[64] - means[[4, 8, 16]].min() < 2
    assert frozen < means[[4, 8, 16, 64]].min()


def test_lightning_clips_once_per_step():
    """Clipped after each micro-batch, the step would have another direction."""
    batches = [(torch.randn(4, 3), torch.randint(2, (4,))) for _ in range(3)]
    model = nn.Linear(3, 2)
    start = nn.utils.parameters_to_vector(model.parameters()).detach()
    losses = [F.cross_entropy(model(inputs), targets) for inputs, targets in batches]
    gradient = torch.autograd.grad(sum(losses), list(model.parameters()))
    gradient = nn.utils.parameters_to_vector(gradient)
    lit = LitClassifier(model, 2, make_optimizer=lambda named: SGD(model.parameters(), lr=1.0))
    options = {"accumulate_grad_batches": 3, "gradient_clip_val": 0.01}
    quiet_trainer(max_epochs=1, accelerator="cpu", **options).fit(
        lit, DataLoader(batches, batch_size=None)
    )
    moved = start - nn.utils.parameters_to_vector(model.parameters()).detach()
    assert moved.norm().item() == pytest.approx(0.01, rel=0.01)
    assert F.cosine_similarity(moved, gradient, dim=0) > 1 - 1e-5


# ---- The text of the lesson against the study that it reads.

BIG, ACCUMULATED, SMALL = "large batches", "accumulated", "small batches"
PHOTOGRAPHS, DEFINITIONS = "photographs", "definitions"


@pytest.fixture(scope="module")
def study():
    return read_study("gradient_accumulation")


@pytest.fixture(scope="module")
def text():
    """All prose of the lesson, without line breaks."""
    cells = nbformat.read(NOTEBOOKS / "08_gradient_accumulation.ipynb", 4).cells
    prose = " ".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return re.sub(r"\s+", " ", prose)


def show(value):
    """A signed number of points as the text has it, with a minus sign."""
    return f"{100 * value:+.1f}".replace("-", "−")


def gain(study, regime, treated, baseline):
    """How many points better, as the text has it."""
    found = study.difference(regime, treated, baseline)
    assert found.verdict(margin=study.margin) == "helps"
    return f"{100 * found.mean:.1f}"


def test_the_first_result_is_the_studys(study, text):
    by = [gain(study, regime, SMALL, BIG) for regime in (PHOTOGRAPHS, DEFINITIONS)]
    assert f"by {by[0]} points on photographs and by {by[1]} on definitions" in text
    found = study.difference(DEFINITIONS, ACCUMULATED, BIG)
    assert found.verdict(margin=study.margin) == "equivalent"
    assert "*equivalent* to the large batch on definitions" in text
    found = study.difference(PHOTOGRAPHS, ACCUMULATED, BIG)
    assert found.verdict(margin=study.margin) == "inconclusive"
    interval = f"the interval from {show(found.low)} to {show(found.high)} just leaves the band"
    assert f"it differs by {show(found.mean)} points, and {interval}" in text


def test_the_verdict_is_the_studys(study, text):
    found = study.difference(PHOTOGRAPHS, ACCUMULATED, BIG)
    edges = f"a loss of {-100 * found.low:.1f} points and a gain of {100 * found.high:.1f} possible"
    assert f"the ten seeds leave between {edges}" in text
    assert len(study.seeds) == 10
    by = {
        (regime, other): gain(study, regime, SMALL, other)
        for regime in (PHOTOGRAPHS, DEFINITIONS)
        for other in (BIG, ACCUMULATED)
    }
    first = f"{by[PHOTOGRAPHS, BIG]} points better than large ones"
    second = f"and {by[PHOTOGRAPHS, ACCUMULATED]} better than accumulated ones"
    last = f"and on definitions {by[DEFINITIONS, BIG]} and {by[DEFINITIONS, ACCUMULATED]}."
    assert f"On photographs small batches are {first} {second}, {last}" in text
    numbers = sorted(map(float, by.values()))
    assert f"small batches were {numbers[0]} to {numbers[-1]} points better" in text


def test_the_activations_are_those_of_a_micro_batch(study, text):
    stored = {(x.regime, x.variant): x.saved_bytes for x in study.trainings}
    of_photographs = [f"{stored[PHOTOGRAPHS, x] / 1e6:.0f} MB" for x in (ACCUMULATED, BIG)]
    assert f"it stores {of_photographs[0]} of activations in place of {of_photographs[1]}" in text
    assert stored[PHOTOGRAPHS, ACCUMULATED] == stored[PHOTOGRAPHS, SMALL]
    assert stored[PHOTOGRAPHS, BIG] == pytest.approx(8 * stored[PHOTOGRAPHS, SMALL], rel=0.01)


def test_where_the_best_learning_rates_lie(study):
    """Photographs: the highest for accumulation and small batches. All others: the middle."""
    for regime, best in study.best.items():
        for variant, trial in best.items():
            chosen = [x for x in study.trainings if (x.regime, x.variant) == (regime, variant)]
            tried = sorted({float(x.trial.split()[1]) for x in chosen})
            is_highest = regime == PHOTOGRAPHS and variant != BIG
            assert float(trial.split()[1]) == tried[2 if is_highest else 1]


def test_steps_of_the_study_and_what_is_left_of_old_statistics(study, text):
    config = study.regimes[PHOTOGRAPHS].config
    steps = config.num_train // 128 * config.epochs
    assert f"the large batches make {steps} updates" in text
    assert f"leave {100 * 0.9**steps:.1f} % of the old statistics" in text


def test_the_learning_rate_of_small_batches_is_wrong_for_accumulation(trained, text):
    means = means_of(trained, "AdamW")
    lost = means[16, 0.0016] - means[16, 0.0004]
    assert f"0.0004, costs {lost:.1f} points against the 0.0016 of the rule" in text
