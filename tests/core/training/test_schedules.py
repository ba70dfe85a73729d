import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import SGD

from course_utils.training.fit import fit
from course_utils.training.schedules import warmup_cosine


def read_rates(steps, lr=0.5, **options):
    optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=lr)
    schedule = warmup_cosine(optimizer, steps, **options)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


@pytest.mark.parametrize(("steps", "warmup", "low"), [(20, 5, 0.01), (12, 10, 0.1), (9, 1, 0.0)])
def test_each_step_has_the_rate_of_the_formula(steps, warmup, low):
    for step, rate in enumerate(read_rates(steps, warmup_steps=warmup, min_lr=low)):
        progress = (step - warmup) / (steps - warmup)
        falling = low + (0.5 - low) * (1 + math.cos(math.pi * progress)) / 2
        rising = 0.5 * (step + 1) / (warmup + 1)
        assert rate == pytest.approx(rising if step <= warmup else falling, abs=1e-9)


def test_null_without_warmup_it_is_pytorchs_cosine():
    optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for rate in read_rates(10):
        assert rate == optimizer.param_groups[0]["lr"]
        optimizer.step()
        cosine.step()


def test_every_group_keeps_its_proportion():
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": lr} for lr in (0.4, 0.1)]
    optimizer = SGD(groups)
    schedule = warmup_cosine(optimizer, 20, warmup_steps=4)
    for _ in range(19):
        first, second = (group["lr"] for group in optimizer.param_groups)
        assert first == pytest.approx(4 * second)
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (4, 3)])
def test_with_no_step_after_the_peak_it_ends_at_the_peak(steps, warmup):
    rates = read_rates(steps, warmup_steps=warmup, min_lr=0.01)
    assert rates == pytest.approx([0.5 * (step + 1) / (warmup + 1) for step in range(steps)])


@pytest.mark.parametrize(("steps", "warmup"), [(10, 10), (0, 0), (10, -1)])
def test_warmup_must_leave_a_step_at_the_peak(steps, warmup):
    with pytest.raises(ValueError, match=r"need 0 or more, and fewer than all"):
        read_rates(steps, warmup_steps=warmup)


@pytest.mark.parametrize("low", [0.2, -0.1])
def test_no_group_may_rise_to_the_minimum(low):
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": lr} for lr in (0.4, 0.1)]
    with pytest.raises(
        ValueError, match=r"is not between 0 and the optimizer's learning rate 0\.1"
    ):
        warmup_cosine(SGD(groups), 20, min_lr=low)


def test_it_fits_the_optimizer_seam_and_ends_near_the_minimum(tiny_config, tiny_data):
    rates = []

    def schedule(optimizer, total_steps):
        optimizer.register_step_pre_hook(
            lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"])
        )
        return warmup_cosine(optimizer, total_steps, warmup_steps=2, min_lr=0.01)

    fit(tiny_config, tiny_data, make_optimizer=partial(SGD, lr=0.1), make_schedule=schedule)
    assert len(rates) == 6  # 96 images in batches of 16
    assert max(rates) == rates[2] == pytest.approx(0.1)
    last = 0.01 + 0.09 * (1 + math.cos(math.pi * 3 / 4)) / 2  # step 5: 3 of 4 after the peak
    assert rates[-1] == pytest.approx(last)
