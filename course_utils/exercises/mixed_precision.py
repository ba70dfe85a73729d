"""Checks of the exercises of lesson 07."""

import copy
import math
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from course_utils.exercises.checking import checks_exercise, fail, require
from course_utils.exercises.oracles import (
    Batches,
    ScaledStep,
    clip_norm,
    compare_with_faults,
    flatten_parameters,
    take_step_clipped_while_scaled,
    take_unclipped_step,
    train_copy_scaled,
)

__all__ = ["check_find_spacing", "check_train_mixed", "check_train_scaled"]

FORMATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGERS = {16: torch.int16, 32: torch.int32, 64: torch.int64}  # by their number of bits

# of 7 batches those that overflow, by which factor; max_norm, first scale, growth interval
CASES = (
    ((), 1.0, 99.0, 8.0, 100),
    ((1, 6), math.inf, 3.0, 8.0, 1),
    ((0, 3, 4), math.inf, 0.2, 8.0, 2),
    ((0, 4), 1e305, 0.2, 2.0**16, 3),  # the loss is finite, the scaled gradient is not
)
LR = 0.5  # of the scaled training; its schedule divides it by 1 + step
GRAD_BEFORE = 8.0  # each number in .grad before the call

NAN = "The weights are nan: optimizer.step() takes each step, scaler.step(optimizer) skips some."
MISSED = "Of {} steps {} are taken: has each batch its zero_grad, and then its scaler.step?"
NO_UPDATE = "A step comes after a step without update(), which each batch ends with."
OTHER_STEPS = "The weights are not those of one clipped step of SGD for each finite gradient."
NO_ZERO_GRAD = "Older gradients count: zero_grad is missing."
ZERO_GRAD_TOO_LATE = (
    "Gradients from before the call count in the first step: zero_grad comes too late."
)
ZERO_GRAD_BEFORE_LOOP = (
    "Older gradients count from the second step on: zero_grad belongs inside the loop."
)


def _take_scaled(step: ScaledStep) -> Tensor:
    return clip_norm(step.gradient * step.scale, step.max_norm)


def _take_unscaled_twice(step: ScaledStep) -> Tensor:
    return clip_norm(step.gradient / step.scale, step.max_norm)


# What .grad holds from before is never scaled, but unscale_ divides it with the new gradient.
def _take_with_gradients_before(step: ScaledStep) -> Tensor:
    return clip_norm(step.gradient + step.before / step.scale, step.max_norm)


def _take_with_gradients_before_the_call(step: ScaledStep) -> Tensor:
    if step.number == 0:
        return _take_with_gradients_before(step)
    return clip_norm(step.gradient, step.max_norm)


def _take_with_gradients_of_steps_before(step: ScaledStep) -> Tensor:
    if step.number > 0:
        return _take_with_gradients_before(step)
    return clip_norm(step.gradient, step.max_norm)


def _take_with_next_rate(step: ScaledStep) -> Tensor:
    """The rate is LR / (2 + n) instead of LR / (1 + n)."""
    factor = (1 + step.number) / (2 + step.number)
    return clip_norm(step.gradient, step.max_norm) * factor


# sentence to the step that an answer with this fault takes
STEP_FAULTS = {
    "The gradient is not clipped.": take_unclipped_step,
    "It is clipped while it is scaled: unscale_ first.": take_step_clipped_while_scaled,
    "The step is scaled: unscale_ its gradient.": _take_scaled,
    "The loss is not scaled, but its gradient unscaled.": _take_unscaled_twice,
    NO_ZERO_GRAD: _take_with_gradients_before,
    ZERO_GRAD_TOO_LATE: _take_with_gradients_before_the_call,
    ZERO_GRAD_BEFORE_LOOP: _take_with_gradients_of_steps_before,
    "schedule.step() comes too early.": _take_with_next_rate,
}

BF16_WEIGHTS = (
    "The weights have bf16's digits in the forward pass: autocast needs no model.bfloat16()."
)
NO_AUTOCAST = "The logits are {}, not bf16: call the model inside autocast."
ONE_AUTOCAST = (
    "One autocast around all batches keeps its bf16 copy of the first weights: one a batch."
)
OTHER_MIXED_STEPS = "The weights are not those of one step of SGD for each batch."
BF16_LOSS = "The loss has only the digits of bf16: take it inside autocast or of logits.float()."
BF16_TOTAL = "The total has only the digits of bf16: add up Python floats, loss.item()."


