"""Checks of the exercises of lesson 07."""

import copy
import math
import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from course_utils.checking.checking import Faults, checks_exercise, diagnose, require
from course_utils.checking.experiment import EDGE_FAULTS, judge_experiment
from course_utils.checking.oracles import Batches, flatten_parameters
from course_utils.measure.paired import paired_difference

__all__ = [
    "check_find_spacing",
    "check_precision_experiment",
    "check_train_mixed",
    "check_train_scaled",
]

# What the planted trainings give: mean difference and spread of bf16 minus fp32, in [0, 1].
PLANTED = ((-0.08, 0.01), (0.0, 0.001), (0.01, 0.04))
PRECISIONS = ("32-true", "bf16-true")

FORMATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGERS = {16: torch.int16, 32: torch.int32, 64: torch.int64}  # by their number of bits

# of 7 batches those that overflow, by which factor; max_norm, first scale, growth interval
CASES = (
    ((), 1.0, 99.0, 8.0, 100),
    ((1, 6), math.inf, 0.05, 8.0, 1),
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

BF16_WEIGHTS = (
    "The weights have bf16's digits in the forward pass: autocast needs no model.bfloat16()."
)
NO_AUTOCAST = "The logits are {}, not bf16: call the model inside autocast."
BF16_LOSS = (
    "The loss has only the digits of bf16: take cross_entropy inside autocast, or of "
    "logits.float()."
)
OTHER_MIXED_STEPS = "The weights are not those of one step of SGD for each batch."


class _PlantedTrainings:
    """In place of trainings: accuracies that are known, and a record of what was asked for.

    It is called as ``train(variant, lr, seed)``.
    """

    def __init__(self, mean: float, spread: float):
        self.mean, self.spread = mean, spread
        self.found: dict[str, dict[tuple[float, int], float]] = {name: {} for name in PRECISIONS}

    def __call__(self, variant: str, lr: float, seed: int) -> float:
        require(variant in PRECISIONS, f"The variants are {' and '.join(PRECISIONS)}.")
        generator = torch.Generator().manual_seed(int(seed))
        shared, own = torch.randn(2, generator=generator, dtype=torch.float64).tolist()
        accuracy = 0.6 + 0.05 * math.tanh(shared) + 0.001 * math.log10(lr)
        if variant == "bf16-true":
            accuracy += self.mean + self.spread * math.tanh(own)
        self.found[variant][lr, int(seed)] = accuracy
        return accuracy


def _run_experiment(
    train: Callable,
    find_edges: Callable = paired_difference,
    seeds: tuple[int, ...] = (0, 1, 2, 3),
    other_seeds: tuple[int, ...] = (0, 1, 2, 3),
    other_lr: float = 1e-4,
    factor: float = 1.0,
) -> tuple:
    """A right answer; another value of an argument from ``find_edges`` on is a fault."""
    fp32 = [factor * train("32-true", 1e-4, seed) for seed in seeds]
    bf16 = [factor * train("bf16-true", other_lr, seed) for seed in other_seeds]
    found = find_edges(fp32, bf16)
    low, high = found if isinstance(found, tuple | list) else (found.low, found.high)
    return fp32, bf16, low, high


def _report_edges(edges: Callable) -> Callable:
    """A right answer whose interval is computed by ``edges(fp32, bf16)``."""
    return partial(
        _run_experiment, find_edges=lambda fp32, bf16: list(edges(np.array(fp32), np.array(bf16)))
    )


WRONG_EDGES = tuple((text, _report_edges(edges)) for text, edges in EDGE_FAULTS)
EXPERIMENT_FAULTS: Faults = (
    *WRONG_EDGES,
    (
        "Train both variants at the same seeds.",
        partial(_run_experiment, other_seeds=(4, 5, 6, 7)),
    ),
    (
        "Train both variants at the same learning rate.",
        partial(_run_experiment, other_lr=1e-3),
    ),
    (
        "A seed is there twice: its accuracy counts twice.",
        partial(_run_experiment, seeds=(0, 0, 1), other_seeds=(0, 0, 1)),
    ),
    (
        "With 2 paired seeds the interval says little: take 3 or more.",
        partial(_run_experiment, seeds=(0, 1), other_seeds=(0, 1)),
    ),
    (
        "Give accuracies from 0 to 1, not percent.",
        partial(_run_experiment, factor=100.0),
    ),
)


@checks_exercise(faults=EXPERIMENT_FAULTS)
def check_precision_experiment(answer: Callable) -> None:
    """``answer(train) -> (fp32, bf16, low, high)``: accuracies and their paired interval.

    The trainings are planted, so that the check takes no time and knows every accuracy.
    """
    for mean, spread in PLANTED:
        train = _PlantedTrainings(mean, spread)
        found = answer(train)
        require(found is not None, "Return fp32, bf16, low and high: is there a return?")
        judge_experiment(found)
        require(all(train.found.values()), "Train both variants: call train for each.")
        settings = [
            _find_settings(values, train.found[variant], variant)
            for values, variant in zip(found[:2], PRECISIONS, strict=True)
        ]
        lrs = {lr for used in settings for lr, _ in used}
        require(len(lrs) == 1, "Train both variants at the same learning rate.")
        require(settings[0] == settings[1], "Train both variants at the same seeds.")
        repeated = len(set(settings[0])) < len(settings[0])
        require(not repeated, "A seed is there twice: its accuracy counts twice.")


def _find_settings(
    values: Iterable[float], trained: dict[tuple[float, int], float], variant: str
) -> list[tuple[float, int]]:
    """Learning rate and seed of each accuracy, read off the record of the trainings."""
    by_value = {round(accuracy, 12): setting for setting, accuracy in trained.items()}
    given = [round(float(value), 12) for value in values]
    require(
        all(value in by_value for value in given),
        f"The accuracies of {variant} are not those of its trainings.",
    )
    return [by_value[value] for value in given]


def _next_float(value: float, steps: int, dtype: torch.dtype) -> float:
    """The number of ``dtype`` that is ``steps`` numbers above ``value``, or below if negative.

    Read as an integer, the bits of the next number are one more: `torch.nextafter` has no bf16.
    """
    bits = torch.tensor(value, dtype=dtype).view(INTEGERS[8 * dtype.itemsize])
    return (bits + steps).view(dtype).item()


def _find_spacing(value: float, dtype: torch.dtype) -> float:
    """The oracle."""
    return _next_float(value, 1, dtype) - value


# fmt: off
SPACING_FAULTS: Faults = (
    # Only just below a power of two this is wrong.
    ("log2 is rounded up.",
     lambda value, dtype: _find_spacing(_next_float(value, 1, dtype), dtype)),
    ("eps is the spacing from 1 to 2 only: at each power of two it doubles.",
     lambda value, dtype: torch.finfo(dtype).eps),
    ("it changes at powers of two only: it is not value · eps.",
     lambda value, dtype: value * torch.finfo(dtype).eps),
    ("that is the number before.",
     lambda value, dtype: value - _next_float(value, -1, dtype)),
    ("that is the spacing from the next power of two on.",
     lambda value, dtype: 2 * _find_spacing(value, dtype)),
    ("that is the spacing in float64.",
     lambda value, dtype: _find_spacing(value, torch.float64)),
    ("that is the spacing in float32.",
     lambda value, dtype: _find_spacing(value, torch.float32)),
)
# fmt: on


@checks_exercise(faults=SPACING_FAULTS)
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
            right = _find_spacing(value, dtype)
            case = f"{dtype}, {value:.9g}: to the next number it is {right:.3g}, not {found:.3g};"
            even = f"{case} all below smallest_normal are equally far apart."
            require(found == right or value >= normal, even)
            diagnose(
                # Divided, as the comparison squares, and the smallest numbers have no square.
                found / right,
                lambda other: other(value, dtype) / right,  # noqa: B023
                _find_spacing,
                SPACING_FAULTS,
                "it doubles at each power of two.",
                case=case,
                tolerance=0,
            )


def _prepare(number: int, dtype: torch.dtype) -> tuple[nn.Module, Batches]:
    """A model from images (8, 3, 2, 2) to logits (8, 4), and batches; always the same."""
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(0), dtype=dtype)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4)).to(dtype)
    for parameter in model.parameters():
        parameter.data = draw(parameter.shape) / 2
    return model, [(draw(8, 3, 2, 2), draw(8, 4).argmax(dim=1)) for _ in range(number)]


