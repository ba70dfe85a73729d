"""Paired comparison: checks of lesson 00's recipe cards, planted answers of its exercise."""

from unittest import mock

import lightning
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging

from course_utils.measure.paired import paired_difference

NOT_COMBINED = "a comparison of two trainings is not a part of one"


SEEDS = (3, 4, 5)


STEPS = 4  # of a training, whose images are compared


COLUMNS = (  # differences in points, one per verdict
    [2.0, 2.2, 1.9, 2.4],
    [-2.0, -2.2, -1.9, -2.4],
    [0.3, 0.4, 0.2, 0.3],
    [-4.0, 5.0, 0.5, 1.0],
    [5.0, -4.0],
)


def check_judgement(card):
    """The card's interval and verdict are those of `paired_difference`, for several margins."""
    verdicts = set()
    for differences in COLUMNS:
        expected = paired_difference(np.zeros(len(differences)), differences)
        for margin in (0.35, 1.0, 3.0):
            low, high, verdict = card["judge_differences"](differences, margin)
            assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-9)
            assert verdict == expected.verdict(margin=margin)
            verdicts.add(verdict)
        assert card["judge_differences"](differences)[2] == expected.verdict(margin=1)
    assert len(verdicts) == 4


def record_start(train, variant, seed):
    """The weights before the first step of a training, and the images of all its steps."""
    batches, weights = [], []

    def note(module, inputs):
        if torch.is_grad_enabled() and isinstance(module, torch.nn.Linear):
            weights.append(torch.cat([p.detach().flatten() for p in module.parameters()]))
            batches.append(inputs[0].clone())

    hook = torch.nn.modules.module.register_module_forward_pre_hook(note)
    try:
        train(seed, **variant)
    finally:
        hook.remove()
    return weights[0], torch.cat(batches[:STEPS])


def check_start(train, baseline, technique):
    """At one seed both variants start alike and see the same images; other seeds differ."""
    starts = [record_start(train, baseline, seed) for seed in SEEDS]
    for seed, (weights, images) in zip(SEEDS, starts, strict=True):
        torch.manual_seed(0)  # what was drawn before a training does not matter
        other_weights, other_images = record_start(train, technique, seed)
        torch.testing.assert_close(other_weights, weights, rtol=0, atol=0)
        torch.testing.assert_close(other_images, images, rtol=0, atol=0)
    assert not torch.equal(starts[0][0], starts[1][0])
    assert not torch.equal(starts[0][1], starts[1][1])


def check_scores(train, baseline, technique):
    """The same seed gives the same score, and the technique another one."""
    scores = [[train(seed, **variant) for seed in SEEDS] for variant in (baseline, technique)]
    assert [train(seed, **baseline) for seed in SEEDS] == scores[0]
    assert np.isfinite(scores).all()
    assert scores[0] != scores[1]


def check_pytorch_card(card):
    """Interval and verdict; the same start, also where the technique draws random numbers."""
    check_judgement(card)
    train = card["train_once"]
    check_start(train, {"lr": 0.1}, {"lr": 0.5})
    check_scores(train, {"lr": 0.01}, {"lr": 5.0})
    assert all(0 <= train(seed, lr=0.1) <= 100 for seed in SEEDS)
    make_optimizer = torch.optim.SGD

    def draw_and_make(*arguments):
        torch.rand(3)
        return make_optimizer(*arguments)

    def train_drawing(seed, **variant):
        with mock.patch("torch.optim.SGD", draw_and_make):
            return train(seed, **variant)

    plain, drawing = (record_start(f, {"lr": 0.1}, seed=1) for f in (train, train_drawing))
    torch.testing.assert_close(drawing, plain, rtol=0, atol=0)


def check_lightning_card(card):
    """The same for the Trainer's card; here a callback draws the random numbers."""
    check_judgement(card)
    train = card["train_once"]
    check_start(train, {}, {"gradient_clip_val": 0.1})
    check_start(train, {}, {"callbacks": [DrawNumbers()]})
    check_scores(train, {}, {"gradient_clip_val": 0.01})
    gains = [train(n, callbacks=EMAWeightAveraging(decay=0.95)) - train(n) for n in SEEDS]
    assert min(gains) > 0, "averaging helps where labels are wrong"


class DrawNumbers(lightning.Callback):
    def on_fit_start(self, trainer, pl_module):
        torch.rand(3)
