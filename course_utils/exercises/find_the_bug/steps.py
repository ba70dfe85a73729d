"""Checks of lesson 90, faults in the optimizer's steps: rates, accumulation, clipping."""

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from course_utils.exercises.checking import Faults, checks_exercise, diagnose, fail, require
from course_utils.exercises.find_the_bug.replay import (
    draw_batches,
    make_network,
    read_losses,
    record_learning_rates,
)
from course_utils.exercises.oracles import (
    Batches,
    clip_norm,
    flatten_parameters,
    is_close,
    train_copy,
)

__all__ = ["check_repair_scaler", "check_repair_schedule", "check_repair_window"]

LR = 0.3
PEAK_LR = 0.4
TOGETHER = "Micro-batches go through the model together: what saves memory is one after the other."
OTHER_ACCUMULATED_STEPS = "The weights are not those of one SGD step on each window's mean loss."
OTHER_LOSS = "The weights are right, but a loss is not that of its batch before the step."
OTHER_MICRO_LOSS = "The weights are right, but a loss is not the mean loss of its micro-batch."
NAN = "The weights are nan: scaler.step(optimizer) skips a gradient that is not finite."
OTHER_CLIPPED_STEPS = "The steps are not those of SGD on gradients clipped to max_norm."


def _plan_learning_rates(total: int, peak: float) -> list[float]:
    """Of each of ``total`` steps: a tenth of warm-up, then half a cosine down to 0."""
    warmup = total // 10
    rising = [peak * (step + 1) / (warmup + 1) for step in range(warmup)]
    last = total - 1 - warmup  # steps from the peak to the end
    falling = [peak * (1 + math.cos(math.pi * step / last)) / 2 for step in range(last + 1)]
    return rising + falling


def _explain_learning_rates(found: list[float], planned: list[float], epochs: int) -> None:
    """Fail, and say where the recorded learning rates leave the plan."""
    total = len(planned)
    require(found, "The weights are not those of SGD at the planned rates.")
    require(len(found) == total, f"{total} optimizer steps are due, {len(found)} are taken.")
    changes = sum(one != other for one, other in pairwise(found))
    require(
        changes > epochs,
        f"The rate changes {changes} times in {total} steps: the plan counts optimizer steps.",
    )
    for step, (learning_rate, right) in enumerate(zip(found, planned, strict=True)):
        same = math.isclose(learning_rate, right, rel_tol=1e-5, abs_tol=1e-9)
        require(
            same, f"Step {step} of {total} is taken at {learning_rate:.4g}, planned is {right:.4g}."
        )
    fail("The rates are as planned, the weights are not: is the gradient each batch's?")


@checks_exercise()
@torch.random.fork_rng(devices=[])
@torch.enable_grad()
def check_repair_schedule(answer: Callable) -> None:
    """``answer(model, batches, epochs, peak_lr) -> losses``: warm-up and cosine over all steps."""
    torch.manual_seed(0)
    for count, epochs in ((11, 4), (7, 6), (2, 4)):
        model = make_network()
        batches = draw_batches(*(8,) * count)
        total = epochs * count
        planned = _plan_learning_rates(total, PEAK_LR)
        right, losses = train_copy(model, batches * epochs, planned)
        found, learning_rates = record_learning_rates(answer, model, list(batches), epochs, PEAK_LR)
        # The weights decide. The recorded learning rates only help to say what is wrong.
        if not is_close(flatten_parameters(model), flatten_parameters(right)):
            _explain_learning_rates(learning_rates, planned, epochs)
        require(is_close(read_losses(found, total), losses), OTHER_LOSS)