def _next_float(value: float, steps: int, dtype: torch.dtype) -> float:
    """The number of ``dtype`` that is ``steps`` numbers above ``value``, or below if negative.

    Read as an integer, the bits of the next number are one more: `torch.nextafter` has no bf16.
    """
    bits = torch.tensor(value, dtype=dtype).view(INTEGERS[8 * dtype.itemsize])
    return (bits + steps).view(dtype).item()


def _explain_spacing(value: float, dtype: torch.dtype, found: float) -> str:
    """The sentence on a wrong spacing."""
    info = torch.finfo(dtype)
    after = _next_float(value, 1, dtype)
    before = _next_float(value, -1, dtype)
    case = f"{dtype}, {value:.9g}: to the next number it is {after - value:.3g}, not {found:.3g}"
    if value < info.smallest_normal:
        return f"{case}; all below smallest_normal are equally far apart."
    # A mantissa of 0.5 is that of a power of two: only just below it is log2 rounded up to it.
    is_below_power = math.frexp(after)[0] == 0.5
    place = "log2 is rounded up" if is_below_power else "the power of two below counts"
    faults = {
        "eps is the spacing from 1 to 2 only: at each power of two it doubles.": info.eps,
        "It changes at powers of two only: it is not value · eps.": value * info.eps,
        f"{case}; that is the number before.": value - before,
        f"{case}; {place}.": 2 * (after - value),
    }
    return next((sentence for sentence, fault in faults.items() if found == fault), f"{case}.")


@checks_exercise()
def check_find_spacing(answer: Callable) -> None:
    """``answer(value, dtype) -> spacing``: compared with the bits, also of subnormal numbers."""
    for dtype in FORMATS:
        normal = torch.finfo(dtype).smallest_normal
        smallest = _next_float(0.0, 1, dtype)  # subnormal
        half_of_largest = torch.finfo(dtype).max / 2
        powers = (2.0, 0.5, 0.125, 1024.0, 2048.0, 4 * normal, normal, 4 * smallest)
        below = [_next_float(power, -1, dtype) for power in (1.0, *powers)]
        for value in (1.0, 1.5, 3.0, 0.75, *powers, *below, half_of_largest, smallest):
            found = answer(value, dtype)
            require(isinstance(found, float), f"Return a Python float, not {found!r}.")
            if found != _next_float(value, 1, dtype) - value:
                fail(_explain_spacing(value, dtype, found))


def _prepare(number: int, dtype: torch.dtype) -> tuple[nn.Module, Batches]:
    """A model from images (8, 3, 2, 2) to logits (8, 4), and batches; always the same."""
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(0), dtype=dtype)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4)).to(dtype)
    for parameter in model.parameters():
        parameter.data = draw(parameter.shape) / 2
    return model, [(draw(8, 3, 2, 2), draw(8, 4).argmax(dim=1)) for _ in range(number)]


@checks_exercise()
def check_train_scaled(answer: Callable) -> None:
    """``answer(model, optimizer, schedule, scaler, batches, max_norm) -> steps taken``."""
    for places, factor, max_norm, scale, growth_interval in CASES:
        model, batches = _prepare(7, torch.float64)
        for place in places:
            images, targets = batches[place]
            batches[place] = (images * factor, targets)
        _check_scaled_training(answer, model, batches, max_norm, scale, growth_interval)


def _check_scaled_training(
    answer: Callable,
    model: nn.Module,
    batches: Batches,
    max_norm: float,
    scale: float,
    growth_interval: int,
) -> None:
    train = partial(
        train_copy_scaled,
        copy.deepcopy(model),
        batches,
        learning_rate=lambda step: LR / (1 + step),
        max_norm=max_norm,
        scale=scale,
        growth_interval=growth_interval,
        grad_before=GRAD_BEFORE,
    )
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, GRAD_BEFORE)
    optimizer = SGD(model.parameters(), lr=LR)
    steps: list[int] = []  # an entry for each call of optimizer.step that was not skipped
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=growth_interval)
    scaler.scale(torch.zeros(()))  # it has no scale before its first use
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        schedule = LambdaLR(optimizer, lambda step: 1 / (1 + step))
        try:
            found = answer(model, optimizer, schedule, scaler, list(batches), max_norm)
        except RuntimeError as error:
            require("step()" not in str(error), NO_UPDATE)  # what GradScaler says then
            raise

    right = train()
    weights = flatten_parameters(model)
    require(weights.isfinite().all(), NAN)
    number = len(steps)
    require(number >= right.steps, MISSED.format(right.steps, number))
    calls = schedule.last_epoch
    moved = f"The schedule is stepped {calls} times in {number} steps: once after each"
    require(calls <= number, f"{moved}, but not after a skipped one.")
    require(calls == number, f"{moved}, also if the scale has grown.")
    faults = (
        (sentence, train(take_step=take_step).weights)
        for sentence, take_step in STEP_FAULTS.items()
    )
    compare_with_faults(weights, right.weights, faults, OTHER_STEPS, 1e-4, 5e-6)
    led = f"{right.steps} of {len(batches)} batches led to a step, not {found}."
    require(found == right.steps, led)
    own = scaler.get_scale()
    require(own == right.scale, f"The scale ends at {own:g}, not at {right.scale:g}: update()?")


