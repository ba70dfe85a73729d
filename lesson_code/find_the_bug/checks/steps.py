"""Checks of lesson 90, faults in the optimizer's steps: learning rates and accumulation."""

import copy
import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from weakref import WeakSet

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from course_utils.checking.checking import Faults, checks_exercise, diagnose, fail, require
from course_utils.checking.oracles import Batches, flatten_parameters, is_close, train_copy
from lesson_code.find_the_bug.checks.replay import (
    draw_batches,
    make_network,
    read_losses,
    record_learning_rates,
    require_losses,
    train_copy_without_zero_grad,
)

__all__ = ["check_repair_accumulation", "check_repair_schedule"]

LR = 0.3
MICRO_BATCH = 4  # points in each
PEAK_LR = 0.4
TOGETHER = "Micro-batches go through the model together: what saves memory is one after the other."
HELD = (
    "A micro-batch goes through the model before the backward pass of the last one: "
    "the activations of both are held."
)
OTHER_ACCUMULATED_STEPS = (
    "The weights are not those of one SGD step for the mean loss of its micro-batches"
)
NO_ZERO_GRAD = "Gradients of earlier steps still count: zero_grad is missing."
BEFORE_STEP = "the loss of its batch before the step"


def _plan_learning_rates(total: int, peak: float) -> list[float]:
    """Of each of ``total`` steps: a tenth of warm-up, then half a cosine, 0 only after the last."""
    warmup = total // 10
    rising = [peak * (step + 1) / (warmup + 1) for step in range(warmup)]
    length = total - warmup
    falling = [peak * (1 + math.cos(math.pi * step / length)) / 2 for step in range(length)]
    return rising + falling


def _follow(found: list[float], planned: list[float]) -> bool:
    """Whether the learning rates are those of the plan, each of them."""
    pairs = zip(found, planned, strict=True)
    return all(math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-9) for one, other in pairs)


def _find_peak(learning_rates: list[float]) -> int:
    """The first step at the highest learning rate; a cosine that goes on comes back up to it."""
    highest = max(learning_rates)
    return next(step for step, lr in enumerate(learning_rates) if math.isclose(lr, highest))


def _explain_learning_rates(found: list[float], planned: list[float], epochs: int) -> None:
    """Fail, if the recorded learning rates leave the plan, and say where."""
    total = len(planned)
    require(found, "The weights are not those of SGD at the planned learning rates.")
    require(len(found) == total, f"{total} optimizer steps are due, {len(found)} are taken.")
    changes = sum(one != other for one, other in pairwise(found))
    often = f"The learning rate changes {changes} times in {total} steps"
    require(changes > epochs, f"{often}: the plan counts optimizer steps.")
    one_ahead = _follow(found[:-1], planned[1:])
    require(not one_ahead, "Each step has the learning rate that is planned for the next one.")
    epoch_steps = total // epochs
    of_one_epoch = _plan_learning_rates(epoch_steps, PEAK_LR)
    short = f"The plan covers the {epoch_steps} steps of one epoch, and {total} are taken."
    require(not _follow(found[:epoch_steps], of_one_epoch), short)
    peak, planned_peak = _find_peak(found), _find_peak(planned)
    highest = f"The learning rate is highest at step {peak}, in the plan at step {planned_peak}"
    require(peak or not planned_peak, f"{highest}: the warm-up is missing.")
    require(peak == planned_peak, f"{highest}.")
    for step, (one, due) in enumerate(zip(found, planned, strict=True)):
        same = _follow([one], [due])
        require(same, f"Step {step} of {total} has the learning rate {one:.6g}, not {due:.6g}.")


@checks_exercise()
@torch.enable_grad()
def check_repair_schedule(answer: Callable) -> None:
    """``answer(model, batches, epochs, peak_lr) -> losses``: warm-up and cosine over all steps."""
    for count, epochs in ((11, 4), (7, 6), (2, 4)):
        model = make_network()
        batches = draw_batches(*(8,) * count)
        total = epochs * count
        planned = _plan_learning_rates(total, PEAK_LR)
        right, losses = train_copy(model, batches * epochs, planned)
        start = copy.deepcopy(model)
        found, learning_rates = record_learning_rates(answer, model, list(batches), epochs, PEAK_LR)
        # The weights decide. The recorded learning rates only help to say what is wrong.
        weights = flatten_parameters(model)
        if not is_close(weights, flatten_parameters(right)):
            _explain_learning_rates(learning_rates, planned, epochs)
            summed = train_copy_without_zero_grad(start, batches * epochs, planned)
            require(not is_close(weights, flatten_parameters(summed)), NO_ZERO_GRAD)
            fail("The learning rates are as planned, the weights are not those of SGD.")
        require_losses(read_losses(found, total), losses, BEFORE_STEP)


