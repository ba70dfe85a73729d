"""Warm-up and cosine: the learning rate of every optimizer step."""

import math
from functools import partial

import lightning as L
import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from course_utils.training import quiet_trainer
from course_utils.training.schedules import warmup_cosine
from tests.combinations.record import PEAK_LR

MIN_LR = 0.01


SEAM = {"make_schedule": partial(warmup_cosine, warmup_steps=1, min_lr=MIN_LR)}


def invariant(record):
    """The rates are those planned: half of the peak, the peak, a cosine towards the minimum."""
    after = record.steps - 1
    cosine = [(1 + math.cos(math.pi * step / after)) / 2 for step in range(after)]
    planned = [PEAK_LR / 2] + [MIN_LR + (PEAK_LR - MIN_LR) * c for c in cosine]
    assert record.learning_rates == pytest.approx(planned)


def end_at_zero(optimizer, total_steps):
    return warmup_cosine(optimizer, total_steps, warmup_steps=1)


def warm_up_off_by_one(optimizer, total_steps):
    planned = warmup_cosine(optimizer, total_steps, warmup_steps=1, min_lr=MIN_LR)
    planned.step()
    return planned


FAULTS = [("make_schedule", end_at_zero), ("make_schedule", warm_up_off_by_one)]


class Recorder(L.Callback):
    """The learning rate of every optimizer step."""

    def __init__(self):
        self.learning_rates = []

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.learning_rates.append(optimizer.param_groups[0]["lr"])


def read_plan(make_schedule, steps, peak_lr):
    """The learning rates of ``steps`` steps, read from an optimizer."""
    optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=peak_lr)
    schedule = make_schedule(optimizer, steps)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


def check_pytorch_card(card):
    """Its schedule is the course's; the last step is small and not zero."""
    for total, warmup in ((111, 10), (42, 7), (12, 1), (9, 7)):
        by_card = partial(card["warmup_then_cosine"], warmup_steps=warmup)
        by_course = partial(warmup_cosine, warmup_steps=warmup)
        expected = read_plan(by_course, total, peak_lr=0.3)
        assert read_plan(by_card, total, peak_lr=0.3) == pytest.approx(expected, abs=1e-9)
    expected = read_plan(partial(warmup_cosine, warmup_steps=5), 20, peak_lr=1e-3)
    assert 0 < card["history"][-1] < 0.05 * 1e-3
    assert card["history"] == pytest.approx(expected, abs=1e-9)


class Stream(IterableDataset):
    """Images and targets without a length."""

    def __iter__(self):
        for _ in range(8):
            yield torch.zeros(3), torch.tensor(0)


def check_lightning_card(card):
    """Every step is taken at the course's learning rate; a loader without a length is refused."""
    batches = TensorDataset(torch.randn(48, 3), torch.randint(2, (48,)))
    for accumulated, steps in ((1, 36), (2, 18)):
        recorder = Recorder()
        module = card["WarmupCosine"](nn.Linear(3, 2), lr=0.3, warmup_share=0.25)
        trainer = quiet_trainer(
            max_epochs=3,
            accelerator="cpu",
            accumulate_grad_batches=accumulated,
            callbacks=recorder,
        )
        trainer.fit(module, DataLoader(batches, 4))
        warmed_up = partial(warmup_cosine, warmup_steps=steps // 4)
        expected = read_plan(warmed_up, steps, 0.3)
        assert recorder.learning_rates == pytest.approx(expected, abs=1e-9)
    stream = DataLoader(Stream(), 4)
    with pytest.raises(ValueError, match="give it max_steps"):
        quiet_trainer(max_epochs=1, accelerator="cpu").fit(
            card["WarmupCosine"](nn.Linear(3, 2)), stream
        )
    with pytest.raises(ValueError, match="give it max_steps"):
        quiet_trainer(max_epochs=-1, max_time="00:00:00:05", accelerator="cpu").fit(
            card["WarmupCosine"](nn.Linear(3, 2)), DataLoader(batches, 4)
        )
    (group,) = card["trainer"].optimizers[0].param_groups
    assert group["initial_lr"] == 1e-3
    assert group["lr"] < 1e-5  # the schedule is stepped once more after the last step