def _accumulate(
    model: nn.Module,
    batches: Batches,
    window: int,
    lr: float,
    join: Callable[[Tensor, int], Tensor] = lambda gradients, window: gradients.mean(dim=0),
) -> list[float]:
    """The oracle, unless the step is another than the mean of the ``gradients``.

    ``join(gradients, window)``: (micro-batches, P) of a window, which may be shorter, -> (P,).
    """
    losses = []
    for start in range(0, len(batches), window):
        gradients = []
        for points, targets in batches[start : start + window]:
            loss = F.cross_entropy(model(points), targets)
            gradient = torch.autograd.grad(loss, list(model.parameters()))
            gradients.append(parameters_to_vector(gradient))
            losses.append(loss.item())
        step = join(torch.stack(gradients), window)
        vector_to_parameters(flatten_parameters(model) - lr * step, model.parameters())
    return losses


# fmt: off
WINDOW_FAULTS: Faults = (
    ("Gradients are added, not averaged: the step is as many times too long as its window has "
     "micro-batches.",
     partial(_accumulate, join=lambda gradients, window: gradients.sum(dim=0))),
    ("The last window is divided as if it were full: count the micro-batches of each window.",
     partial(_accumulate, join=lambda gradients, window: gradients.sum(dim=0) / window)),
    ("Only the last micro-batch of a window counts: zero_grad is called inside it.",
     partial(_accumulate, join=lambda gradients, window: gradients[-1])),
    ("Of each window only the last micro-batch counts, and that is divided.",
     partial(_accumulate, join=lambda gradients, window: gradients[-1] / len(gradients))),
    ("The mean of a window is divided once more.",
     partial(_accumulate, join=lambda gradients, window: gradients.mean(dim=0) / len(gradients))),
    ("The last window, which is not full, takes no step.",
     partial(_accumulate, join=lambda gradients, window:
             gradients.mean(dim=0) * (len(gradients) == window))),
)
# fmt: on


@checks_exercise(faults=WINDOW_FAULTS)
@torch.random.fork_rng(devices=[])
@torch.enable_grad()
def check_repair_window(answer: Callable) -> None:
    """``answer(model, batches, window, lr) -> losses``: a step takes ``window`` micro-batches."""
    torch.manual_seed(0)
    for count, size in ((6, 3), (7, 3), (5, 1), (3, 8)):
        _check_accumulation(answer, count, size)


def _check_accumulation(answer: Callable, count: int, size: int) -> None:
    """``count`` micro-batches, ``size`` accumulation steps; a last step may have fewer."""
    micro_batch_size = 4
    model = make_network()
    start = copy.deepcopy(model)
    micro_batches = draw_batches(*(micro_batch_size,) * count)

    def run(other: Callable) -> tuple[Tensor, list[float]]:
        trained = copy.deepcopy(start)
        losses = other(trained, micro_batches, size, LR)
        return flatten_parameters(trained), losses

    sizes: list[int] = []  # points in each forward pass
    model.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    found, learning_rates = record_learning_rates(answer, model, list(micro_batches), size, LR)
    require(max(sizes, default=micro_batch_size) == micro_batch_size, TOGETHER)
    windows = f"{count} micro-batches in windows of {size}"
    due = math.ceil(count / size)
    taken = len(learning_rates)
    require(taken <= due, f"{windows} are {due} steps, here {taken} are taken.")
    diagnose(
        flatten_parameters(model),
        lambda other: run(other)[0],
        _accumulate,
        WINDOW_FAULTS,
        OTHER_ACCUMULATED_STEPS,
        case=f"{windows}:",
    )
    _, losses = run(_accumulate)
    right = is_close(read_losses(found, count), read_losses(losses, count))
    require(right, OTHER_MICRO_LOSS)


class ScaledTraining(NamedTuple):
    """What a training with a gradient scaler leads to."""

    weights: Tensor  # (P,)
    losses: Tensor  # (batches,), each before its step
    scale: float  # after the last batch


# ``clip(gradient, max_norm, scale)`` is what a step subtracts, times the learning rate; the
# gradient (P,) is not scaled.
Clip = Callable[[Tensor, float, float], Tensor]


def _clip(gradient: Tensor, max_norm: float, scale: float) -> Tensor:
    """The right one: the scale makes no difference."""
    return clip_norm(gradient, max_norm)