def _train_mixed(
    model: nn.Module,
    batches: Batches,
    lr: float,
    loss_dtype: torch.dtype = torch.float32,
    sums_gradients: bool = False,
    one_autocast: bool = False,
) -> tuple[Tensor, Tensor]:
    """The oracle: weights (P,) of a trained copy and losses (batches,). Off by default are faults.

    Args:
        loss_dtype: in which the loss is taken.
        sums_gradients: zero_grad is missing; an SGD with momentum 1 steps like that.
        one_autocast: a single one around all batches.
    """
    model = copy.deepcopy(model)
    optimizer = SGD(model.parameters(), lr=lr, momentum=1 if sums_gradients else 0)
    losses = []
    with ExitStack() as stack:
        if one_autocast:
            stack.enter_context(torch.autocast("cpu", torch.bfloat16))
        for images, targets in batches:
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(images)
            loss = F.cross_entropy(logits.to(loss_dtype), targets)
            losses.append(loss.detach().float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return flatten_parameters(model), torch.stack(losses)


@checks_exercise()
def check_train_mixed(answer: Callable) -> None:
    """``answer(model, batches, lr) -> mean loss``: bf16 activations, everything else fp32."""
    for number, lr in ((1, 0.05), (5, 0.05), (200, 0.001)):
        model, batches = _prepare(number, torch.float32)
        _check_mixed_training(answer, model, batches, lr)


def _check_mixed_training(answer: Callable, model: nn.Module, batches: Batches, lr: float) -> None:
    train = partial(_train_mixed, copy.deepcopy(model), batches, lr)
    start = flatten_parameters(model)
    weights_seen: list[Tensor] = []  # in each forward pass
    logits_dtypes: list[torch.dtype] = []

    def record(module: nn.Module, _, logits: Tensor) -> None:
        weights_seen.append(flatten_parameters(module))
        logits_dtypes.append(logits.dtype)

    model.register_forward_hook(record)
    found = answer(model, list(batches), lr)
    for weights, logits_dtype in zip(weights_seen, logits_dtypes, strict=True):
        # Weights that went to bf16 and back are fp32 again, but not those of the start.
        precise = weights.dtype == torch.float32 and weights_seen[0].equal(start)
        require(precise, BF16_WEIGHTS)
        require(logits_dtype == torch.bfloat16, NO_AUTOCAST.format(logits_dtype))
    weights = flatten_parameters(model)
    require(not weights.equal(start), "The weights of the model that is given never change.")
    require(not weights.equal(weights.bfloat16().float()), "The weights are rounded to bf16.")

    # Compared are the changes of the weights: they are small beside the weights themselves.
    right, losses = train()
    faults = (
        (ONE_AUTOCAST, train(one_autocast=True)[0] - start),
        (NO_ZERO_GRAD, train(sums_gradients=True)[0] - start),
    )
    compare_with_faults(weights - start, right - start, faults, OTHER_MIXED_STEPS, 0.02, 1e-3)
    require(isinstance(found, float), f"Return a Python float, not {type(found).__name__}.")
    _check_mean_loss(found, losses, train(loss_dtype=torch.bfloat16)[1])


def _check_mean_loss(found: float, losses: Tensor, bf16_losses: Tensor) -> None:
    """``losses`` (batches,) of the right training, and as they are if taken in bf16."""
    bf16_total = torch.tensor(0.0)
    for loss in losses:
        bf16_total = (bf16_total + loss).bfloat16()
    faults = (
        (BF16_LOSS, bf16_losses.mean()),
        (BF16_TOTAL, bf16_total / len(losses)),
        ("Divide the sum by the number of batches.", losses.sum()),
    )
    other = f"The mean loss over the batches is {losses.mean():.5f}, not {found:.5f}."
    compare_with_faults(torch.tensor(found), losses.mean(), faults, other, 5e-4, 2.5e-5)
