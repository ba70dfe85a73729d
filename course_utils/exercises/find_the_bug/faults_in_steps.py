"""Checks of lesson 90, faults in the optimizer's steps: rates, windows, clipping."""

import copy
import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from course_utils.exercises.checking import checks_exercise, require
from course_utils.exercises.find_the_bug.replay import (
    Batches,
    draw_batches,
    flatten,
    is_close,
    make_network,
    read_losses,
    record_rates,
    replay,
)

__all__ = ["check_repair_scaler", "check_repair_schedule", "check_repair_window"]

LR = 0.3
TOGETHER = "Micro-batches go through the model together: what saves memory is one after the other."
NAN = "The weights are nan: scaler.step(optimizer) skips a gradient that is not finite."
# a sentence to the step it leads to: from gradient g, its clipping, the scale s, the limit m
CLIP_FAULTS = {
    "The gradient is cut to max_norm divided by the scale: bring both to one scale first.": (
        lambda g, clip, s, m: clip(g * s, m) / s
    ),
    "The gradient is not clipped.": lambda g, clip, s, m: g,
    "Each number of the gradient is limited: it is the length of all of it that is.": (
        lambda g, clip, s, m: g.clamp(-m, m)
    ),
    "A step has the length max_norm, and its gradient is shorter: cut only what is longer.": (
        lambda g, clip, s, m: g / g.norm() * m
    ),
}


def _plan_rates(total: int, peak: float) -> list[float]:
    warmup = total // 10
    rising = [peak * (step + 1) / (warmup + 1) for step in range(warmup)]
    span = total - 1 - warmup
    return rising + [peak * (1 + math.cos(math.pi * s / span)) / 2 for s in range(span + 1)]


def _explain_rates(rates: list[float], planned: list[float], epochs: int) -> None:
    """Fail, and say where the recorded rates leave the plan."""
    total = len(planned)
    require(rates, "The weights are not those of SGD at the planned rates.")
    require(len(rates) == total, f"{total} optimizer steps are due, {len(rates)} are taken.")
    changes = sum(one != other for one, other in pairwise(rates))
    require(
        changes > epochs,
        f"The rate changes {changes} times in {total} steps: the plan counts optimizer steps.",
    )
    for step, (rate, right) in enumerate(zip(rates, planned, strict=True)):
        same = math.isclose(rate, right, rel_tol=1e-5, abs_tol=1e-9)
        require(same, f"Step {step} of {total} is taken at {rate:.4g}, planned is {right:.4g}.")
    require(False, "The rates are as planned, the weights are not: is the gradient each batch's?")


@checks_exercise
@torch.random.fork_rng(devices=[])
@torch.enable_grad()
def check_repair_schedule(answer: Callable) -> None:
    """``answer(model, batches, epochs, peak_lr) -> losses``: warm-up and cosine over all steps."""
    torch.manual_seed(0)
    for count, epochs in ((11, 4), (7, 6), (2, 4)):
        model, batches = make_network(), draw_batches(*(8,) * count)
        planned = _plan_rates(epochs * count, 0.4)
        right, losses = replay(model, [[batch] for batch in batches] * epochs, planned)
        found, rates = record_rates(answer, model, list(batches), epochs, 0.4)
        if not is_close(flatten(model), right):
            _explain_rates(rates, planned, epochs)
        own = is_close(read_losses(found, epochs * count), losses)
        require(own, "The weights are right, but a loss is not that of its batch before the step.")


def _explain_window(found: Tensor, start: nn.Module, windows: list[Batches], size: int) -> None:
    """Fail in the words of the fault whose weights were found."""
    lengths = [len(window) for window in windows]
    last, added = [window[-1:] for window in windows], [LR * n for n in lengths]
    faults = {
        f"Gradients are added, not averaged: with {lengths[0]} micro-batches in a window the step "
        f"is {lengths[0]} times too long.": (windows, added),
        f"A last window of length {lengths[-1]} is divided as if it had {size}: count the "
        "micro-batches of each window.": (windows, [rate / size for rate in added]),
        "Only the last micro-batch of a window counts: zero_grad is called inside it.": (
            (last, [LR] * len(windows))
        ),
        "Of each window only the last micro-batch counts, and that is divided.": (
            (last, [LR / n for n in lengths])
        ),
        "The mean of a window is divided once more.": (windows, [LR / n for n in lengths]),
        "The last window, which is not full, takes no step.": (
            (windows[:-1], [LR] * (len(windows) - 1))
        ),
    }
    for sentence, (parts, rates) in faults.items():
        require(not is_close(found, replay(start, parts, rates)[0]), sentence)
    require(False, "The weights are not those of one SGD step on each window's mean loss.")


