"""Checks of the exercises of lesson 04."""

import copy
import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, TensorDataset

from course_utils.exercises.checking import checks_exercise, fail, require
from course_utils.exercises.oracles import flatten_parameters, is_close, train_copy

__all__ = ["check_flat_cosine", "check_linear_warmup", "check_train_with_schedule"]

PEAK_LR = 0.2  # of the training with a schedule


def _half_cosine(progress: float, peak_lr: float, min_lr: float) -> float:
    """From ``peak_lr`` at progress 0 to ``min_lr`` at progress 1."""
    return min_lr + (peak_lr - min_lr) * (1 + math.cos(math.pi * progress)) / 2


def _same_rate(found: float, expected: float) -> bool:
    """Up to the rounding of 32-bit numbers, as tensors have them."""
    return math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-6)


@checks_exercise
def check_flat_cosine(answer: Callable) -> None:
    """``answer(step, peak_lr, min_lr, flat_steps, total_steps) -> rate``."""
    for peak, low, flat, total in ((0.5, 0.02, 6, 20), (1.0, 0.0, 0, 9), (0.1, 0.05, 30, 100)):
        rates = [answer(step, peak, low, flat, total) for step in range(total)]
        require(
            all(rate is not None for rate in rates),
            "Return a number for every step: is there a return on every path?",
        )
        rates = [float(rate) for rate in rates]
        require(_same_rate(rates[0], peak), f"Step 0 has the peak {peak}, not {rates[0]:.3g}.")
        require(
            _same_rate(rates[flat], peak),
            f"Step {flat}, the end of the flat part, still has the peak {peak}.",
        )
        require(
            not _same_rate(rates[-1], 0) or low == 0,
            f"The last step has the rate 0: it ends at the minimum, {low}.",
        )
        require(
            _same_rate(rates[-1], low),
            f"The last step, {total - 1}, has {rates[-1]:.4g}, not the minimum {low}: how many "
            "steps forward is it from the end of the flat part?",
        )
        for step in range(flat, total):
            # The last step is total − 1, and there the progress is 1.
            expected = _half_cosine((step - flat) / (total - 1 - flat), peak, low)
            require(
                _same_rate(rates[step], expected),
                f"The ends are right, but step {step} has {rates[step]:.4g} and half a cosine "
                f"{expected:.4g}.",
            )


def _read_rates(optimizer: Optimizer, schedule: LRScheduler, steps: int) -> list[list[float]]:
    """The learning rate of each group in each step: (steps, groups)."""
    rates = []
    for _ in range(steps):
        rates.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        schedule.step()
    return rates


@checks_exercise
def check_linear_warmup(answer: Callable) -> None:
    """``answer(optimizer, total_steps, warmup_steps) -> scheduler``: a factor for every group."""
    peaks = (0.3, 0.06)  # of two groups
    for warmup in (4, 9, 0):
        optimizer = SGD([{"params": [nn.Parameter(torch.zeros(1))], "lr": peak} for peak in peaks])
        schedule = answer(optimizer, 40, warmup)
        require(hasattr(schedule, "step"), "Return a scheduler: it has no step().")
        rates = _read_rates(optimizer, schedule, 40)
        require(rates[0][0] > 0, "Step 0 has the rate 0: a step that is computed for nothing.")
        for step, found in enumerate(rates):
            _check_warmup_step(step, warmup, found, peaks)


def _check_warmup_step(
    step: int, warmup: int, found: list[float], peaks: tuple[float, float]
) -> None:
    """``found``: the learning rate of each of the two groups."""
    factor = min(1, (step + 1) / (warmup + 1))
    for rate, peak in zip(found, peaks, strict=True):
        if math.isclose(rate, peak * factor, rel_tol=1e-6):
            continue
        # Multiplied crosswise: the rates are to each other as the peaks are.
        require(
            math.isclose(found[0] * peaks[1], found[1] * peaks[0], rel_tol=1e-6),
            "The groups have lost their proportion: scale every group's own rate.",
        )
        require(
            step <= warmup,
            f"After warm-up the rate stays at {peak}: step {step} has {rate:.4g}.",
        )
        fail(
            f"With {warmup} warm-up steps, step {step} has {factor:.4g} of the full rate, "
            f"here it is {rate / peak:.4g}.",
        )


@checks_exercise
def check_train_with_schedule(answer: Callable) -> None:
    """``answer(model, dataset, loader, epochs, peak_lr) -> rates``, one an optimizer step."""
    for count, epochs in ((87, 5), (164, 4)):  # the last batch of an epoch is not full
        dataset = TensorDataset(torch.randn(count, 3, 2, 2), torch.arange(count) % 4)
        loader = DataLoader(dataset, batch_size=8, drop_last=True)
        model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4))
        start = copy.deepcopy(model)
        rates = answer(model, dataset, loader, epochs, PEAK_LR)
        require(isinstance(rates, list), "Return the list of rates.")
        total = epochs * len(loader)
        require(
            len(rates) == total,
            f"{total} optimizer steps are taken, {len(rates)} rates came back.",
        )
        weights = flatten_parameters(model)
        trained = not weights.equal(flatten_parameters(start))
        require(trained, "The model was not trained.")
        _check_rates(rates, epochs)
        replayed, _ = train_copy(start, [*loader] * epochs, rates)
        require(
            is_close(weights, flatten_parameters(replayed), atol=1e-5),
            "The weights are not those of SGD on the cross-entropy of each batch, with gradients "
            "zeroed before it and each step taken at the rate that is returned for it.",
        )


def _check_rates(rates: list[float], epochs: int) -> None:
    """A tenth of warm-up, then half a cosine to 0; ``rates`` has one number for each step."""
    total = len(rates)
    warmup = total // 10
    changes = sum(one != other for one, other in pairwise(rates))
    require(
        changes > epochs,
        "The rate changes only once an epoch: step the schedule after every optimizer step.",
    )
    peak = rates.index(max(rates))
    require(
        peak == warmup,
        f"A tenth of {total} steps is {warmup}, and the peak comes at step {peak}.",
    )
    require(_same_rate(rates[peak], PEAK_LR), f"The peak is {rates[peak]:.3g}, not {PEAK_LR}.")
    require(
        _same_rate(rates[-1], 0),
        f"The last step is taken at {rates[-1]:.2g}, not 0: for how many steps was the "
        "schedule planned, and how many batches does the loader yield?",
    )
    falling_steps = total - warmup
    rising = [PEAK_LR * (step + 1) / (warmup + 1) for step in range(warmup)]
    falling = [
        _half_cosine(step / (falling_steps - 1), PEAK_LR, 0.0) for step in range(falling_steps)
    ]
    pairs = zip(rates, rising + falling, strict=True)
    close = all(_same_rate(found, expected) for found, expected in pairs)
    require(close, "Ends and peak are right, but a step between has another rate.")
