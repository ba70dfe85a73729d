"""Checks of the exercises of lesson 07."""

import copy
import math
import warnings
from collections.abc import Callable
from functools import partial, reduce

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from course_utils.exercises.checking import checks_exercise, require

__all__ = ["check_find_spacing", "check_train_mixed", "check_train_scaled"]

FORMATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
# of 7 batches those that overflow, by which factor; max_norm, first scale, growth interval
CASES = (
    ((), 1.0, 99.0, 8.0, 100),
    ((1, 6), math.inf, 3.0, 8.0, 1),
    ((0, 3, 4), math.inf, 0.2, 8.0, 2),
    ((0, 4), 1e305, 0.2, 2.0**16, 3),  # the loss is finite, the scaled gradient is not
)
NAN = "The weights are nan: optimizer.step() takes each step, scaler.step(optimizer) skips some."
MISSED = "Of {} steps {} are taken: has each batch its zero_grad, and then its scaler.step?"
NO_UPDATE = "A step comes after a step without update(), which each batch ends with."
STEPS = "The weights are not those of one clipped step of SGD for each finite gradient."
KEPT = "Older gradients count: zero_grad is missing."
EARLIER = "Gradients from before the call count in the first step: zero_grad comes too late."
LATER = "Older gradients count from the second step on: zero_grad belongs inside the loop."
# a sentence to the step that is taken: from gradient, scale, step before and number of steps
STEP_FAULTS = {
    "The gradient is not clipped.": lambda g, clip, *_: g,
    "It is clipped while it is scaled: unscale_ first.": lambda g, clip, s, *_: clip(g * s) / s,
    "The step is scaled: unscale_ its gradient.": lambda g, clip, s, *_: clip(g * s),
    "The loss is not scaled, but its gradient unscaled.": lambda g, clip, s, *_: clip(g / s),
    KEPT: lambda g, clip, s, old, n: clip(g + old / s),
    EARLIER: lambda g, clip, s, old, n: clip(g + (n == 0) * old / s),
    LATER: lambda g, clip, s, old, n: clip(g + (n > 0) * old / s),
    "schedule.step() comes too early.": lambda g, clip, s, old, n: clip(g) * (1 + n) / (2 + n),
}
ROUNDED = "The weights have bf16's digits in the forward pass: autocast needs no model.bfloat16()."
SGD_STEPS = "The weights are not those of one step of SGD for each batch."
NO_AUTOCAST = "The logits are {}, not bf16: call the model inside autocast."
WHOLE = "One autocast around all batches keeps its bf16 copy of the first weights: one a batch."
BF16_LOSS = "The loss has only the digits of bf16: take it inside autocast or of logits.float()."
BF16_TOTAL = "The total has only the digits of bf16: add up Python floats, loss.item()."


def _go(value: float, places: int, dtype: torch.dtype) -> float:
    """To a neighbour: read as an integer, the bits of the next number are one more."""
    bits = torch.tensor(value, dtype=dtype).view(getattr(torch, f"int{8 * dtype.itemsize}"))
    return (bits + places).view(dtype).item()


def _name_spacing_fault(value: float, dtype: torch.dtype, found: float) -> str:
    info, after, before = torch.finfo(dtype), _go(value, 1, dtype), _go(value, -1, dtype)
    case = f"{dtype}, {value:.9g}: to the next number it is {after - value:.3g}, not {found:.3g}"
    if value < info.smallest_normal:
        return f"{case}; all below smallest_normal are equally far apart."
    place = "log2 is rounded up" if math.frexp(after)[0] == 0.5 else "the power of two below counts"
    faults = {
        "eps is the spacing from 1 to 2 only: at each power of two it doubles.": info.eps,
        "It changes at powers of two only: it is not value · eps.": value * info.eps,
        f"{case}; that is the number before.": value - before,
        f"{case}; {place}.": 2 * (after - value),
    }
    return next((s for s, fault in faults.items() if found == fault), f"{case}.")


@checks_exercise
def check_find_spacing(answer: Callable) -> None:
    """``answer(value, dtype) -> spacing``: compared with the bits, also of subnormal numbers."""
    for dtype in FORMATS:
        normal, smallest = torch.finfo(dtype).smallest_normal, _go(0.0, 1, dtype)
        powers = (2.0, 0.5, 0.125, 1024.0, 2048.0, 4 * normal, normal, 4 * smallest)
        below = [_go(power, -1, dtype) for power in (1.0, *powers)]
        for value in (1.0, 1.5, 3.0, 0.75, *powers, *below, torch.finfo(dtype).max / 2, smallest):
            found = answer(value, dtype)
            require(isinstance(found, float), f"Return a Python float, not {found!r}.")
            if found != _go(value, 1, dtype) - value:
                require(False, _name_spacing_fault(value, dtype, found))


def _prepare(number: int, dtype: torch.dtype) -> tuple[nn.Module, list]:
    """A model and its batches, always the same."""
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(0), dtype=dtype)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4)).to(dtype)
    for parameter in model.parameters():
        parameter.data = draw(parameter.shape) / 2
    return model, [(draw(8, 3, 2, 2), draw(8, 4).argmax(dim=1)) for _ in range(number)]


def _flatten(model: nn.Module) -> Tensor:
    return parameters_to_vector(model.parameters()).detach()


def _clip(vector: Tensor, limit: float) -> Tensor:
    return vector * (limit / vector.norm()).clamp(max=1)


