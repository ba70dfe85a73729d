"""Checks of the exercises of lesson 04."""

import copy
import math
from collections.abc import Callable, Iterator
from functools import partial
from numbers import Real

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LinearLR, LRScheduler
from torch.utils.data import DataLoader, TensorDataset

from course_utils.checking.checking import Faults, checks_exercise, diagnose, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import (
    flatten_parameters,
    train_copy,
    train_copy_without_zero_grad,
)
from course_utils.training.schedules import warmup_cosine

__all__ = [
    "check_flat_cosine",
    "check_linear_warmup",
    "check_measure_schedules",
    "check_train_with_schedule",
]

PEAK_LR = 0.2  # of the training with a schedule
PEAK_LRS = (0.3, 0.06)  # of the two groups that warm up
FORGOTTEN = "A step sees the gradients of all batches so far: call zero_grad before each backward."


@checks_exercise()
def check_measure_schedules(answer: Callable) -> None:
    """``answer(config, data) -> (one, other, low, high)``: two schedules over the same seeds."""
    judge_experiment(run_experiment(answer))


def _half_cosine(progress: float, peak_lr: float, min_lr: float) -> float:
    """From ``peak_lr`` at progress 0 to ``min_lr`` at progress 1."""
    return min_lr + (peak_lr - min_lr) * (1 + math.cos(math.pi * progress)) / 2


def _same_learning_rate(found: float, expected: float) -> bool:
    """Up to the rounding of 32-bit numbers, as tensors have them."""
    return math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-6)


def _flat_then_fall(
    step: int,
    peak_lr: float,
    min_lr: float,
    flat_steps: int,
    total_steps: int,
    first: Callable[[int], int] = lambda flat: flat,
    last: Callable[[int], int] = lambda total: total - 1,
    fall: Callable[[float, float, float], float] = _half_cosine,
) -> float:
    """The oracle, unless it falls between other steps or by another ``fall(progress, peak, low)``.

    The progress is 0 at the step ``first(flat_steps)`` and 1 at ``last(total_steps)``.
    """
    if step <= flat_steps:
        return peak_lr
    progress = (step - first(flat_steps)) / (last(total_steps) - first(flat_steps))
    return fall(progress, peak_lr, min_lr)


# fmt: off
FLAT_FAULTS: Faults = (
    ("The fall is planned for one step too many: how many steps forward is it from the end of the "
     "flat part to the last step?",
     partial(_flat_then_fall, last=lambda total: total)),
    ("The last step has the learning rate 0: min_lr is missing before the bracket.",
     partial(_flat_then_fall, fall=lambda progress, peak, low:
             _half_cosine(progress, peak - low, 0))),
    ("The last step has the learning rate 0: it ends at the minimum.",
     partial(_flat_then_fall, fall=lambda progress, peak, low: _half_cosine(progress, peak, 0))),
    ("The fall is a straight line: it should be half a cosine.",
     partial(_flat_then_fall, fall=lambda progress, peak, low: peak - (peak - low) * progress)),
    ("The fall is a quarter of a cosine: at the last step the angle is π, not π / 2.",
     partial(_flat_then_fall, fall=lambda progress, peak, low:
             low + (peak - low) * math.cos(math.pi / 2 * progress))),
    ("The learning rate jumps after the flat part: the progress counts from its end, not from "
     "step 0.",
     partial(_flat_then_fall, first=lambda flat: 0)),
    ("The flat part lasts one step too long: it ends with step flat_steps.",
     lambda step, peak, low, flat, total: _flat_then_fall(step, peak, low, flat + 1, total)),
    ("The learning rate jumps above the peak after the flat part: scale the cosine by peak − "
     "minimum.",
     partial(_flat_then_fall, fall=lambda progress, peak, low:
             low + _half_cosine(progress, peak, 0))),
    ("The fall goes towards 0 and is cut off at the minimum: it arrives there at the last step.",
     partial(_flat_then_fall, fall=lambda progress, peak, low:
             max(low, _half_cosine(progress, peak, 0)))),
    ("The cosine is turned round: it drops after the flat part and rises to the peak.",
     partial(_flat_then_fall, fall=lambda progress, peak, low: _half_cosine(progress, low, peak))),
    ("That is a whole cosine: the learning rate falls and rises again to the peak.",
     partial(_flat_then_fall, fall=lambda progress, peak, low:
             _half_cosine(2 * progress, peak, low))),
)
# fmt: on


