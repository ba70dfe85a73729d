"""Checks of the exercises of lesson 14."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from course_utils.checking.checking import checks_exercise, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import flatten_parameters
from course_utils.checking.outputs import Output

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


@checks_exercise()
def check_place_rates(answer: Callable) -> Iterator[Output]:
    """``answer(lowest, highest, steps) -> learning rates``."""
    cases = [(1e-4, 1.0, 9), (0.01, 0.5, 2), (1e-6, 10.0, 100), (0.1, 1.0, 1)]
    for lowest, highest, steps in cases:
        try:
            found = answer(lowest, highest, steps)
        except (ArithmeticError, ValueError) as error:
            fail(f"With {steps} steps it stopped with {type(error).__name__}: {error}")
        require(found is not None, "Return a list of floats: is there a return on every path?")
        kind = type(found).__name__
        require(isinstance(found, list), f"Return a list of floats, not {kind}.")
        require(all(isinstance(rate, float) for rate in found), "Return a list of floats: .item().")
        require(len(found) == steps, f"With {steps} steps it returns {len(found)} learning rates.")
        for number, rate in enumerate(found):
            yield Output(
                rate,
                f"From {lowest} to {highest} in {steps} steps the learning rate with index "
                f"{number} is {{right}}, not {rate:.4g}.",
                tolerance=1e-4,
            )
    for lowest, highest in ((0.0, 1.0), (0.1, 0.1), (-1.0, 1.0), (1.0, 0.1)):
        for steps in (5, 1):
            case = f"From {lowest} to {highest} in {steps} step{'s' if steps > 1 else ''} it raises"
            try:
                answer(lowest, highest, steps)
            except ValueError:
                continue
            except Exception as error:
                fail(f"{case} {type(error).__name__}: raise a ValueError.")
            fail(f"{case} nothing: raise a ValueError.")


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
        case = f"With {largest} images that fit and a limit of {limit} it"
        require(found is not None, "Return a number: is there a return on every path?")
        require(found == right, f"{case} returns {found}, not {right}.")
        require(asked, f"{case} asks for no size.")
        whole = all(isinstance(size, int) and size >= 1 for size in asked)
        require(whole, f"{case} asks for sizes that are no whole numbers from 1.")
        large = f"{case} asks for {max(asked)}"
        require(max(asked) <= limit, f"{large}: that is above the limit.")
        twice = f"{large} images, more than twice the answer: double from 1."
        require(max(asked) <= max(2, 2 * right), twice)
        most = 2 * math.ceil(math.log2(limit)) + 2
        often = f"{case} asks {len(asked)} times, more than {most}: halve the interval."
        require(len(asked) <= most, often)


# ---- ★★★ Finding the bugs.


# Each: the seed, beta, and the optimizer.
RUNS: tuple[tuple[int, float, Callable], ...] = (
    (0, 0.9, partial(SGD, momentum=0.9)),
    (1, 0.9, partial(SGD, momentum=0.9)),
    (4, 0.9, partial(SGD, momentum=0.9)),
    (6, 0.5, AdamW),
)


def _copy_state(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """Weights, BatchNorm's statistics, the optimizer's moments, its learning rates."""
    moments = [t.flatten() for p in model.parameters() for t in optimizer.state[p].values()]
    return [
        flatten_parameters(model),
        torch.cat([buffer.flatten() for buffer in model.buffers()]),
        torch.cat([torch.zeros(1), *moments]),
        torch.tensor([group["lr"] for group in optimizer.param_groups]),
    ]


def _run_finder(
    answer: Callable, seed: int, beta: float, make_optimizer: Callable
) -> tuple[float, list[bool]]:
    """The learning rate, and for each part of the state whether it is as before."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    batches = [(x, x[:, :3].argmax(dim=1)) for x in torch.randn(31, 16, 6)]
    groups = [{"params": model[0].parameters()}, {"params": model[1:].parameters(), "lr": 0.02}]
    optimizer = make_optimizer(groups, lr=0.01)
    F.cross_entropy(model(batches[0][0]), batches[0][1]).backward()
    optimizer.step()  # now there is momentum
    before = _copy_state(model, optimizer)
    found = answer(model, optimizer, batches[1:], [1e-3 * 1.35**step for step in range(30)], beta)
    require(isinstance(found, float), "Return a number: is there a return?")
    require(model.training, "The network is left in eval mode.")
    return found, list(map(torch.equal, before, _copy_state(model, optimizer)))


@checks_exercise()
def check_find_rate_safely(answer: Callable) -> Iterator[Output]:
    """``answer(model, optimizer, batches, learning_rates) -> learning rate``."""
    found = [_run_finder(answer, *run) for run in RUNS]
    # A fault has to give the same learning rate in all runs: in one run others may give it, too.
    otherwise = "The learning rate is not a tenth of that with the lowest loss."
    yield Output([rate for rate, _ in found], otherwise)
    weights, statistics, moments, rates = map(all, zip(*(kept for _, kept in found), strict=True))
    require(weights, "The network is not as before: state_dict() is no copy.")
    require(statistics, "The network is not as before: BatchNorm's statistics belong to it.")
    require(moments or rates, "The optimizer is not as before: save and load its state, too.")
    require(moments, "The optimizer's moments are not as before: copy and load its state.")
    require(rates, "The learning rates of the groups are not as before.")
