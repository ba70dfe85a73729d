"""What lesson 08 says of its stored results, and that Lightning clips once per step."""

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader

from course_utils.measure.paired import paired_difference
from course_utils.results import STUDIES, read_file
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