@checks_exercise
@torch.random.fork_rng(devices=[])
@torch.enable_grad()
def check_repair_window(answer: Callable) -> None:
    """``answer(model, batches, window, lr) -> losses``: one step on each window's mean loss."""
    torch.manual_seed(0)
    for count, size in ((6, 3), (7, 3), (5, 1), (3, 8)):
        model, batches, sizes = make_network(), draw_batches(*(4,) * count), []
        start = copy.deepcopy(model)
        windows = [batches[first : first + size] for first in range(0, count, size)]
        right, losses = replay(model, windows, [LR] * len(windows))
        model.register_forward_pre_hook(lambda _, args, s=sizes: s.append(len(args[0])))
        found, rates = record_rates(answer, model, list(batches), size, LR)
        require(max(sizes, default=4) == 4, TOGETHER)
        steps = f"{count} micro-batches in windows of {size} are {len(windows)} steps"
        require(len(rates) <= len(windows), f"{steps}, here {len(rates)} are taken.")
        if not is_close(flatten(model), right):
            _explain_window(flatten(model), start, windows, size)
        own = is_close(read_losses(found, count), losses)
        require(own, "The weights are right, but a loss is not the mean loss of its micro-batch.")


def _clip(vector: Tensor, limit: float) -> Tensor:
    return vector * (limit / vector.norm()).clamp(max=1)


def _replay_scaled(model: nn.Module, batches: Batches, scale: float, limit: float, change) -> tuple:
    """The oracle, no scaler involved: weights, losses, and the scale there should be at the end."""
    model, losses = copy.deepcopy(model), []
    parameters = list(model.parameters())
    for inputs, targets in batches:
        loss = F.cross_entropy(model(inputs), targets)
        losses.append(loss.item())
        gradient = parameters_to_vector(torch.autograd.grad(loss, parameters))
        if not (gradient * scale).isfinite().all():
            scale /= 2
            continue
        vector_to_parameters(
            flatten(model) - LR * change(gradient, _clip, scale, limit), parameters
        )
    return flatten(model), torch.tensor(losses, dtype=torch.float64), scale


@checks_exercise
@torch.random.fork_rng(devices=[])
@torch.enable_grad()
def check_repair_scaler(answer: Callable) -> None:
    """``answer(model, batches, scaler, max_norm, lr) -> losses``: clipped, and never nan."""
    torch.manual_seed(0)
    # where a batch makes the scaled gradient overflow, first scale, max_norm
    for places, scale, limit in (((), 8.0, 0.2), ((), 1024.0, 0.5), ((1, 3), 2.0**16, 0.2)):
        model, batches = make_network(), draw_batches(*(8,) * 6)
        batches = [(x * 1e305 if i in places else x, y) for i, (x, y) in enumerate(batches)]
        oracle = partial(_replay_scaled, copy.deepcopy(model), batches, scale, limit)
        right, losses, last_scale = oracle(lambda g, clip, s, m: clip(g, m))
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=100)
        found = answer(model, list(batches), scaler, limit, LR)
        weights = flatten(model)
        require(weights.isfinite().all(), NAN)
        if not is_close(weights, right):
            for sentence, change in CLIP_FAULTS.items():
                require(not is_close(weights, oracle(change)[0]), sentence)
            require(False, "The steps are not those of SGD on gradients clipped to max_norm.")
        require(is_close(read_losses(found, 6), losses), "A loss is not that of its batch.")
        if places:
            own = scaler.get_scale()
            late = f"After the overflows the scale is {own:g}, not {last_scale:g}: update() it."
            require(own == last_scale, late)
