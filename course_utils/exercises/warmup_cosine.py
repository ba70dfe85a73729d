"""Checks of the exercises of lesson 04."""

import copy
import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from course_utils.exercises.checking import checks_exercise, require

__all__ = ["check_flat_cosine", "check_linear_warmup", "check_train_with_schedule"]


def _half_cosine(progress: float, peak: float, low: float) -> float:
    return low + (peak - low) * (1 + math.cos(math.pi * progress)) / 2


def _close(found: float, expected: float) -> bool:
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
        require(_close(rates[0], peak), f"Step 0 has the peak {peak}, not {rates[0]:.3g}.")
        require(
            _close(rates[flat], peak),
            f"Step {flat}, the end of the flat part, still has the peak {peak}.",
        )
        require(
            not _close(rates[-1], 0) or low == 0,
            f"The last step has the rate 0: it ends at the minimum, {low}.",
        )
        require(
            _close(rates[-1], low),
            f"The last step, {total - 1}, has {rates[-1]:.4g}, not the minimum {low}: how many "
            "steps forward is it from the end of the flat part?",
        )
        for step in range(flat, total):
            expected = _half_cosine((step - flat) / (total - 1 - flat), peak, low)
            require(
                _close(rates[step], expected),
                f"The ends are right, but step {step} has {rates[step]:.4g} and half a cosine "
                f"{expected:.4g}.",
            )


def _read_rates(optimizer: torch.optim.Optimizer, schedule, steps: int) -> list[list[float]]:
    rates = []
    for _ in range(steps):
        rates.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        schedule.step()
    return rates


@checks_exercise
def check_linear_warmup(answer: Callable) -> None:
    """``answer(optimizer, total_steps, warmup_steps) -> scheduler``: a factor for every group."""
    for warmup in (4, 9, 0):
        own = (0.3, 0.06)
        groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": lr} for lr in own]
        optimizer = SGD(groups)
        schedule = answer(optimizer, 40, warmup)
        require(hasattr(schedule, "step"), "Return a scheduler: it has no step().")
        rates = _read_rates(optimizer, schedule, 40)
        require(rates[0][0] > 0, "Step 0 has the rate 0: a step that is computed for nothing.")
        for step, found in enumerate(rates):
            factor = min(1, (step + 1) / (warmup + 1))
            for rate, lr in zip(found, own, strict=True):
                if math.isclose(rate, lr * factor, rel_tol=1e-6):
                    continue
                require(
                    math.isclose(found[0] * own[1], found[1] * own[0], rel_tol=1e-6),
                    "The groups have lost their proportion: scale every group's own rate.",
                )
                require(
                    step <= warmup,
                    f"After warm-up the rate stays at {lr}: step {step} has {rate:.4g}.",
                )
                require(
                    False,
                    f"With {warmup} warm-up steps, step {step} has {factor:.4g} of the full rate, "
                    f"here it is {rate / lr:.4g}.",
                )


def _replay(model: nn.Module, batches: list, rates: list[float]) -> nn.Module:
    """``model``, in place, after an SGD step on each batch at its rate."""
    optimizer = SGD(model.parameters())
    for (images, targets), rate in zip(batches, rates, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), targets).backward()
        optimizer.step()
    return model


@checks_exercise
def check_train_with_schedule(answer: Callable) -> None:
    """``answer(model, dataset, loader, epochs, peak_lr) -> rates``, one an optimizer step."""
    for count, epochs in ((87, 5), (164, 4)):
        images, targets = torch.randn(count, 3, 2, 2), torch.arange(count) % 4
        dataset = TensorDataset(images, targets)
        loader = DataLoader(dataset, batch_size=8, drop_last=True)
        model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4))
        before = copy.deepcopy(model)
        rates = answer(model, dataset, loader, epochs, 0.2)
        require(isinstance(rates, list), "Return the list of rates.")
        total = epochs * len(loader)
        require(
            len(rates) == total,
            f"{total} optimizer steps are taken, {len(rates)} rates came back.",
        )
        trained = not torch.equal(model[1].weight, before[1].weight)
        require(trained, "The model was not trained.")
        warmup = total // 10
        runs = sum(one != other for one, other in pairwise(rates))
        require(
            runs > epochs,
            "The rate changes only once an epoch: step the schedule after every optimizer step.",
        )
        peak = rates.index(max(rates))
        require(
            peak == warmup,
            f"A tenth of {total} steps is {warmup}, and the peak comes at step {peak}.",
        )
        require(_close(rates[peak], 0.2), f"The peak is {rates[peak]:.3g}, not 0.2.")
        require(
            _close(rates[-1], 0),
            f"The last step is taken at {rates[-1]:.2g}, not 0: for how many steps was the "
            "schedule planned, and how many batches does the loader yield?",
        )
        expected = [0.2 * (step + 1) / (warmup + 1) for step in range(warmup)] + [
            _half_cosine(step / (total - 1 - warmup), 0.2, 0.0) for step in range(total - warmup)
        ]
        close = all(_close(a, b) for a, b in zip(rates, expected, strict=True))
        require(close, "Ends and peak are right, but a step between has another rate.")
        replayed = _replay(before, [*loader] * epochs, rates)
        require(
            torch.allclose(model[1].weight, replayed[1].weight, atol=1e-5),
            "The weights are not those of SGD on the cross-entropy of each batch, with gradients "
            "zeroed before it and each step taken at the rate that is returned for it.",
        )
