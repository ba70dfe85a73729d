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


def _same_learning_rate(found: float, expected: float) -> bool:
    """Up to the rounding of 32-bit numbers, as tensors have them."""
    return math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-6)


@checks_exercise()
def check_flat_cosine(answer: Callable) -> None:
    """``answer(step, peak_lr, min_lr, flat_steps, total_steps) -> learning rate``."""
    for peak, low, flat, total in ((0.5, 0.02, 6, 20), (1.0, 0.0, 0, 9), (0.1, 0.05, 30, 100)):
        learning_rates = [answer(step, peak, low, flat, total) for step in range(total)]
        require(
            all(lr is not None for lr in learning_rates),
            "Return a number for every step: is there a return on every path?",
        )
        learning_rates = [float(lr) for lr in learning_rates]
        first = learning_rates[0]
        last = learning_rates[-1]
        require(
            _same_learning_rate(first, peak),
            f"Step 0 has the peak {peak}, not {first:.3g}.",
        )
        require(
            _same_learning_rate(learning_rates[flat], peak),
            f"Step {flat}, the end of the flat part, still has the peak {peak}.",
        )
        require(
            not _same_learning_rate(last, 0) or low == 0,
            f"The last step has the rate 0: it ends at the minimum, {low}.",
        )
        require(
            _same_learning_rate(last, low),
            f"The last step, {total - 1}, has {last:.4g}, not the minimum {low}: how many "
            "steps forward is it from the end of the flat part?",
        )
        for step in range(flat, total):
            found = learning_rates[step]
            # The last step is total − 1, and there the progress is 1.
            expected = _half_cosine((step - flat) / (total - 1 - flat), peak, low)
            require(
                _same_learning_rate(found, expected),
                f"The ends are right, but step {step} has {found:.4g} and half a cosine "
                f"{expected:.4g}.",
            )


def _read_learning_rates(
    optimizer: Optimizer, schedule: LRScheduler, steps: int
) -> list[list[float]]:
    """The learning rate of each group in each step: (steps, groups)."""
    learning_rates = []
    for _ in range(steps):
        learning_rates.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        schedule.step()
    return learning_rates


@checks_exercise()
def check_linear_warmup(answer: Callable) -> None:
    """``answer(optimizer, total_steps, warmup_steps) -> scheduler``: a factor for every group."""
    peaks = (0.3, 0.06)  # of two groups
    for warmup in (4, 9, 0):
        optimizer = SGD([{"params": [nn.Parameter(torch.zeros(1))], "lr": peak} for peak in peaks])
        schedule = answer(optimizer, 40, warmup)
        require(hasattr(schedule, "step"), "Return a scheduler: it has no step().")
        learning_rates = _read_learning_rates(optimizer, schedule, 40)
        require(
            learning_rates[0][0] > 0, "Step 0 has the rate 0: a step that is computed for nothing."
        )
        for step, found in enumerate(learning_rates):
            _check_warmup_step(step, warmup, found, peaks)


def _check_warmup_step(
    step: int, warmup: int, found: list[float], peaks: tuple[float, float]
) -> None:
    """``found``: the learning rate of each of the two groups."""
    factor = min(1, (step + 1) / (warmup + 1))
    for learning_rate, peak in zip(found, peaks, strict=True):
        if math.isclose(learning_rate, peak * factor, rel_tol=1e-6):
            continue
        # Multiplied crosswise: the learning rates have the proportion of the peaks.
        require(
            math.isclose(found[0] * peaks[1], found[1] * peaks[0], rel_tol=1e-6),
            "The groups have lost their proportion: scale every group's own rate.",
        )
        require(
            step <= warmup,
            f"After warm-up the rate stays at {peak}: step {step} has {learning_rate:.4g}.",
        )
        fail(
            f"With {warmup} warm-up steps, step {step} has {factor:.4g} of the full rate, "
            f"here it is {learning_rate / peak:.4g}.",
        )


@checks_exercise()
def check_train_with_schedule(answer: Callable) -> None:
    """``answer(model, dataset, loader, epochs, peak_lr) -> rates``, one an optimizer step."""
    for count, epochs in ((87, 5), (164, 4)):  # the last batch of an epoch is not full
        dataset = TensorDataset(torch.randn(count, 3, 2, 2), torch.arange(count) % 4)
        loader = DataLoader(dataset, batch_size=8, drop_last=True)
        model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4))
        start = copy.deepcopy(model)
        learning_rates = answer(model, dataset, loader, epochs, PEAK_LR)
        require(isinstance(learning_rates, list), "Return the list of rates.")
        total = epochs * len(loader)
        require(
            len(learning_rates) == total,
            f"{total} optimizer steps are taken, {len(learning_rates)} rates came back.",
        )
        weights = flatten_parameters(model)
        trained = not weights.equal(flatten_parameters(start))
        require(trained, "The model was not trained.")
        _check_learning_rates(learning_rates, epochs)
        replayed, _ = train_copy(start, [*loader] * epochs, learning_rates)
        require(
            is_close(weights, flatten_parameters(replayed), atol=1e-5),
            "The weights are not those of SGD on the cross-entropy of each batch, with gradients "
            "zeroed before it and each step taken at the rate that is returned for it.",
        )


def _check_learning_rates(learning_rates: list[float], epochs: int) -> None:
    """A tenth of warm-up, then half a cosine to 0, with one learning rate for each step."""
    total = len(learning_rates)
    warmup = total // 10
    changes = sum(one != other for one, other in pairwise(learning_rates))
    require(
        changes > epochs,
        "The rate changes only once an epoch: step the schedule after every optimizer step.",
    )
    peak = learning_rates.index(max(learning_rates))
    require(
        peak == warmup,
        f"A tenth of {total} steps is {warmup}, and the peak comes at step {peak}.",
    )
    require(
        _same_learning_rate(learning_rates[peak], PEAK_LR),
        f"The peak is {learning_rates[peak]:.3g}, not {PEAK_LR}.",
    )
    require(
        _same_learning_rate(learning_rates[-1], 0),
        f"The last step is taken at {learning_rates[-1]:.2g}, not 0: for how many steps was the "
        "schedule planned, and how many batches does the loader yield?",
    )
    # The peak is the first of the falling steps, and the last of them has 0.
    falling_steps = total - warmup
    rising = [PEAK_LR * (step + 1) / (warmup + 1) for step in range(warmup)]
    falling = [
        _half_cosine(step / (falling_steps - 1), PEAK_LR, 0.0) for step in range(falling_steps)
    ]
    pairs = zip(learning_rates, rising + falling, strict=True)
    close = all(_same_learning_rate(found, expected) for found, expected in pairs)
    require(close, "Ends and peak are right, but a step between has another rate.")