def _step_and_update(scaler: torch.amp.GradScaler, optimizer: SGD) -> None:
    scaler.step(optimizer)
    scaler.update()


def _train_scaled(
    model: nn.Module,
    optimizer: SGD,
    schedule: LambdaLR,
    scaler: torch.amp.GradScaler,
    batches: Batches,
    max_norm: float,
    zeroes: Callable[[int], bool] = lambda number: True,
    scales: bool = True,
    unscales: bool = True,
    clip: Callable[[Iterable[Tensor], float], object] = nn.utils.clip_grad_norm_,
    take_step: Callable[[torch.amp.GradScaler, SGD], object] = _step_and_update,
    schedules_first: bool = False,
) -> int:
    """The oracle; another value of an argument from ``zeroes`` on is a fault.

    ``zeroes(number)``: whether there is a zero_grad before the batch with this number.
    """
    taken = 0
    for number, (images, targets) in enumerate(batches):
        if zeroes(number):
            optimizer.zero_grad()
        loss = F.cross_entropy(model(images), targets)
        (scaler.scale(loss) if scales else loss).backward()
        if unscales:
            scaler.unscale_(optimizer)
        clip(model.parameters(), max_norm)
        if schedules_first:
            schedule.step()
        before = scaler.get_scale()
        take_step(scaler, optimizer)
        if scaler.get_scale() >= before:
            taken += 1
            if not schedules_first:
                schedule.step()
    return taken