def _compare(found: Tensor, right: Tensor, faults: dict, other: str, tolerance: float) -> None:
    """Fail, if it is not right, in the words of the fault that gives what was found."""
    if not (found - right).norm() <= tolerance * right.norm():  # a nan is not close to anything
        for sentence, fault in faults.items():
            require(not (found - fault).norm() <= tolerance / 20 * fault.norm(), sentence)
        require(False, other)


def _step(model: nn.Module, batches: list, limit, scale, interval, change=None) -> tuple:
    """The oracle, without a scaler: weights, steps taken, and the scale there should be."""
    model, taken, since, clip = copy.deepcopy(model), 0, 0, partial(_clip, limit=limit)
    step = torch.full_like(_flatten(model), 8.0)
    for inputs, targets in batches:
        loss = F.cross_entropy(model(inputs), targets)
        gradient = parameters_to_vector(torch.autograd.grad(loss, list(model.parameters())))
        if not (gradient * scale).isfinite().all():
            scale, since = scale / 2, 0
            continue
        step = change(gradient, clip, scale, step, taken) if change else clip(gradient)
        vector_to_parameters(_flatten(model) - 0.5 / (1 + taken) * step, model.parameters())
        taken, since = taken + 1, (since + 1) % interval
        scale *= 1 if since else 2
    return _flatten(model), taken, scale


@checks_exercise
def check_train_scaled(answer: Callable) -> None:
    """``answer(model, optimizer, schedule, scaler, batches, max_norm) -> steps taken``."""
    for places, factor, limit, scale, interval in CASES:
        model, batches = _prepare(7, torch.float64)
        batches = [(x * factor if i in places else x, y) for i, (x, y) in enumerate(batches)]
        oracle = partial(_step, copy.deepcopy(model), batches, limit, scale, interval)
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 8.0)
        optimizer, steps = SGD(model.parameters(), lr=0.5), []
        optimizer.register_step_post_hook(lambda *_, s=steps: s.append(1))
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=interval)
        scaler.scale(torch.zeros(()))  # it has no scale before its first use
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            schedule = LambdaLR(optimizer, lambda step: 1 / (1 + step))
            try:
                found = answer(model, optimizer, schedule, scaler, list(batches), limit)
            except RuntimeError as error:
                require("step()" not in str(error), NO_UPDATE)  # what GradScaler says then
                raise
        weights, calls, number = _flatten(model), schedule.last_epoch, len(steps)
        (right, taken, right_scale), own = oracle(), scaler.get_scale()
        require(weights.isfinite().all(), NAN)
        require(number >= taken, MISSED.format(taken, number))
        moved = f"The schedule is stepped {calls} times in {number} steps: once after each"
        require(calls <= number, f"{moved}, but not after a skipped one.")
        require(calls == number, f"{moved}, also if the scale has grown.")
        faults = {sentence: oracle(change)[0] for sentence, change in STEP_FAULTS.items()}
        _compare(weights, right, faults, STEPS, 1e-4)
        require(found == taken, f"{taken} of {len(batches)} batches led to a step, not {found}.")
        require(own == right_scale, f"The scale ends at {own:g}, not at {right_scale:g}: update()?")


def _train(model: nn.Module, batches: list, lr, dtype=torch.float32, momentum=0, whole=False):
    """The oracle, with a fault if asked for: weights and losses of a trained copy."""
    model, losses = copy.deepcopy(model), []
    optimizer = SGD(model.parameters(), lr=lr, momentum=momentum)
    with torch.autocast("cpu", torch.bfloat16) if whole else torch.enable_grad():
        for images, targets in batches:
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(images)
            losses.append(F.cross_entropy(logits.to(dtype), targets))
            optimizer.zero_grad()
            losses[-1].backward()
            optimizer.step()
    return _flatten(model), torch.stack(losses).detach().float()


@checks_exercise
def check_train_mixed(answer: Callable) -> None:
    """``answer(model, batches, lr) -> mean loss``: bf16 activations, everything else fp32."""
    for number, lr in ((1, 0.05), (5, 0.05), (200, 0.001)):
        (model, batches), seen = _prepare(number, torch.float32), []
        oracle, start = partial(_train, copy.deepcopy(model), batches, lr), _flatten(model)
        model.register_forward_hook(lambda m, _, out, s=seen: s.append((_flatten(m), out.dtype)))
        found, weights = answer(model, list(batches), lr), _flatten(model)
        for before, logits in seen:
            require(before.dtype == torch.float32 and seen[0][0].equal(start), ROUNDED)
            require(logits == torch.bfloat16, NO_AUTOCAST.format(logits))
        require(not weights.equal(start), "The weights of the model that is given never change.")
        require(not weights.equal(weights.bfloat16().float()), "The weights are rounded to bf16.")
        right, losses = oracle()
        faults = {WHOLE: oracle(whole=True)[0] - start, KEPT: oracle(momentum=1)[0] - start}
        _compare(weights - start, right - start, faults, SGD_STEPS, 0.02)
        require(isinstance(found, float), f"Return a Python float, not {type(found).__name__}.")
        total = reduce(lambda before, x: (before + x).bfloat16(), losses, torch.tensor(0.0))
        faults = {BF16_LOSS: oracle(dtype=torch.bfloat16)[1].mean(), BF16_TOTAL: total / number}
        faults["Divide the sum by the number of batches."] = losses.sum()
        other = f"The mean loss over the batches is {losses.mean():.5f}, not {found:.5f}."
        _compare(torch.tensor(found), losses.mean(), faults, other, 5e-4)