def _accumulate(
    model: nn.Module,
    batches: Batches,
    window: int,
    lr: float,
    join: Callable[[Tensor, int], Tensor] = lambda gradients, window: gradients.mean(dim=0),
    zero_grad: bool = True,
) -> list[float]:
    """The oracle, unless the step is another than the mean of the ``gradients``.

    ``join(gradients, window)``: (micro-batches, P) of one step, which may have fewer, -> (P,).
    Without ``zero_grad`` the joined gradients of all steps so far are added up.
    """
    losses = []
    step = torch.zeros_like(flatten_parameters(model))
    for start in range(0, len(batches), window):
        gradients = []
        for points, targets in batches[start : start + window]:
            loss = F.cross_entropy(model(points), targets)
            gradient = torch.autograd.grad(loss, list(model.parameters()))
            gradients.append(parameters_to_vector(gradient))
            losses.append(loss.item())
        step = join(torch.stack(gradients), window) + (0 if zero_grad else step)
        vector_to_parameters(flatten_parameters(model) - lr * step, model.parameters())
    return losses


# fmt: off
WINDOW_FAULTS: Faults = (
    ("Gradients are added, not averaged: the step is as many times too long as it has "
     "micro-batches.",
     partial(_accumulate, join=lambda gradients, window: gradients.sum(dim=0))),
    ("The last step is divided as if it were complete: count the micro-batches of each step.",
     partial(_accumulate, join=lambda gradients, window: gradients.sum(dim=0) / window)),
    ("Only the last micro-batch of a step counts: zero_grad is called before each one.",
     partial(_accumulate, join=lambda gradients, window: gradients[-1])),
    ("Only the last micro-batch of each step counts, and that is divided.",
     partial(_accumulate, join=lambda gradients, window: gradients[-1] / len(gradients))),
    ("The mean over a step is divided once more.",
     partial(_accumulate, join=lambda gradients, window: gradients.mean(dim=0) / len(gradients))),
    ("If the last micro-batches are fewer than the others, no step is taken for them.",
     partial(_accumulate, join=lambda gradients, window:
             gradients.mean(dim=0) * (len(gradients) == window))),
    (NO_ZERO_GRAD,
     partial(_accumulate, zero_grad=False)),
    (NO_ZERO_GRAD,
     partial(_accumulate, zero_grad=False,
             join=lambda gradients, window: gradients.sum(dim=0))),
    ("Gradients are divided by the number of points: divide by that of the micro-batches.",
     partial(_accumulate, join=lambda gradients, window: gradients.sum(dim=0) / MICRO_BATCH)),
    ("The mean is divided by the number of points once more.",
     partial(_accumulate, join=lambda gradients, window: gradients.mean(dim=0) / MICRO_BATCH)),
)
# fmt: on


@checks_exercise(faults=WINDOW_FAULTS)
@torch.enable_grad()
def check_repair_accumulation(answer: Callable) -> None:
    """``answer(model, batches, window, lr) -> losses``: a step takes ``window`` micro-batches."""
    for count, size in ((6, 3), (7, 3), (5, 1), (3, 8)):
        _check_accumulation(answer, count, size)


class _Graph:
    """Lives as long as the graph of a forward pass, by a hook of that graph."""


def _count_held_graphs(model: nn.Module) -> list[int]:
    """A list that gets, with each forward pass, how many graphs still wait for a backward pass."""
    waiting: WeakSet[_Graph] = WeakSet()
    held: list[int] = []

    def note(_module: nn.Module, _inputs: object, outputs: Tensor) -> None:
        held.append(len(waiting))
        if outputs.requires_grad:
            graph = _Graph()
            waiting.add(graph)
            outputs.register_hook(lambda _: waiting.discard(graph))

    model.register_forward_hook(note)
    return held


def _check_accumulation(answer: Callable, count: int, size: int) -> None:
    """``count`` micro-batches, ``size`` accumulation steps; a last step may have fewer."""
    model = make_network()
    start = copy.deepcopy(model)
    micro_batches = draw_batches(*(MICRO_BATCH,) * count)

    def run(other: Callable) -> tuple[Tensor, list[float]]:
        trained = copy.deepcopy(start)
        losses = other(trained, micro_batches, size, LR)
        return flatten_parameters(trained), losses

    sizes: list[int] = []  # points in each forward pass
    model.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    held = _count_held_graphs(model)
    found, learning_rates = record_learning_rates(answer, model, list(micro_batches), size, LR)
    require(max(sizes, default=MICRO_BATCH) == MICRO_BATCH, TOGETHER)
    require(not any(held), HELD)
    windows = f"{count} micro-batches with {size} accumulation steps"
    due = math.ceil(count / size)
    taken = len(learning_rates)
    require(taken <= due, f"{windows} give {due} optimizer steps, here {taken} are taken.")
    weights = flatten_parameters(model)
    right, losses = run(_accumulate)
    moved, due_move = ((end - flatten_parameters(start)).norm() for end in (weights, right))
    diagnose(
        weights,
        lambda other: run(other)[0],
        _accumulate,
        WINDOW_FAULTS,
        f"{OTHER_ACCUMULATED_STEPS}: they move by {moved:.4g}, due is {due_move:.4g}.",
        case=f"{windows}:",
    )
    found_losses = read_losses(found, count)
    require_losses(found_losses, read_losses(losses, count), "the mean loss of its micro-batch")