# fmt: off
SCALED_FAULTS: Faults = (
    ("The gradient is not clipped.",
     partial(_train_scaled, clip=lambda *_: None)),
    ("Each number of the gradient is clipped: clip its norm.",
     partial(_train_scaled, clip=nn.utils.clip_grad_value_)),
    ("It is clipped while it is scaled: unscale_ first.",
     partial(_train_scaled, unscales=False)),
    ("The step is scaled: unscale_ its gradient.",
     partial(_train_scaled, unscales=False, take_step=lambda scaler, optimizer: optimizer.step())),
    ("The loss is not scaled, but its gradient unscaled.",
     partial(_train_scaled, scales=False)),
    (NO_ZERO_GRAD,
     partial(_train_scaled, zeroes=lambda number: False)),
    ("Gradients from before the call count in the first step: zero_grad comes too late.",
     partial(_train_scaled, zeroes=lambda number: number > 0)),
    ("Older gradients count from the second step on: zero_grad belongs inside the loop.",
     partial(_train_scaled, zeroes=lambda number: number == 0)),
    ("schedule.step() comes too early.",
     partial(_train_scaled, schedules_first=True)),
)
# fmt: on


@dataclass(frozen=True)
class _ScaledTraining:
    """What an answer leaves behind."""

    weights: Tensor  # (P,)
    steps: int  # of the optimizer, without those that were skipped
    calls: int  # of schedule.step
    scale: float  # after the last batch
    returned: object


def _run_scaled(answer: Callable, case: tuple) -> _ScaledTraining:
    places, factor, max_norm, scale, growth_interval = case
    model, batches = _prepare(7, torch.float64)
    for place in places:
        images, targets = batches[place]
        batches[place] = (images * factor, targets)
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
            returned = answer(model, optimizer, schedule, scaler, batches, max_norm)
        except RuntimeError as error:
            require("step()" not in str(error), NO_UPDATE)  # what GradScaler says then
            raise
    return _ScaledTraining(
        weights=flatten_parameters(model),
        steps=len(steps),
        calls=schedule.last_epoch,
        scale=scaler.get_scale(),
        returned=returned,
    )


@checks_exercise(faults=SCALED_FAULTS)
def check_train_scaled(answer: Callable) -> None:
    """``answer(model, optimizer, schedule, scaler, batches, max_norm) -> steps taken``."""
    for case in CASES:
        found = _run_scaled(answer, case)
        right = _run_scaled(_train_scaled, case)
        require(found.weights.isfinite().all(), NAN)
        require(found.steps >= right.steps, MISSED.format(right.steps, found.steps))
        moved = f"The schedule is stepped {found.calls} times in {found.steps} steps: once after"
        require(found.calls <= found.steps, f"{moved} each, but not after a skipped one.")
        grown = ", also if the scale has grown" if right.scale > case[3] else ""
        require(found.calls == found.steps, f"{moved} each{grown}.")
        diagnose(
            found.weights,
            lambda other: _run_scaled(other, case).weights,  # noqa: B023
            _train_scaled,
            SCALED_FAULTS,
            OTHER_STEPS,
            tolerance=1e-4,
            fault_tolerance=5e-6,
        )
        led = f"{right.steps} of 7 batches led to a step, not {found.returned}."
        require(found.returned == right.steps, led)
        ends = f"The scale ends at {found.scale:g}, not at {right.scale:g}:"
        require(found.scale == right.scale, f"{ends} a skipped step needs its update() too.")