@checks_exercise(faults=FLAT_FAULTS)
def check_flat_cosine(answer: Callable) -> None:
    """``answer(step, peak_lr, min_lr, flat_steps, total_steps) -> learning rate``."""
    for arguments in ((0.5, 0.02, 6, 20), (1.0, 0.0, 0, 9), (0.1, 0.05, 30, 100)):
        peak, _, flat, total = arguments
        found = [answer(step, *arguments) for step in range(total)]
        require(
            all(lr is not None for lr in found),
            "Return a number for every step: is there a return on every path?",
        )
        learning_rates = [float(lr) for lr in found]
        first = learning_rates[0]
        require(
            _same_learning_rate(first, peak),
            f"Step 0 has the peak {peak}, not {first:.3g}.",
        )
        require(
            _same_learning_rate(learning_rates[flat], peak),
            f"Step {flat}, the end of the flat part, still has the peak {peak}, not "
            f"{learning_rates[flat]:.3g}.",
        )
        _check_fall(learning_rates, arguments)


def _check_fall(learning_rates: list[float], arguments: tuple[float, float, int, int]) -> None:
    """Fail if a step has a wrong learning rate: with the fault, else with the first such step."""

    def run(other: Callable) -> list[float]:
        return [other(step, *arguments) for step in range(len(learning_rates))]

    right = run(_flat_then_fall)
    wrong = [
        step
        for step, (found, expected) in enumerate(zip(learning_rates, right, strict=True))
        if not _same_learning_rate(found, expected)
    ]
    if wrong:
        step = wrong[0]
        otherwise = (
            f"Step {step} of {arguments[-1]} has {learning_rates[step]:.4g}, and the flat part "
            f"with half a cosine after it {right[step]:.4g}."
        )
        diagnose(learning_rates, run, _flat_then_fall, FLAT_FAULTS, otherwise, tolerance=1e-6)
        fail(otherwise)


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


def _rise(
    optimizer: Optimizer,
    total_steps: int,
    warmup_steps: int,
    factor: Callable[[int, int], float] = lambda step, warmup: (step + 1) / (warmup + 1),
    highest: float = 1.0,
) -> LRScheduler:
    """The oracle, unless another ``factor(step, warmup_steps)`` rises to another highest one."""
    return LambdaLR(optimizer, lambda step: min(highest, factor(step, warmup_steps)))


def _square(optimizer: Optimizer, total_steps: int, warmup_steps: int) -> LRScheduler:
    """A learning rate where a factor belongs."""
    peak_lr = optimizer.param_groups[0]["lr"]
    return _rise(
        optimizer,
        total_steps,
        warmup_steps,
        lambda step, warmup: peak_lr * (step + 1) / (warmup + 1),
        highest=peak_lr,
    )


# fmt: off
WARMUP_FAULTS: Faults = (
    ("Step 0 has the learning rate 0: a step that is computed for nothing.",
     partial(_rise, factor=lambda step, warmup: step / max(1, warmup))),
    ("The full learning rate comes one step too early: step 0 has 1 / (warmup_steps + 1) of it.",
     partial(_rise, factor=lambda step, warmup: (step + 1) / max(1, warmup))),
    ("The schedule is one step ahead: is it stepped before the first step is taken?",
     partial(_rise, factor=lambda step, warmup: (step + 2) / (warmup + 1))),
    ("The full learning rate comes one step too late: it is reached at step warmup_steps.",
     partial(_rise, factor=lambda step, warmup: (1 + step * warmup / (warmup + 1)) / (warmup + 1))),
    ("Step 0 has a third of the learning rate, LinearLR's default: it has 1 / (warmup_steps + 1).",
     lambda optimizer, total, warmup: LinearLR(optimizer, total_iters=warmup)),
    ("After warm-up the learning rate stays where it is: here it goes on rising.",
     partial(_rise, highest=math.inf)),
    ("After warm-up the learning rate stays where it is: here it falls along a cosine.",
     warmup_cosine),
    ("The warm-up lasts for all steps: it ends at step warmup_steps.",
     lambda optimizer, total, warmup: LinearLR(optimizer, 1 / (warmup + 1), total_iters=total - 1)),
    ("The learning rate is multiplied by a learning rate: LambdaLR wants a factor, from 0 to 1.",
     _square),
)
# fmt: on


