"""Checks of the exercises of lesson 08."""

import copy
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, parameters_to_vector, vector_to_parameters
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from course_utils.checking.checking import (
    CheckFailed,
    Faults,
    checks_exercise,
    diagnose,
    fail,
    require,
)
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import Batches, flatten_parameters, is_near, is_pair

__all__ = [
    "check_measure_accumulation",
    "check_plan_batches",
    "check_step_over_tokens",
    "check_train_windows",
]

LR = 0.5
IGNORED = -100  # cross_entropy leaves out these targets: here they are not tokens
TOLERANCE = 1e-5  # relative
NO_LIMIT = 1e9  # a max_norm that clips nothing

NO_MEAN = "The gradient is nan: a micro-batch without tokens has no mean, so sum and divide once."
AT_ONCE = "One backward for several micro-batches keeps all they have saved: call it after each."
ONLY_LAST = "Only the last micro-batch of a step counts: zero_grad is called before each one."
ONLY_FIRST = "Only the first micro-batch counts: the step comes before all micro-batches are added."
NO_GRADIENT = "A step has no gradient: no backward, or zero_grad after it?"
OTHER_LENGTH = (
    "A step's gradient is {:.4g} times that of the mean loss over its examples, so the loss is "
    "divided by another number."
)
OTHER_DIRECTION = (
    "A step's gradient has another direction than that of the mean loss over its examples, the "
    "cosine is {:.3f}."
)
FIRST_CLASS = "Class 0 does not count: only targets of −100 are no tokens."
OTHER_WEIGHTS = "The weights are not changed by the optimizer's steps alone."

# effective batch, limit, devices
PLANS = ((60, 12, 1), (512, 48, 1), (60, 14, 1), (512, 48, 4), (14, 6, 2), (64, 100, 4))
IMPOSSIBLE_PLANS = ((512, 3), (10, 4), (2, 4))  # effective batch, devices

# Of each micro-batch the shape of its targets (sequences, length), and how many are ignored.
SHAPES = (((3, 7), 4), ((2, 5), 7), ((5, 8), 3))
SHAPES_WITHOUT_TOKENS = (((2, 5), 3), ((3, 6), 18), ((1, 7), 0))  # the second has no token


@checks_exercise()
def check_measure_accumulation(answer: Callable) -> None:
    """``answer(config, data) -> (one, other, low, high)``: two ways over the same seeds."""
    judge_experiment(run_experiment(answer))


@checks_exercise()
def check_plan_batches(answer: Callable) -> None:
    """``answer(effective_batch_size, limit, devices) -> (micro-batch size, their number)``."""
    found = [_plan(answer, *plan) for plan in PLANS]
    right = [_choose_plan(*plan) for plan in PLANS]
    # Of one plan alone another wrong size may look like a swap.
    swapped = found == [(number, size) for size, number in right]
    require(not swapped, "The two are swapped: the micro-batch size comes first.")
    for (size, number), plan in zip(found, PLANS, strict=True):
        _check_plan(size, number, *plan)
    for batch, devices in IMPOSSIBLE_PLANS:
        case = f"{devices} devices cannot share {batch} images: ValueError, not"
        try:
            plan = answer(batch, 64, devices)
        except ValueError:
            continue
        except Exception as error:
            raise CheckFailed(f"{case} {type(error).__name__}.") from error
        fail(f"{case} {plan}.")


def _plan(answer: Callable, batch: int, limit: int, devices: int) -> tuple[int, int]:
    """The answer's plan, two whole numbers."""
    try:
        found = answer(batch, limit, devices) if devices > 1 else answer(batch, limit)
    except ValueError as error:
        case = f"{batch} images, limit {limit}, devices {devices}: these can be shared evenly"
        raise CheckFailed(f"{case}, and the answer raises ValueError ({error}).") from error
    message = "Return two numbers: the micro-batch size and accumulate_grad_batches."
    require(is_pair(found), message)
    size, number = found
    whole = isinstance(size, Integral) and isinstance(number, Integral)
    require(whole, "Both are whole numbers: use //.")
    return int(size), int(number)


def _choose_plan(batch: int, limit: int, devices: int) -> tuple[int, int]:
    """The oracle: of all numbers of micro-batches the smallest that fits."""
    share = batch // devices
    number = next(n for n in itertools.count(1) if share % n == 0 and share <= n * limit)
    return share // number, number


def _check_plan(size: int, number: int, batch: int, limit: int, devices: int) -> None:
    """``size`` is the largest micro-batch that divides a device's share of the batch."""
    share = batch // devices
    best, _ = _choose_plan(batch, limit, devices)
    case = f"{batch} images, limit {limit}, devices {devices}"
    above = share < limit and size > share
    require(not above, f"{case}: a step has only {share} images per device, less than {size}.")
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
    start: nn.Module  # as the model was before
    grad_before: Tensor | float  # what .grad held before the call (P,), or each number of it
    optimizer: Optimizer
    steps: list[_Step] = field(default_factory=list)


