"""Checks of the exercises of lesson 07."""

import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from course_utils.checking.checking import checks_exercise, require
from course_utils.checking.oracles import Batches, flatten_parameters
from course_utils.checking.outputs import Output
from course_utils.checking.reports import judge_report
from course_utils.study_results import read_study

__all__ = [
    "check_find_spacing",
    "check_report_formats",
    "check_train_mixed",
    "check_train_scaled",
]

FORMATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGERS = {16: torch.int16, 32: torch.int32, 64: torch.int64}  # by their number of bits

# of 7 batches those that overflow, by which factor; max_norm, first scale, growth interval
CASES = (
    ((), 1.0, 99.0, 8.0, 100),
    ((1, 6), math.inf, 0.05, 8.0, 1),
    ((0, 3, 4), math.inf, 0.2, 8.0, 2),
    ((0, 4), 1e305, 0.2, 2.0**16, 3),  # the loss is finite, the scaled gradient is not
)
GRAD_BEFORE = 8.0  # each number in .grad before the call


# ---- ☆ Experiment: pure bf16 between the learning rates of the study.


@checks_exercise()
def check_report_formats(answer: Callable) -> None:
    """``answer() -> (fp32, pure, verdict)``: what the student measured, beside the study."""
    judge_report(answer(), "fp32", "pure bf16")
    study = read_study("mixed_precision")
    config = study.regimes["photographs"].config
    size = f"{config.num_train} photographs, {config.epochs} epochs"
    print(f"study, {size}; yours may lie between these, or elsewhere with fewer:")
    for regime in ("photographs", "photographs, low learning rate"):
        mean = study.difference(regime, "pure bf16", "fp32").mean
        lr = study.best[regime]["fp32"].removeprefix("lr ")  # type: ignore[index]
        print(f"    learning rate {lr}: {100 * mean:+.1f} points")


# ---- ★ How far to the next number.


def _next_float(value: float, steps: int, dtype: torch.dtype) -> float:
    """The number of ``dtype`` that is ``steps`` numbers above ``value``, or below if negative.

    Read as an integer, the bits of the next number are one more: `torch.nextafter` has no bf16.
    """
    bits = torch.tensor(value, dtype=dtype).view(INTEGERS[8 * dtype.itemsize])
    return (bits + steps).view(dtype).item()


@checks_exercise()
def check_find_spacing(answer: Callable) -> Iterator[Output]:
    """``answer(value, dtype) -> spacing``: compared with the bits, also of subnormal numbers."""
    for dtype in FORMATS:
        normal = torch.finfo(dtype).smallest_normal
        smallest = _next_float(0.0, 1, dtype)  # subnormal
        powers = (2.0, 0.5, 0.125, 1024.0, 2048.0, 4 * normal, normal, 4 * smallest)
        others = [_next_float(power, -1, dtype) for power in (1.0, *powers)]
        others += [torch.finfo(dtype).max / 2, smallest]
        for value in (1.0, 1.5, 3.0, 0.75, *powers, *others):
            found = answer(value, dtype)
            require(isinstance(found, float), f"Return a Python float, not {found!r}.")
            right = _next_float(value, 1, dtype) - value
            even = "all below smallest_normal are equally far apart."
            case = f"{dtype}, {value:.9g}: to the next number it is {right:.3g}, not {found:.3g};"
            # Divided, as the comparison squares, and the smallest numbers have no square.
            yield Output(
                found / right,
                even if value < normal else "it doubles at each power of two.",
                case,
                tolerance=0,
                fault_tolerance=1e-6,
            )


# ---- ★★ Scaled, clipped, scheduled.


def _prepare(number: int, dtype: torch.dtype, hidden: int) -> tuple[nn.Module, Batches]:
    """A model from images (8, 3, 2, 2) to logits (8, 4), and batches; always the same."""
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(0), dtype=dtype)
    layers = nn.Linear(12, hidden), nn.ReLU(), nn.Linear(hidden, 4)
    model = nn.Sequential(nn.Flatten(), *layers).to(dtype)
    for parameter in model.parameters():
        parameter.data = draw(parameter.shape) / 2
    return model, [(draw(8, 3, 2, 2), draw(8, 4).argmax(dim=1)) for _ in range(number)]