@checks_exercise(faults=WARMUP_FAULTS)
def check_linear_warmup(answer: Callable) -> None:
    """``answer(optimizer, total_steps, warmup_steps) -> scheduler``: a factor for every group."""
    for warmup in (4, 9, 0):
        try:
            found = _run_warmup(answer, warmup)
        except ZeroDivisionError:
            fail(f"With warmup_steps = {warmup} it divides by 0: then step 0 has the full value.")
        diagnose(
            found,
            lambda other: _run_warmup(other, warmup),  # noqa: B023
            _rise,
            WARMUP_FAULTS,
            _describe_warmup(found, warmup),
            tolerance=1e-6,
        )


def _run_warmup(answer: Callable, warmup: int, steps: int = 40) -> list[list[float]]:
    """The learning rate of each of the two groups in each step: (steps, 2)."""
    optimizer = SGD([{"params": [nn.Parameter(torch.zeros(1))], "lr": peak} for peak in PEAK_LRS])
    schedule = answer(optimizer, steps, warmup)
    require(hasattr(schedule, "step"), "Return a scheduler: it has no step().")
    return _read_learning_rates(optimizer, schedule, steps)


def _describe_warmup(learning_rates: list[list[float]], warmup: int) -> str:
    """The first step that is wrong; with lost proportions, that."""
    one_peak, other_peak = PEAK_LRS
    for step, (one, other) in enumerate(learning_rates):
        factor = min(1, (step + 1) / (warmup + 1))
        # Multiplied crosswise: the learning rates have the proportion of the peaks.
        if not math.isclose(one * other_peak, other * one_peak, rel_tol=1e-6):
            return "The groups have lost their proportion: scale every group's own learning rate."
        if math.isclose(one, one_peak * factor, rel_tol=1e-6):
            continue
        if step > warmup:
            return (
                f"After warm-up the learning rate stays at {one_peak}: step {step} has {one:.4g}."
            )
        return (
            f"With {warmup} warm-up steps, step {step} has {factor:.4g} of the full learning rate, "
            f"here it is {one / one_peak:.4g}."
        )
    return "The learning rates are not those of a linear warm-up."


@checks_exercise()
def check_train_with_schedule(answer: Callable) -> None:
    """``answer(model, dataset, loader, epochs, peak_lr) -> learning rates``, one per step."""
    for count, epochs in ((87, 5), (164, 4)):  # the last batch of an epoch is not full
        dataset = TensorDataset(torch.randn(count, 3, 2, 2), torch.arange(count) % 4)
        loader = DataLoader(dataset, batch_size=8, drop_last=True)
        model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4))
        start = copy.deepcopy(model)
        learning_rates = answer(model, dataset, loader, epochs, PEAK_LR)
        is_sequence = isinstance(learning_rates, list | tuple | np.ndarray | Tensor)
        require(is_sequence, "Return the list of learning rates.")
        total = epochs * len(loader)
        require(
            len(learning_rates) == total,
            f"{total} optimizer steps are taken, {len(learning_rates)} learning rates came back.",
        )
        kinds = {type(lr).__name__ for lr in learning_rates if not isinstance(lr, Real | Tensor)}
        require(not kinds, f"Return one number for each step, not a {', '.join(kinds)}.")
        learning_rates = [float(lr) for lr in learning_rates]
        weights = flatten_parameters(model)
        trained = not weights.equal(flatten_parameters(start))
        require(trained, "The model was not trained.")
        _check_learning_rates(learning_rates, epochs)
        batches = [*loader] * epochs

        def run(train: Callable) -> Tensor:
            """The weights (P,) that another training with these learning rates leads to."""
            return flatten_parameters(train(start, batches, learning_rates)[0])  # noqa: B023

        diagnose(
            weights,
            run,
            train_copy,
            [(FORGOTTEN, train_copy_without_zero_grad)],
            "The weights are not those of SGD on the cross-entropy of each batch, with each step "
            "taken at the learning rate that is returned for it.",
        )


