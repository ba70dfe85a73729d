"""Checks of the exercises of lesson 08."""

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Integral

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from course_utils.exercises.checking import checks_exercise, fail, require
from course_utils.exercises.oracles import (
    Batches,
    clip_norm,
    flatten_parameters,
    is_near,
    is_pair,
)

__all__ = ["check_plan_batches", "check_step_over_tokens", "check_train_windows"]

LR = 0.5
IGNORED = -100  # cross_entropy leaves out these targets: here they are not tokens
NO_LIMIT = 1e9  # a max_norm that clips nothing

NO_MEAN = "The gradient is nan: a micro-batch without tokens has no mean, so sum and divide once."
AT_ONCE = "One backward for several micro-batches keeps all they have saved: call it after each."
LEFT_OVER = "Gradients from before the window still count: call zero_grad once, as it begins."
ONLY_LAST = "Only the last micro-batch of a window counts: zero_grad is called inside it."
ONLY_FIRST = "Only the first micro-batch counts: the step comes before the window is complete."
NO_GRADIENT = "A step has no gradient: no backward, or zero_grad after it?"
OTHER_GRADIENT = "A step's gradient is not that of the mean loss over its window."
OTHER_WEIGHTS = "The weights are not changed by the optimizer's steps alone."

# effective batch, limit, devices
PLANS = ((60, 12, 1), (512, 48, 1), (60, 14, 1), (512, 48, 4), (14, 6, 2), (64, 100, 4))
IMPOSSIBLE_PLANS = ((512, 3), (10, 4), (2, 4))  # effective batch, devices

# Of each micro-batch the shape of its targets (sequences, length), and how many are ignored.
SHAPES = (((3, 7), 4), ((2, 5), 7), ((5, 8), 3))
SHAPES_WITHOUT_TOKENS = (((2, 5), 3), ((3, 6), 18), ((1, 7), 0))  # the second has no token


@checks_exercise()
def check_plan_batches(answer: Callable) -> None:
    """``answer(effective_batch_size, limit, devices) -> (micro-batch size, their number)``."""
    for batch, limit, devices in PLANS:
        found = answer(batch, limit, devices) if devices > 1 else answer(batch, limit)
        message = "Return two numbers: the micro-batch size and accumulate_grad_batches."
        require(is_pair(found), message)
        require(all(isinstance(n, Integral) for n in found), "Both are whole numbers: use //.")
        size, number = found
        _check_plan(size, number, batch, limit, devices)
    for batch, devices in IMPOSSIBLE_PLANS:
        try:
            found = answer(batch, 64, devices)
        except ValueError:
            continue
        fail(f"{devices} devices cannot share {batch} images: ValueError, not {found}.")