def _train_copy_scaled(
    model: nn.Module, batches: Batches, max_norm: float, scale: float, clip: Clip = _clip
) -> ScaledTraining:
    """Train a copy as `torch.amp.GradScaler` would make it, with no scaler involved.

    ``scale`` is halved when the scaled gradient overflows, and this batch takes no step.
    """
    model = copy.deepcopy(model)
    parameters = list(model.parameters())
    losses: list[float] = []
    for inputs, targets in batches:
        loss = F.cross_entropy(model(inputs), targets)
        losses.append(loss.item())
        gradient = parameters_to_vector(torch.autograd.grad(loss, parameters))  # (P,)
        if not (gradient * scale).isfinite().all():
            scale /= 2
            continue
        weights = flatten_parameters(model) - LR * clip(gradient, max_norm, scale)
        vector_to_parameters(weights, parameters)
    losses_tensor = torch.tensor(losses, dtype=torch.float64)
    return ScaledTraining(flatten_parameters(model), losses_tensor, scale)


# What a wrong answer makes of the gradient, and why.
# fmt: off
CLIP_FAULTS: Sequence[tuple[str, Clip]] = (
    ("The gradient is cut to max_norm divided by the scale: bring both to one scale first.",
     lambda gradient, max_norm, scale: clip_norm(gradient * scale, max_norm) / scale),
    ("The gradient is not clipped.",
     lambda gradient, max_norm, scale: gradient),
    ("Each number of the gradient is limited: it is the length of all of it that is.",
     lambda gradient, max_norm, scale: gradient.clamp(-max_norm, max_norm)),
    ("A step has the length max_norm, and its gradient is shorter: cut only what is longer.",
     lambda gradient, max_norm, scale: gradient / gradient.norm() * max_norm),
)
# fmt: on


def _train_scaled(
    model: nn.Module,
    batches: Batches,
    scaler: torch.amp.GradScaler,
    max_norm: float,
    lr: float,
    clip: Clip,
) -> list[float]:
    """An answer that is wrong only in ``clip``."""
    found = _train_copy_scaled(model, batches, max_norm, scaler.get_scale(), clip)
    vector_to_parameters(found.weights, model.parameters())
    return found.losses.tolist()


@checks_exercise(faults=[(why, partial(_train_scaled, clip=clip)) for why, clip in CLIP_FAULTS])
@torch.random.fork_rng(devices=[])
@torch.enable_grad()
def check_repair_scaler(answer: Callable) -> None:
    """``answer(model, batches, scaler, max_norm, lr) -> losses``: clipped, and never nan."""
    torch.manual_seed(0)
    # which batches make the scaled gradient overflow, first scale, max_norm
    for places, scale, max_norm in (((), 8.0, 0.2), ((), 1024.0, 0.5), ((1, 3), 2.0**16, 0.2)):
        model = make_network()
        batches = draw_batches(*(8,) * 6)
        for place in places:
            inputs, targets = batches[place]
            # The loss stays finite: only the gradient times the scale overflows.
            batches[place] = (inputs * 1e305, targets)
        train = partial(_train_copy_scaled, copy.deepcopy(model), batches, max_norm, scale)
        right = train()
        # after fewer batches than these the scale never grows
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=100)
        found = answer(model, list(batches), scaler, max_norm, LR)
        weights = flatten_parameters(model)
        require(weights.isfinite().all(), NAN)
        diagnose(
            weights,
            lambda clip: train(clip=clip).weights,  # noqa: B023
            _clip,
            CLIP_FAULTS,
            OTHER_CLIPPED_STEPS,
        )
        own_losses = read_losses(found, len(batches))
        require(is_close(own_losses, right.losses), "A loss is not that of its batch.")
        if places:
            own_scale = scaler.get_scale()
            late = f"After the overflows the scale is {own_scale:g}, not {right.scale:g}"
            require(own_scale == right.scale, f"{late}: update() it.")
