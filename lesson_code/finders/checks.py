"""Checks of the exercises of lesson 14."""

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from course_utils.checking.checking import Faults, checks_exercise, diagnose, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import Batches

__all__ = [
    "check_find_largest_batch",
    "check_find_rate_safely",
    "check_measure_rates",
    "check_place_rates",
]


@checks_exercise()
def check_measure_rates(answer: Callable) -> None:
    """``answer(config, data) -> (low, high, edge, edge)``: two learning rates, same seeds."""
    judge_experiment(run_experiment(answer))


# ---- ★ The learning rates of a range test.


def _place_rates(lowest: float, highest: float, steps: int, parts: int = -1) -> list[float]:
    """The oracle; ``steps + parts`` factors lie between the first and the last one."""
    factor = (highest / lowest) ** (1 / max(1, steps + parts))
    return [lowest * factor**step for step in range(steps)]


def _place_linearly(lowest: float, highest: float, steps: int) -> list[float]:
    return torch.linspace(lowest, highest, steps, dtype=torch.float64).tolist()


def _place_after_first(lowest: float, highest: float, steps: int) -> list[float]:
    factor = (highest / lowest) ** (1 / steps)
    return [lowest * factor ** (step + 1) for step in range(steps)]


RATE_FAULTS: Faults = (
    ("The last learning rate is too low: between the first and the last one there are steps - 1 "
     "factors.",
     partial(_place_rates, parts=0)),
    ("The learning rates have a constant difference: they need a constant factor.",
     _place_linearly),
    ("The first learning rate is too high: it has to be the lowest one.",
     _place_after_first),
)  # fmt: skip


@checks_exercise(faults=RATE_FAULTS)
def check_place_rates(answer: Callable) -> None:
    """``answer(lowest, highest, steps) -> learning rates``."""
    for lowest, highest, steps in (
        (1e-4, 1.0, 9),
        (0.01, 0.5, 2),
        (1e-6, 10.0, 100),
        (0.1, 1.0, 1),
    ):
        try:
            found = answer(lowest, highest, steps)
        except (ArithmeticError, ValueError) as error:
            fail(f"With {steps} steps it stopped with {type(error).__name__}: {error}")
        require(found is not None, "Return a list of floats: is there a return on every path?")
        kind = type(found).__name__
        require(isinstance(found, list), f"Return a list of floats, not {kind}.")
        require(all(isinstance(rate, float) for rate in found), "Return a list of floats: .item().")
        require(len(found) == steps, f"With {steps} steps it returns {len(found)} learning rates.")
        diagnose(
            [math.log(max(rate, 1e-30)) for rate in found],
            lambda other: [math.log(rate) for rate in other(lowest, highest, steps)],  # noqa: B023
            _place_rates,
            RATE_FAULTS,
            f"From {lowest} to {highest} in {steps} steps they begin with "
            f"{_show(_place_rates(lowest, highest, steps))}, not {_show(found)}.",
        )
    for lowest, highest in ((0.0, 1.0), (0.1, 0.1), (-1.0, 1.0), (1.0, 0.1)):
        for steps in (5, 1):
            _require_refusal(answer, lowest, highest, steps)


def _show(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:.3g}" for rate in rates[:3])


def _require_refusal(answer: Callable, lowest: float, highest: float, steps: int) -> None:
    case = f"From {lowest} to {highest} in {steps} step{'s' if steps > 1 else ''}"
    try:
        answer(lowest, highest, steps)
    except ValueError:
        return
    except Exception as error:
        fail(f"{case} it raises {type(error).__name__}: raise a ValueError.")
    fail(f"{case} it raises nothing: raise a ValueError.")


# ---- ★★ The largest batch that fits.


@checks_exercise()
def check_find_largest_batch(answer: Callable) -> None:
    """``answer(fits, limit) -> size``: doubling, then halving the interval."""
    cases = [(37, 512), (64, 512), (1, 512), (0, 512), (900, 700), (700, 700), (600, 700)]
    cases += [(largest, limit) for limit in (1, 7, 8, 9) for largest in range(limit + 2)]
    for largest, limit in cases:
        asked: list[int] = []

        def fits(size: int) -> bool:
            asked.append(size)  # noqa: B023
            again = f"It does not end: it asks for {size} again and again."
            require(len(asked) < 1000, again)  # noqa: B023
            return size <= largest  # noqa: B023

        found = answer(fits, limit)
        right = min(largest, limit)
        case = f"With {largest} images that fit and a limit of {limit}"
        require(found is not None, "Return a number: is there a return on every path?")
        require(found <= limit, f"{case} it returns {found}: that is above the limit.")
        require(found == right, f"{case} it returns {found}, not {right}.")
        require(asked, f"{case} it asks for no size.")
        require(
            all(isinstance(size, int) and size >= 1 for size in asked),
            f"{case} it asks for sizes that are no whole numbers from 1.",
        )
        require(max(asked) <= limit, f"{case} it asks for {max(asked)}: that is above the limit.")
        highest = max(2, 2 * right)
        require(
            max(asked) <= highest,
            f"{case} it asks for {max(asked)} images, more than twice the answer: double from 1.",
        )
        most = 2 * math.ceil(math.log2(limit)) + 2
        require(
            len(asked) <= most,
            f"{case} it asks {len(asked)} times, more than {most}: halve the interval.",
        )


# ---- ★★★ Finding the bugs.


def _take_step(
    model: nn.Module,
    optimizer: Optimizer,
    inputs: Tensor,
    targets: Tensor,
    rate: float,
    groups: slice,
) -> float:
    """The loss before a step at the learning rate ``rate``."""
    outputs = model(inputs)
    error = F.cross_entropy(outputs, targets)
    optimizer.zero_grad()
    error.backward()
    for chosen in optimizer.param_groups[groups]:
        chosen.update(lr=rate)
    optimizer.step()
    return error.item()