def _prepare(shapes: Sequence[tuple[tuple, int]]) -> tuple[nn.Module, Batches]:
    """A model, and micro-batches: inputs (..., 6) and targets (...).

    ``shapes``: of each micro-batch the shape of its targets, and how many of them are ignored.
    """
    model = nn.Linear(6, 4, dtype=torch.float64)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    micro_batches = []
    for shape, ignored in shapes:
        targets = torch.randint(4, shape)
        places = torch.randperm(targets.numel())[:ignored]
        targets.view(-1)[places] = IGNORED
        inputs = torch.randn(*shape, 6, dtype=torch.float64)
        micro_batches.append((inputs, targets))
    return model, micro_batches


def _begin(start: nn.Module, grad_before: Tensor | float) -> _Case:
    """A case with a copy of ``start``; every step of its optimizer adds to its ``steps``.

    ``grad_before`` as in `_Case`; if it is 0, .grad is None.
    """
    model = copy.deepcopy(start)
    parameters = list(model.parameters())
    gradient = torch.zeros_like(flatten_parameters(model)) + grad_before  # (P,)
    parts = gradient.split([parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.clone().view_as(parameter) if gradient.any() else None
    case = _Case(model, start, grad_before, SGD(parameters, lr=LR))
    backwards: list[int] = []  # an entry for each backward pass since the last step

    def note(*_: object) -> None:
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        learning_rate = case.optimizer.param_groups[0]["lr"]
        case.steps.append(_Step(parameters_to_vector(gradients), learning_rate, len(backwards)))
        backwards.clear()

    parameters[0].register_post_accumulate_grad_hook(lambda _: backwards.append(1))
    # After the step, not before: a closure computes the gradient within it.
    case.optimizer.register_step_post_hook(note)
    return case


def _count(*targets: Tensor) -> Tensor:
    """How many tokens the micro-batches with these targets have."""
    return torch.cat([part.flatten() for part in targets]).ne(IGNORED).sum()


def _step_over_tokens(
    model: nn.Module,
    optimizer: Optimizer,
    window: Batches,
    max_norm: float,
    weight: Callable[[Tensor, list[Tensor]], Any] = lambda targets, window: 1 / _count(*window),
    arrange: Callable[[Tensor], Tensor] = lambda logits: logits.flatten(0, -2),
    clip: Callable[[list[nn.Parameter], float], Tensor] = clip_grad_norm_,
    clip_each: bool = False,
    clear: bool = True,
) -> float:
    """The oracle; another value of an argument from ``weight`` on is a fault.

    ``weight(targets, window)`` is that of the summed loss of a micro-batch; ``targets`` are its
    own, ``window`` holds those of all. ``arrange`` makes logits (..., C) to (places, C).
    """
    parameters = list(model.parameters())
    if clear:
        optimizer.zero_grad()
    for inputs, targets in window:
        loss = F.cross_entropy(arrange(model(inputs)), targets.flatten(), reduction="sum")
        (loss * weight(targets, [targets for _, targets in window])).backward()
        if clip_each:
            clip_grad_norm_(parameters, max_norm)
    norm = clip(parameters, max_norm)
    optimizer.step()
    return norm.item()


def _train_windows(
    model: nn.Module,
    optimizer: Optimizer,
    schedule: LambdaLR,
    batches: Iterable[tuple[Tensor, Tensor]],
    size: int,
    **fault: Any,
) -> int:
    """The oracle; ``fault`` is an argument of `_step_over_tokens`."""
    batches = iter(batches)
    steps = 0
    while window := list(itertools.islice(batches, size)):
        _step_over_tokens(model, optimizer, window, NO_LIMIT, **fault)
        schedule.step()
        steps += 1
    return steps


def _stretch(parameters: list[nn.Parameter], max_norm: float) -> Tensor:
    """A wrong clip_grad_norm_: a shorter gradient gets the length ``max_norm`` too."""
    norm = clip_grad_norm_(parameters, NO_LIMIT)
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad *= max_norm / norm
    return norm


def _clip_value(parameters: list[nn.Parameter], max_norm: float) -> Tensor:
    """A wrong clip_grad_norm_: it clips each number, not the norm."""
    norm = clip_grad_norm_(parameters, NO_LIMIT)
    nn.utils.clip_grad_value_(parameters, max_norm)
    return norm


def _reshape(logits: Tensor) -> Tensor:
    """A fault: (N, T, C) is read as if it were (N, C, T)."""
    sequences, length, classes = logits.shape
    return logits.reshape(sequences, classes, length).mT.flatten(0, 1)


def _ignore_first_class(
    model: nn.Module, optimizer: Optimizer, window: Batches, max_norm: float
) -> float:
    """A fault: class 0 is taken for a place without a token."""
    masked = [(inputs, targets.where(targets > 0, IGNORED)) for inputs, targets in window]
    return _step_over_tokens(model, optimizer, masked, max_norm)


# fmt: off
def _list_faults(answer: Callable, unit: str) -> Faults:
    """Those that both exercises know; ``unit``: what they count."""
    return (
        ("Means are added, not averaged: a step of n micro-batches is n times too long.",
         partial(answer, weight=lambda targets, _: 1 / _count(targets))),
        (f"This is the mean of means: weigh the micro-batches by their {unit}.",
         partial(answer, weight=lambda targets, window: 1 / _count(targets) / len(window))),
        (f"The summed losses are not divided by the {unit} of the step.",
         partial(answer, weight=lambda *_: 1)),
        (f"The summed losses are divided by micro-batches, not by {unit}.",
         partial(answer, weight=lambda _, window: 1 / len(window))),
        ("Gradients from before the step still count: call zero_grad once, as it begins.",
         partial(answer, clear=False)),
    )


TOKENS_FAULTS: Faults = (
    ("The gradient is not clipped before the step.",
     partial(_step_over_tokens, clip=lambda parameters, _: clip_grad_norm_(parameters, NO_LIMIT))),
    ("A gradient shorter than max_norm stays as it is.",
     partial(_step_over_tokens, clip=_stretch)),
    ("Each number of the gradient is clipped: clip its norm.",
     partial(_step_over_tokens, clip=_clip_value)),
    ("It is clipped after each micro-batch: clip the sum, once.",
     partial(_step_over_tokens, clip_each=True)),
    ("Targets of −100 are counted as tokens.",
     partial(_step_over_tokens, weight=lambda _, window: 1 / sum(map(Tensor.numel, window)))),
    ("The shares of the micro-batches count −100 as tokens.",
     partial(_step_over_tokens, weight=lambda targets, window:
             targets.numel() / _count(targets) / sum(map(Tensor.numel, window)))),
    (FIRST_CLASS, _ignore_first_class),
    (FIRST_CLASS, partial(_step_over_tokens, weight=lambda _, window:
                          1 / sum((targets > 0).sum() for targets in window))),
    ("The logits are reshaped, which mixes classes and tokens: swap the two dimensions instead.",
     partial(_step_over_tokens, arrange=_reshape)),
    ("Micro-batches are weighed by sequences, not by tokens.",
     partial(_step_over_tokens, weight=lambda targets, window:
             len(targets) / _count(targets) / sum(map(len, window)))),
    *_list_faults(_step_over_tokens, "tokens"),
)
WINDOW_FAULTS: Faults = (
    ("A step with fewer micro-batches is divided as if it were complete: count its examples.",
     lambda model, optimizer, schedule, batches, size: _train_windows(
         model, optimizer, schedule, batches, size,
         weight=lambda _, window: len(window) / size / _count(*window))),
    *_list_faults(_train_windows, "examples"),
)
# fmt: on


def _take_step(
    call: Callable, start: nn.Module, before: Tensor | float, window: Batches, answer: Callable
) -> Tensor:
    """The gradient (P,) of the one step that the answer takes; `_compare_steps` has ``call``."""
    case = _begin(start, before)
    call(answer, case, window)
    return case.steps[0].gradient


def _is_along(found: Tensor, vector: Tensor) -> bool:
    """Whether ``found`` is ``vector`` times any number."""
    return is_near(found, found @ vector / (vector @ vector) * vector, TOLERANCE)


def _describe(found: Tensor, right: Tensor) -> str:
    """The sentence on a gradient that no known fault gives."""
    product = found @ right
    if _is_along(found, right):
        return OTHER_LENGTH.format((product / (right @ right)).item())
    return OTHER_DIRECTION.format((product / found.norm() / right.norm()).item())


def _compare_steps(
    case: _Case,
    groups: list[Batches],
    call: Callable[[Callable, _Case, Batches], object],
    oracle: Callable,
    faults: Faults,
) -> None:
    """Each step has the gradient of the mean loss of its micro-batches.

    ``groups`` holds the micro-batches of each step; ``call(answer, case, window)`` lets another
    answer take a step.
    """
    replayed = copy.deepcopy(case.start)
    before = case.grad_before
    for step, window in zip(case.steps, groups, strict=False):
        found = step.gradient
        run = partial(_take_step, call, replayed, before)
        require(found.isfinite().all(), NO_MEAN)
        require(found.any(), NO_GRADIENT)
        otherwise = _describe(found, run(window, oracle))
        if len(window) > 1 and _is_along(found, run(window[:1], oracle)):
            otherwise = ONLY_FIRST
        if len(window) > 1 and _is_along(found, run(window[-1:], oracle)):
            otherwise = ONLY_LAST
        diagnose(
            found,
            partial(run, window),
            oracle,
            faults,
            otherwise,
            tolerance=TOLERANCE,
            fault_tolerance=10 * TOLERANCE,  # clip_grad_norm_ called twice clips a little more
        )
        require(len(window) == 1 or step.backwards != 1, AT_ONCE)
        # Replayed at the answer's own learning rate: its schedule is checked apart.
        weights = flatten_parameters(replayed) - step.learning_rate * found
        vector_to_parameters(weights, replayed.parameters())
        before = found
    # Of more steps than there should be the weights are unknown here; that has its own sentence.
    if len(case.steps) <= len(groups):
        weights = flatten_parameters(case.model)
        require(is_near(weights, flatten_parameters(replayed), TOLERANCE), OTHER_WEIGHTS)


@checks_exercise(faults=TOKENS_FAULTS)
def check_step_over_tokens(answer: Callable) -> None:
    """``answer(model, optimizer, window, max_norm) -> norm``: over all tokens, clipped once."""
    cases = (
        (SHAPES, 99, 0),
        (SHAPES, 0.05, 0),
        (SHAPES_WITHOUT_TOKENS, 0.05, 0),
        (SHAPES_WITHOUT_TOKENS, 99, 0.5),
    )
    for shapes, max_norm, grad_before in cases:
        model, window = _prepare(shapes)
        case = _begin(model, grad_before)
        found = answer(case.model, case.optimizer, list(window), max_norm)
        require(
            len(case.steps) == 1,
            f"The micro-batches make one step, here {len(case.steps)} are taken.",
        )
        _compare_steps(
            case,
            [window],
            lambda other, again, part: other(again.model, again.optimizer, part, max_norm),  # noqa: B023
            _step_over_tokens,
            TOKENS_FAULTS,
        )
        norm = _step_over_tokens(model, SGD(model.parameters()), window, max_norm)
        require(found is not None, "Return the norm that the gradient had before it was clipped.")
        after = norm > max_norm and abs(float(found) / max_norm - 1) < 1e-3
        require(not after, "The returned norm is that after clipping: return the one before.")
        tokens = _count(*(targets for _, targets in window)).item()
        summed = abs(float(found) / norm / tokens - 1) < 1e-3
        require(not summed, "The returned norm is that of the sum: divide by the tokens first.")
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


@checks_exercise(faults=WINDOW_FAULTS)
def check_train_windows(answer: Callable) -> None:
    """``answer(model, optimizer, schedule, batches, size) -> steps``: ``size`` batches each."""
    for (examples, size, grad_before), once in itertools.product(TRAININGS, (False, True)):
        model, batches = _prepare([((number,), 0) for number in examples])
        _check_training(answer, _begin(model, grad_before), batches, size, once)


def _check_training(answer: Callable, case: _Case, batches: Batches, size: int, once: bool) -> None:
    """``size`` accumulation steps; ``once``: the batches come from a generator."""

    def call(other: Callable, case: _Case, window: Batches) -> None:
        constant = LambdaLR(case.optimizer, lambda step: 1)
        other(case.model, case.optimizer, constant, window, size)

    schedule = LambdaLR(case.optimizer, lambda step: 1 / (1 + step))
    given = (batch for batch in batches) if once else list(batches)
    found = answer(case.model, case.optimizer, schedule, given, size)
    groups = [batches[i : i + size] for i in range(0, len(batches), size)]
    taken = len(case.steps)
    require(taken, f"No step is taken{', batches can be read only once' if once else ''}.")
    after_each = taken >= len(batches) and size > 1
    require(not after_each, "A step is taken after every micro-batch.")
    _compare_steps(case, groups, call, _train_windows, WINDOW_FAULTS)
    calls = schedule.last_epoch
    moved = f"The schedule is stepped {calls} times in {taken} steps: once a step, after it."
    require(calls == taken, moved)
    in_time = all(step.learning_rate == LR / (1 + n) for n, step in enumerate(case.steps))
    require(
        in_time,
        "The schedule is stepped before the optimizer: its first learning rate is never used.",
    )
    require(taken <= len(groups), "A step too many: is one taken after the last complete step?")
    require(
        taken == len(groups),
        "The last micro-batches are fewer than `size`, and no step is taken for them.",
    )
    require(found == taken, f"{taken} steps were taken, and {found} is returned.")