def _check_plan(size: int, number: int, batch: int, limit: int, devices: int) -> None:
    """``size`` is the largest micro-batch that divides a device's share of the batch."""
    share = batch // devices
    best = max(n for n in range(1, min(limit, share) + 1) if share % n == 0)
    case = f"{batch} images, limit {limit}, devices {devices}"
    swapped = size != number and (number, size) == (best, share // best)
    require(not swapped, "The two are exchanged: the micro-batch size comes first.")
    above = share < limit and size > share
    require(not above, f"{case}: a step has only {share} images a device, less than {size}.")
    require(size <= limit, f"{case}: a micro-batch of {size} does not fit.")
    alone = devices > 1 and size * number == batch
    require(not alone, f"{case}: {size} × {number} on each device is {devices} × too much.")
    require(
        size * number * devices == batch,
        f"{case}: {size} × {number} × {devices} is not {batch}; the micro-batch must divide "
        f"the {share} images of a device.",
    )
    require(size == best, f"{case}: {size} is not the largest micro-batch, {best} fits too.")


@dataclass(frozen=True)
class _Step:
    """What the optimizer saw in one of its steps."""

    gradient: Tensor  # (P,)
    learning_rate: float
    backwards: int  # backward passes since the step before


@dataclass(frozen=True)
class _Case:
    """What an answer is given, and what is noted meanwhile."""

    model: nn.Module
    start: nn.Module  # a copy, as the model was before
    optimizer: Optimizer
    micro_batches: Batches  # inputs (..., 6) and targets (...)
    grad_before: float  # each number in .grad before the call; 0: .grad is None
    steps: list[_Step] = field(default_factory=list)


def _prepare(shapes: Sequence[tuple[tuple, int]], grad_before: float) -> _Case:
    """Always the same for the same arguments.

    ``shapes``: of each micro-batch the shape of its targets, and how many of them are ignored.
    """
    generator = torch.Generator().manual_seed(0)
    model = nn.utils.skip_init(nn.Linear, 6, 4, dtype=torch.float64)
    parameters = list(model.parameters())
    for parameter in parameters:
        nn.init.normal_(parameter, generator=generator)
        parameter.grad = torch.full_like(parameter, grad_before) if grad_before else None
    micro_batches = []
    for shape, ignored in shapes:
        targets = torch.randint(4, shape, generator=generator)
        places = torch.randperm(targets.numel(), generator=generator)[:ignored]
        targets.view(-1)[places] = IGNORED
        inputs = torch.randn(*shape, 6, generator=generator, dtype=torch.float64)
        micro_batches.append((inputs, targets))
    optimizer = SGD(parameters, lr=LR)
    case = _Case(model, copy.deepcopy(model), optimizer, micro_batches, grad_before)
    _record_steps(case)
    return case


def _record_steps(case: _Case) -> None:
    """Let every step of the optimizer add to ``case.steps``."""
    parameters = list(case.model.parameters())
    backwards: list[int] = []  # an entry for each backward pass since the last step

    def note(*_: object) -> None:
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        learning_rate = case.optimizer.param_groups[0]["lr"]
        case.steps.append(_Step(parameters_to_vector(gradients), learning_rate, len(backwards)))
        backwards.clear()

    parameters[0].register_post_accumulate_grad_hook(lambda _: backwards.append(1))
    # After the step, not before: a closure computes the gradient within it.
    case.optimizer.register_step_post_hook(note)


def _differentiate(model: nn.Module, micro_batches: Batches) -> tuple[Tensor, Tensor]:
    """Gradients of the mean loss over all tokens (P,), and of each summed loss (M, P)."""
    rows = []
    for inputs, targets in micro_batches:
        logits = model(inputs).flatten(0, -2)  # (..., C) -> (tokens, C)
        loss = F.cross_entropy(logits, targets.flatten(), reduction="sum")
        rows.append(parameters_to_vector(torch.autograd.grad(loss, list(model.parameters()))))
    sums = torch.stack(rows)
    tokens = torch.stack([(targets != IGNORED).sum() for _, targets in micro_batches]).sum()
    return sums.sum(dim=0) / tokens, sums


def _close(found: Tensor, expected: Tensor) -> bool:
    return is_near(found, expected, 1e-5)


def _count(count: Callable[[Tensor], object], micro_batches: Batches) -> Tensor:
    """``count(targets)`` of each micro-batch: (M,)."""
    counts = [count(targets) for _, targets in micro_batches]
    return torch.tensor(counts, dtype=torch.float64)


def _clip_each(parts: Tensor, max_norm: float) -> Tensor:
    """The fault of clipping what is accumulated so far after each micro-batch: (M, P) -> (P,)."""
    accumulated = torch.zeros_like(parts[0])
    for part in parts:
        accumulated = clip_norm(accumulated + part, max_norm)
    return accumulated


def _list_faults(
    micro_batches: Batches, mean: Tensor, sums: Tensor, size: int, max_norm: float
) -> dict[str, Tensor]:
    """Sentence to the gradient (P,) that a step with this fault would have.

    ``mean`` (P,) and ``sums`` (M, P) as of `_differentiate`; ``size``: the accumulation steps
    that a complete step has, where this one may have fewer.
    """
    number = len(micro_batches)
    unit = "tokens" if micro_batches[0][1].dim() > 1 else "examples"
    tokens = _count(lambda targets: (targets != IGNORED).sum(), micro_batches)  # (M,)
    places = _count(Tensor.numel, micro_batches)  # with those that are ignored
    sequences = _count(len, micro_batches)
    means = sums / tokens.clamp(min=1)[:, None]  # (M, P), of each micro-batch by itself
    return {
        "The gradient is not clipped before the step.": mean,
        "A gradient shorter than max_norm stays as it is.": mean / mean.norm() * max_norm,
        "It is clipped after each micro-batch: clip the sum, once.": (
            _clip_each(sums / tokens.sum(), max_norm)
        ),
        "Targets of −100 are counted as tokens.": sums.sum(dim=0) / places.sum(),
        "The shares of the micro-batches count −100 as tokens.": places / places.sum() @ means,
        "Micro-batches are weighed by sequences, not by tokens.": (
            sequences / sequences.sum() @ means
        ),
        f"A window of {number} micro-batches is divided as if it had {size}: count the examples of "
        "each window.": mean * number / size,
        f"Means are added, not averaged: the step is {number} times too long.": means.sum(dim=0),
        f"This is the mean of means: weigh the micro-batches by their {unit}.": means.mean(dim=0),
        f"The summed losses are not divided by the {unit} of the window.": sums.sum(dim=0),
        f"The summed losses are divided by micro-batches, not by {unit}.": sums.mean(dim=0),
    }


def _is_along(found: Tensor, vector: Tensor) -> bool:
    """Whether ``found`` is ``vector`` times any number."""
    return _close(found, found @ vector / (vector @ vector) * vector)


def _explain_gradient(
    found: Tensor, mean: Tensor, sums: Tensor, faults: dict[str, Tensor], before: Tensor | float
) -> None:
    """Fail in the words of the fault that gives what was found; ``before``: the last gradient."""
    require(found.any(), NO_GRADIENT)
    for sentence, faulty in faults.items():
        require(not _close(found, faulty), sentence)
    require(not _close(found, mean + before), LEFT_OVER)
    if len(sums) > 1:
        require(not _is_along(found, sums[-1]), ONLY_LAST)
        require(not _is_along(found, sums[0]), ONLY_FIRST)
    fail(OTHER_GRADIENT)


def _compare_steps(
    case: _Case, groups: list[Batches], size: int, max_norm: float = NO_LIMIT
) -> float:
    """Each step has the gradient of the mean loss of its micro-batches.

    ``groups`` holds the micro-batches of each step, ``size`` is how many a complete one has.
    Returns the norm that the last step's gradient has before it is clipped.
    """
    replayed = case.start
    before: Tensor | float = case.grad_before
    mean = torch.zeros(())
    for step, micro_batches in zip(case.steps, groups, strict=False):
        several = len(micro_batches) > 1
        mean, sums = _differentiate(replayed, micro_batches)
        right = clip_norm(mean, max_norm)
        require(step.gradient.isfinite().all(), NO_MEAN)
        if not _close(step.gradient, right):
            faults = _list_faults(micro_batches, mean, sums, size, max_norm)
            _explain_gradient(step.gradient, mean, sums, faults, before)
        require(not several or step.backwards != 1, AT_ONCE)
        # Replayed at the answer's own learning rate: its schedule is checked apart.
        weights = flatten_parameters(replayed) - step.learning_rate * right
        vector_to_parameters(weights, replayed.parameters())
        before = step.gradient
    # Of more steps than there should be the weights are unknown here; that has its own sentence.
    if len(case.steps) <= len(groups):
        same = _close(flatten_parameters(case.model), flatten_parameters(replayed))
        require(same, OTHER_WEIGHTS)
    return mean.norm().item()


@checks_exercise()
def check_step_over_tokens(answer: Callable) -> None:
    """``answer(model, optimizer, window, max_norm) -> norm``: over all tokens, clipped once."""
    cases = (
        (SHAPES, 99, 0),
        (SHAPES, 0.2, 0),
        (SHAPES_WITHOUT_TOKENS, 0.2, 0),
        (SHAPES_WITHOUT_TOKENS, 99, 0.5),
    )
    for shapes, max_norm, grad_before in cases:
        case = _prepare(shapes, grad_before)
        found = answer(case.model, case.optimizer, list(case.micro_batches), max_norm)
        require(len(case.steps) == 1, f"A window is one step, here {len(case.steps)} are taken.")
        norm = _compare_steps(case, [case.micro_batches], len(shapes), max_norm)
        require(found is not None, "Return the norm that the gradient had before it was clipped.")
        after = norm > max_norm and abs(float(found) / max_norm - 1) < 1e-3
        require(not after, "The returned norm is that after clipping: return the one before.")
        near = abs(float(found) / norm - 1) < 1e-5
        require(near, f"The norm before clipping is {norm:.4f}, not {float(found):.4f}.")


# examples of each micro-batch, accumulation steps, each number in .grad before the call
TRAININGS = (
    ((4,) * 5, 3, 0),
    ((3, 5, 2, 4, 1), 2, 0.5),
    ((4, 4, 2, 2), 2, 0),
    ((2, 6), 5, 0.5),
    ((3, 1, 4), 1, 0),
)


@checks_exercise()
def check_train_windows(answer: Callable) -> None:
    """``answer(model, optimizer, schedule, batches, size) -> steps``: one for each window."""
    for (examples, size, grad_before), once in itertools.product(TRAININGS, (False, True)):
        case = _prepare([((number,), 0) for number in examples], grad_before)
        _check_training(answer, case, size, once)


def _check_training(answer: Callable, case: _Case, size: int, once: bool) -> None:
    """``size`` accumulation steps; ``once``: the batches come from a generator."""
    schedule = LambdaLR(case.optimizer, lambda step: 1 / (1 + step))
    batches = list(case.micro_batches)
    given = (batch for batch in batches) if once else batches
    found = answer(case.model, case.optimizer, schedule, given, size)
    groups = [case.micro_batches[i : i + size] for i in range(0, len(case.micro_batches), size)]
    taken = len(case.steps)
    require(taken, f"No step is taken{', batches can be read only once' if once else ''}.")
    after_each = taken >= len(case.micro_batches) and size > 1
    require(not after_each, "A step is taken after every micro-batch.")
    _compare_steps(case, groups, size)
    calls = schedule.last_epoch
    moved = f"The schedule is stepped {calls} times in {taken} steps: once a step, after it."
    require(calls == taken, moved)
    in_time = all(step.learning_rate == LR / (1 + n) for n, step in enumerate(case.steps))
    require(in_time, "The schedule is stepped before the optimizer: its first rate is lost.")
    require(taken <= len(groups), "A step too many: is one taken after a last full window?")
    require(taken == len(groups), "The last window, which is not full, is dropped.")
    require(found == taken, f"{taken} steps were taken, and {found} is returned.")
