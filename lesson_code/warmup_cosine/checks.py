"""Checks of the exercises of lesson 04."""

import math
from collections.abc import Callable, Iterator
from numbers import Real

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from course_utils.checking.checking import checks_exercise, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import flatten_parameters
from course_utils.checking.outputs import Output

__all__ = [
    "check_flat_cosine",
    "check_linear_warmup",
    "check_measure_schedules",
    "check_train_with_schedule",
]

PEAK_LR = 0.2  # of the training with a schedule
PEAK_LRS = (0.3, 0.06)  # of the two groups that warm up


@checks_exercise()
def check_measure_schedules(answer: Callable) -> None:
    """``answer(config, data) -> (one, other, low, high)``: two schedules over the same seeds."""
    judge_experiment(run_experiment(answer))


@checks_exercise()
def check_flat_cosine(answer: Callable) -> Iterator[Output]:
    """``answer(step, peak_lr, min_lr, flat_steps, total_steps) -> learning rate``."""
    for arguments in ((0.5, 0.02, 6, 20), (1.0, 0.0, 0, 9), (0.1, 0.05, 30, 100)):
        peak, low, flat, total = arguments
        found = [answer(step, *arguments) for step in range(total)]
        returned = all(lr is not None for lr in found)
        require(returned, "Return a number for every step: is there a return on every path?")
        rates = [float(lr) for lr in found]
        for step, place in ((0, "Step 0"), (flat, f"Step {flat}, the end of the flat part, still")):
            is_peak = math.isclose(rates[step], peak, rel_tol=1e-6)
            require(is_peak, f"{place} has the peak {peak}, not {rates[step]:.3g}.")
        yield Output(
            rates,
            f"Step {flat + 1} of {total} has {rates[flat + 1]:.4g}, the last one {rates[-1]:.4g}, "
            f"and the flat part is followed by half a cosine from {peak} to {low}, flat at both "
            "ends.",
            tolerance=1e-6,
        )


@checks_exercise()
def check_linear_warmup(answer: Callable) -> Iterator[Output]:
    """``answer(optimizer, total_steps, warmup_steps) -> scheduler``: a factor for every group."""
    for warmup in (4, 9, 0):
        parts = [{"params": [nn.Parameter(torch.zeros(1))], "lr": peak} for peak in PEAK_LRS]
        optimizer = SGD(parts)
        try:
            schedule = answer(optimizer, 40, warmup)
        except ZeroDivisionError:
            fail(f"With warmup_steps = {warmup} it divides by 0: then step 0 has the full value.")
        require(hasattr(schedule, "step"), "Return a scheduler: it has no step().")
        for step in range(40):
            one, other = (group["lr"] for group in optimizer.param_groups)
            # Multiplied crosswise: the learning rates have the proportion of the peaks.
            require(
                math.isclose(one * PEAK_LRS[1], other * PEAK_LRS[0], rel_tol=1e-6),
                "The groups have lost their proportion: scale every group's own learning rate.",
            )
            otherwise = (
                f"With {warmup} warm-up steps, step {step} has {{right}} of the full learning "
                f"rate, here it is {one / PEAK_LRS[0]:.4g}."
            )
            if step > warmup:
                otherwise = (
                    f"After warm-up the learning rate stays at {PEAK_LRS[0]}: step {step} has "
                    f"{one:.4g}."
                )
            yield Output(one / PEAK_LRS[0], otherwise, tolerance=1e-6)
            optimizer.step()
            schedule.step()


@checks_exercise()
def check_train_with_schedule(answer: Callable) -> Iterator[Output]:
    """``answer(model, dataset, loader, epochs, peak_lr) -> learning rates``, one per step."""
    for count, epochs in ((87, 5), (164, 4)):  # the last batch of an epoch is not full
        torch.manual_seed(0)  # the loader draws too, each time that it is gone through
        dataset = TensorDataset(torch.randn(count, 3, 2, 2), torch.arange(count) % 4)
        loader = DataLoader(dataset, batch_size=8, drop_last=True)
        model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4))
        start = flatten_parameters(model)
        found = answer(model, dataset, loader, epochs, PEAK_LR)
        is_sequence = isinstance(found, list | tuple | np.ndarray | Tensor)
        require(is_sequence, "Return the list of learning rates.")
        total = epochs * len(loader)
        require(
            len(found) == total,
            f"{total} optimizer steps are taken, {len(found)} learning rates came back.",
        )
        kinds = {type(lr).__name__ for lr in found if not isinstance(lr, Real | Tensor)}
        require(not kinds, f"Return one number for each step, not a {', '.join(kinds)}.")
        learning_rates = [float(lr) for lr in found]
        weights = flatten_parameters(model)
        require(not weights.equal(start), "The model was not trained.")
        yield Output(learning_rates, _describe_plan(learning_rates, epochs), tolerance=1e-6)
        yield Output(
            weights,
            "The weights are not those of SGD on the cross-entropy of each batch, with each step "
            "taken at the learning rate that is returned for it.",
        )


def _describe_plan(rates: list[float], epochs: int) -> str:
    """What can be said of learning rates that are no tenth of warm-up and half a cosine to 0."""
    steps = len(rates)
    if all(lr == rates[step - step % (steps // epochs)] for step, lr in enumerate(rates)):
        changes = "never changes" if len(set(rates)) == 1 else "changes only once an epoch"
        return f"The learning rate {changes}: step the schedule after every optimizer step."
    warmup, peak = steps // 10, rates.index(max(rates))
    if peak != warmup:
        return f"A tenth of {steps} steps is {warmup}, and the peak comes at step {peak}."
    return (
        f"Step 0 of {steps} is taken at {rates[0]:.3g} and the last one at {rates[-1]:.3g}: a "
        f"warm-up of {warmup} steps begins with {PEAK_LR / (warmup + 1):.3g}, and half a cosine "
        "falls from the peak to 0, one step after the last."
    )