def _plan(
    steps: int,
    planned: int,
    warmup: int | None = None,
    low: float = 0.0,
    place: Callable[[int], int] = lambda step: step,
) -> list[float]:
    """The learning rates of ``steps`` steps under a schedule that is planned for ``planned``.

    It warms up for a tenth of these, or for ``warmup`` steps. ``place(step)``: how often the
    schedule has been stepped before a step.
    """
    peak = planned // 10 if warmup is None else warmup
    falling = max(1, planned - peak)
    return [
        PEAK_LR * (at + 1) / (peak + 1)
        if at <= peak
        else _half_cosine((at - peak) / falling, PEAK_LR, low)
        for at in map(place, range(steps))
    ]


def _list_plans(steps: int, epochs: int, last: float) -> Iterator[tuple[str, list[float]]]:
    """Each fault of a plan, in a sentence, with the learning rates that it gives.

    ``last``: the learning rate of the last step.
    """
    an_epoch = steps // epochs
    plan = partial(_plan, steps, steps)
    yield (
        "The schedule is stepped only once an epoch: step it after every optimizer step.",
        plan(place=lambda step: step // an_epoch),
    )
    yield (
        "The schedule is stepped once more after each epoch: step it after every optimizer step, "
        "and nowhere else.",
        plan(place=lambda step: step + step // an_epoch),
    )
    yield (
        "The learning rates are one step ahead: note each one before the schedule's step.",
        plan(place=lambda step: step + 1),
    )
    share = plan()[-1] / PEAK_LR  # of the peak, which the last step has if the minimum is 0
    low = (last - share * PEAK_LR) / (1 - share)
    yield (
        f"The cosine ends at {low:.2g}: the minimum of the schedule should be 0.",
        plan(low=low),
    )
    for warmup in range(steps):
        yield (
            f"A tenth of {steps} steps is {steps // 10}, and the peak comes at step {warmup}.",
            plan(warmup=warmup),
        )
    for planned in range(2, 10 * steps):
        for warmup in {planned // 10, steps // 10, 10}:
            yield (
                f"The schedule is planned for {planned} steps, and {steps} are taken: how many "
                "batches does the loader yield in all epochs?",
                _plan(steps, planned, warmup),
            )


def _check_learning_rates(learning_rates: list[float], epochs: int) -> None:
    """A tenth of warm-up, then half a cosine towards 0, with one learning rate for each step."""
    steps = len(learning_rates)
    right = _plan(steps, steps)
    pairs = enumerate(zip(learning_rates, right, strict=True))
    wrong = [step for step, (lr, other) in pairs if not _same_learning_rate(lr, other)]
    if not wrong:
        return
    an_epoch = steps // epochs
    if all(lr == learning_rates[step - step % an_epoch] for step, lr in enumerate(learning_rates)):
        changes = "never changes" if len(set(learning_rates)) == 1 else "changes only once an epoch"
        otherwise = f"The learning rate {changes}: step the schedule after every optimizer step."
    else:
        otherwise = (
            f"Step {wrong[0]} of {steps} is taken at {learning_rates[wrong[0]]:.3g}; a warm-up of "
            f"{steps // 10} steps and half a cosine to 0 give {right[wrong[0]]:.3g}."
        )
    faults = _list_plans(steps, epochs, learning_rates[-1])
    diagnose(learning_rates, list, right, faults, otherwise, tolerance=1e-6, fault_tolerance=1e-8)
    fail(otherwise)