def _train_mixed(
    model: nn.Module,
    batches: Batches,
    lr: float,
    compute_loss: Callable[[Tensor, Tensor], Tensor] = lambda logits, targets: F.cross_entropy(
        logits.float(), targets
    ),
    total_dtype: torch.dtype = torch.float64,
    weigh: Callable[[Tensor], int] = lambda targets: 1,
    zeroes: bool = True,
    one_autocast: bool = False,
) -> float:
    """The oracle; another value of an argument from ``compute_loss`` on is a fault.

    ``weigh(targets)``: how much the loss of a batch with these targets counts in the mean.
    """
    autocast = partial(torch.autocast, "cpu", torch.bfloat16)
    optimizer = SGD(model.parameters(), lr=lr)
    total, weights = torch.zeros((), dtype=total_dtype), 0
    with autocast() if one_autocast else nullcontext():
        for images, targets in batches:
            with autocast():
                logits = model(images)
            loss = compute_loss(logits, targets)
            if zeroes:
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * weigh(targets)
            weights += weigh(targets)
    return (total / weights).item()


# fmt: off
MIXED_STEP_FAULTS: Faults = (
    ("One autocast around all batches keeps its bf16 copy of the first weights: one per batch.",
     partial(_train_mixed, one_autocast=True)),
    (NO_ZERO_GRAD,
     partial(_train_mixed, zeroes=False)),
)
MEAN_LOSS_FAULTS: Faults = (
    (BF16_LOSS, partial(_train_mixed, compute_loss=F.cross_entropy)),
    # Of an own log_softmax, which autocast on a CPU leaves in bf16, only the mean is fp32.
    (BF16_LOSS, partial(_train_mixed, compute_loss=lambda logits, targets:
                        F.nll_loss(logits.log_softmax(dim=1).float(), targets))),
    ("The total has only the digits of bf16: add up Python floats, loss.item().",
     partial(_train_mixed, total_dtype=torch.bfloat16)),
    ("Divide the sum by the number of batches.",
     lambda model, batches, lr: _train_mixed(model, batches, lr) * len(batches)),
    ("That is the mean over the images: each batch counts alike in a mean over the batches.",
     partial(_train_mixed, weigh=len)),
)
# fmt: on


@checks_exercise(faults=(*MIXED_STEP_FAULTS, *MEAN_LOSS_FAULTS))
def check_train_mixed(answer: Callable) -> None:
    """``answer(model, batches, lr) -> mean loss``: bf16 activations, everything else fp32."""
    for number, lr in ((5, 0.05), (1, 0.05), (200, 0.001)):
        model, batches = _prepare(number, torch.float32)
        images, targets = batches[-1]
        batches[-1] = images[:3], targets[:3]  # the last batch of an epoch may be smaller
        _check_mixed_training(answer, model, batches, lr)


def _check_mixed_training(answer: Callable, model: nn.Module, batches: Batches, lr: float) -> None:
    given = copy.deepcopy(model)
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

    def run(other: Callable) -> tuple[Tensor, float]:
        """The changes of the weights, which are small beside the weights, and the mean loss."""
        again = copy.deepcopy(given)
        mean = other(again, batches, lr)
        return flatten_parameters(again) - start, mean

    diagnose(
        weights - start,
        lambda other: run(other)[0],
        _train_mixed,
        MIXED_STEP_FAULTS,
        OTHER_MIXED_STEPS,
        tolerance=0.02,
        fault_tolerance=1e-3,
    )
    require(isinstance(found, float), f"Return a Python float, not {type(found).__name__}.")
    mean = run(_train_mixed)[1]
    diagnose(
        found,
        lambda other: run(other)[1],
        _train_mixed,
        MEAN_LOSS_FAULTS,
        f"The mean loss over the batches is {mean:.5f}, not {found:.5f}.",
        tolerance=5e-4,
        fault_tolerance=2.5e-5,
    )
