"""Warm-up and cosine: the learning rate of every optimizer step."""

import math
from functools import partial

import pytest

from course_utils.training.schedules import warmup_cosine
from tests.techniques.record import PEAK_LR

MIN_LR = 0.01
SEAM = {"make_schedule": partial(warmup_cosine, warmup_steps=1, min_lr=MIN_LR)}


def invariant(record):
    """The rates are those planned: half of the peak, the peak, a cosine to the minimum."""
    after = record.steps - 2
    cosine = [(1 + math.cos(math.pi * step / after)) / 2 for step in range(after + 1)]
    planned = [PEAK_LR / 2] + [MIN_LR + (PEAK_LR - MIN_LR) * c for c in cosine]
    assert record.learning_rates == pytest.approx(planned)


def end_at_zero(optimizer, total_steps):
    return warmup_cosine(optimizer, total_steps, warmup_steps=1)


def warm_up_off_by_one(optimizer, total_steps):
    planned = warmup_cosine(optimizer, total_steps, warmup_steps=1, min_lr=MIN_LR)
    planned.step()
    return planned


FAULTS = [("make_schedule", end_at_zero), ("make_schedule", warm_up_off_by_one)]