def _smooth(losses: Sequence[float], beta: float, corrects: bool) -> list[float]:
    """Averages with the weights 1, beta, beta², … of the newest to the oldest loss."""
    smoothed, total, weight = [], 0.0, 0.0
    for loss in losses:
        total, weight = beta * total + loss, beta * weight + 1
        smoothed.append(total / (weight if corrects else 1 / (1 - beta)))
    return smoothed


def _find_rate(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Batches,
    learning_rates: Sequence[float],
    beta: float = 0.9,
    groups: slice = slice(None),
    copies: bool = True,
    restores_model: bool = True,
    restores_optimizer: bool = True,
    corrects: bool = True,
    divisor: float = 10.0,
) -> float:
    """A right answer, unless an argument plants a fault."""
    before = model.state_dict(), optimizer.state_dict()
    if copies:
        before = copy.deepcopy(before)
    optimizer_before = copy.deepcopy(optimizer.state_dict())
    losses: list[float] = []
    for (inputs, targets), rate in zip(batches, learning_rates, strict=True):
        losses.append(_take_step(model, optimizer, inputs, targets, rate, groups))
    smoothed = _smooth(losses, beta, corrects)
    if restores_model:
        model.load_state_dict(before[0])
    if restores_optimizer:
        optimizer.load_state_dict(optimizer_before)
    lowest = min(range(len(smoothed)), key=smoothed.__getitem__)
    return learning_rates[lowest] / divisor


VALUE_FAULTS: Faults = (
    ("The average begins at 0 and is not corrected: its first values are too low.",
     partial(_find_rate, corrects=False)),
    ("Only the first parameter group gets the learning rate.",
     partial(_find_rate, groups=slice(1))),
    ("That is the learning rate of the lowest loss: take a tenth of it.",
     partial(_find_rate, divisor=1.0)),
    ("The average is not corrected, and only the first parameter group gets the learning rate.",
     partial(_find_rate, corrects=False, groups=slice(1))),
    ("The network does not learn during the test: it has to be restored after the last step.",
     lambda model, *others: _find_rate(copy.deepcopy(model), *others)),
)  # fmt: skip
STATE_FAULTS: Faults = (
    ("The network is not as before: state_dict() is no copy.",
     partial(_find_rate, copies=False)),
    ("The network is not as before: state_dict() is no copy.",
     partial(_find_rate, restores_model=False)),
)  # fmt: skip
OPTIMIZER_FAULTS: Faults = (
    ("The optimizer is not as before: save and load its state, too.",
     partial(_find_rate, restores_optimizer=False)),
)  # fmt: skip

RATES = [1e-3 * 1.35**step for step in range(30)]


# Each: the seed, beta, and the optimizer.
RUNS: tuple[tuple[int, float, Callable], ...] = (
    (0, 0.9, partial(SGD, momentum=0.9)),
    (1, 0.9, partial(SGD, momentum=0.9)),
    (4, 0.9, partial(SGD, momentum=0.9)),
    (6, 0.5, AdamW),
)


def _run_finder(
    answer: Callable, seed: int, beta: float, make_optimizer: Callable
) -> tuple[float, Tensor, Tensor, Tensor]:
    """The learning rate, the network's state, the optimizer's state, its learning rates."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    inputs = torch.randn(31, 16, 6)
    batches = [(x, x[:, :3].argmax(dim=1)) for x in inputs]
    groups = [{"params": list(model[0].parameters())}, {"params": list(model[1:].parameters())}]
    groups[1]["lr"] = 0.02  # type: ignore[assignment]
    optimizer = make_optimizer(groups, lr=0.01)
    F.cross_entropy(model(batches[0][0]), batches[0][1]).backward()
    optimizer.step()  # now there is momentum
    found = answer(model, optimizer, batches[1:], RATES, beta)
    require(isinstance(found, float), "Return a number: is there a return?")
    require(model.training, "The network is left in eval mode.")
    state = torch.cat([tensor.detach().flatten() for tensor in model.state_dict().values()])
    moments = [t.flatten() for p in model.parameters() for t in optimizer.state[p].values()]
    rates = torch.tensor([group["lr"] for group in optimizer.param_groups])
    return found, state, torch.cat([torch.zeros(1), *moments]), rates


@checks_exercise(faults=[*VALUE_FAULTS, *STATE_FAULTS, *OPTIMIZER_FAULTS])
def check_find_rate_safely(answer: Callable) -> None:
    """``answer(model, optimizer, batches, learning_rates) -> learning rate``."""
    found = [_run_finder(answer, *run) for run in RUNS]
    # A fault has to give the same learning rate in all runs: in one run others may give it, too.
    diagnose(
        [run[0] for run in found],
        lambda other: [_run_finder(other, *run)[0] for run in RUNS],
        _find_rate,
        VALUE_FAULTS,
        "The learning rate is not a tenth of that with the lowest loss.",
    )
    parts = (
        (STATE_FAULTS, "The network is not as before: weights, and BatchNorm's statistics."),
        (
            OPTIMIZER_FAULTS,
            "The optimizer's moments are not as before: copy and load its state.",
        ),
        ((), "The learning rates of the groups are not as before."),
    )
    for number, (faults, otherwise) in enumerate(parts, start=1):
        for run, mine in zip(RUNS, found, strict=True):
            diagnose(
                mine[number],
                lambda other: _run_finder(other, *run)[number],  # noqa: B023
                _find_rate,
                faults,
                otherwise,
            )