@checks_exercise()
def check_train_scaled(answer: Callable) -> Iterator[Output]:
    """``answer(model, optimizer, schedule, scaler, batches, max_norm) -> steps taken``."""
    for case in CASES:
        yield from _check_scaled(answer, case)


def _check_scaled(answer: Callable, case: tuple) -> Iterator[Output]:
    places, factor, max_norm, scale, growth_interval = case
    model, batches = _prepare(7, torch.float64, hidden=4)
    for place in places:
        images, targets = batches[place]
        batches[place] = images * factor, targets
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, GRAD_BEFORE)
    optimizer = SGD(model.parameters(), lr=0.5)
    steps: list[int] = []  # an entry for each call of optimizer.step that was not skipped
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=growth_interval)
    scaler.scale(torch.zeros(()))  # it has no scale before its first use
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        schedule = LambdaLR(optimizer, lambda step: 1 / (1 + step))
        try:
            returned = answer(model, optimizer, schedule, scaler, batches, max_norm)
        except RuntimeError as error:
            require(
                "step()" not in str(error),  # what GradScaler says then
                "A step comes after a step without update(), which each batch ends with.",
            )
            raise
    weights, right, calls = flatten_parameters(model), 7 - len(places), schedule.last_epoch
    require(
        weights.isfinite().all(),
        "The weights are nan: optimizer.step() takes each step, scaler.step(optimizer) skips some.",
    )
    require(
        len(steps) >= right,
        f"Of {right} steps {len(steps)} are taken: has each batch its zero_grad, and then its "
        "scaler.step?",
    )
    moved = f"The schedule is stepped {calls} times in {len(steps)} steps: once after each"
    require(calls <= len(steps), f"{moved}, but not after a skipped one.")
    grown = ", also if the scale has grown" if scaler.get_scale() > scale else ""
    require(calls == len(steps), f"{moved}{grown}.")
    yield Output(
        weights,
        "The weights are not those of one clipped step of SGD for each finite gradient.",
        tolerance=1e-4,
        fault_tolerance=5e-6,
    )
    require(returned == right, f"{right} of 7 batches led to a step, not {returned}.")
    yield Output(
        scaler.get_scale(),
        f"The scale ends at {scaler.get_scale():g}, not at {{right}}: a skipped step needs its "
        "update() too.",
    )


# ---- ★★★ Finding the bugs.


@checks_exercise()
def check_train_mixed(answer: Callable) -> Iterator[Output]:
    """``answer(model, batches, lr) -> mean loss``: bf16 activations, everything else fp32."""
    for number, lr in ((5, 0.05), (1, 0.05), (200, 0.001)):
        model, batches = _prepare(number, torch.float32, hidden=16)
        images, targets = batches[-1]
        batches[-1] = images[:3], targets[:3]  # the last batch of an epoch may be smaller
        yield from _check_mixed(answer, model, batches, lr)


def _check_mixed(
    answer: Callable, model: nn.Module, batches: Batches, lr: float
) -> Iterator[Output]:
    start = flatten_parameters(model)
    seen: list[tuple[Tensor, torch.dtype]] = []  # weights and dtype of the logits, each forward

    def record(module: nn.Module, _, logits: Tensor) -> None:
        seen.append((flatten_parameters(module), logits.dtype))

    model.register_forward_hook(record)
    found = answer(model, list(batches), lr)
    for weights, dtype in seen:
        # Weights that went to bf16 and back are fp32 again, but not those of the start.
        require(
            weights.dtype == torch.float32 and seen[0][0].equal(start),
            "The weights have bf16's digits in the forward pass: autocast needs no "
            "model.bfloat16().",
        )
        require(
            dtype == torch.bfloat16,
            f"The logits are {dtype}, not bf16: call the model inside autocast.",
        )
    weights = flatten_parameters(model)
    require(not weights.equal(start), "The weights of the model that is given never change.")
    require(not weights.equal(weights.bfloat16().float()), "The weights are rounded to bf16.")
    yield Output(
        weights - start,  # small beside the weights
        "The weights are not those of one step of SGD for each batch.",
        tolerance=0.02,
        fault_tolerance=1e-3,
    )
    require(isinstance(found, float), f"Return a Python float, not {type(found).__name__}.")
    yield Output(
        found,
        f"The mean loss over the batches is {{right}}; yours is {found:.5f}.",
        tolerance=5e-4,
        fault_tolerance=2.5e-5,
    )
