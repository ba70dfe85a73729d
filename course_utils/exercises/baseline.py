"""Checks of the exercises of lesson 01."""

import copy
import math
from collections.abc import Callable
from functools import partial
from numbers import Real

import numpy as np
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn

from course_utils.exercises.checking import Faults, checks_exercise, diagnose, fail, require
from course_utils.exercises.oracles import (
    Batches,
    flatten_parameters,
    record_modes,
    train_copy,
)

__all__ = ["check_evaluate", "check_paired_interval", "check_train_epoch"]

LR = 0.3
ROUNDING = 1e-4


def _find_interval(
    baseline: np.ndarray,
    treated: np.ndarray,
    quantile: Callable[[int], float] = lambda n: stats.t.ppf(0.975, n - 1),
    spread: Callable = lambda baseline, treated: (treated - baseline).std(ddof=1),
    divisor: Callable[[int], float] = math.sqrt,
) -> tuple[float, float]:
    """The oracle, unless it is given another part of half its width."""
    n = len(baseline)
    middle = (treated - baseline).mean()
    half_width = quantile(n) * spread(baseline, treated) / divisor(n)
    return middle - half_width, middle + half_width


# fmt: off
INTERVAL_FAULTS: Faults = (
    ("That of two unpaired samples: take the differences, one a seed.",
     lambda baseline, treated: stats.ttest_ind(treated, baseline).confidence_interval(0.95)),
    # as if the two columns were drawn apart: pairs share most of their scatter
    ("That of the two columns: take the spread of the differences.",
     partial(_find_interval, spread=lambda baseline, treated: np.hypot(
         baseline.std(ddof=1), treated.std(ddof=1)))),
    ("The standard deviation divides by n: use ddof=1.",
     partial(_find_interval, spread=lambda baseline, treated: (treated - baseline).std())),
    ("1.96 is the normal quantile: with n − 1 degrees of freedom t is larger.",
     partial(_find_interval, quantile=lambda n: 1.96)),
    ("95 % inside leaves 2.5 % on each side, so 0.975.",
     partial(_find_interval, quantile=lambda n: stats.t.ppf(0.95, n - 1))),
    ("The mean uses one degree of freedom, n − 1 are left.",
     partial(_find_interval, quantile=lambda n: stats.t.ppf(0.975, n))),
    ("That of one difference: the mean of n scatters less, divide by √n.",
     partial(_find_interval, divisor=lambda n: 1)),
    ("It divides by n: the mean of n scatters less by √n only.",
     partial(_find_interval, divisor=lambda n: n)),
)
# fmt: on


@checks_exercise(faults=INTERVAL_FAULTS)
def check_paired_interval(answer: Callable) -> None:
    """``answer(baseline, treated) -> (low, high)``: the 95 % t-interval of paired differences."""
    rng = np.random.default_rng(0)
    for n in (3, 5, 10):
        shared = rng.normal(60, 5, n)  # what both members of a pair have from their seed
        baseline = shared + rng.normal(0, 0.5, n)
        treated = shared + rng.normal(1, 0.5, n)
        found = answer(baseline.copy(), treated.copy())
        require(
            isinstance(found, tuple | list | np.ndarray) and len(found) == 2,
            "Return two numbers: (low, high).",
        )
        low, high = (float(edge) for edge in found)
        _compare_intervals(low, high, baseline, treated)


def _compare_intervals(low: float, high: float, baseline: np.ndarray, treated: np.ndarray) -> None:
    """Fail if the interval is wrong: first its order, then its middle, then its width."""
    require(low <= high, "The lower edge comes first: (low, high).")
    middle = (low + high) / 2
    right_middle = (treated - baseline).mean()
    turned = np.isclose(middle, -right_middle)
    require(not turned, "The sign is turned round: a difference is treated minus baseline.")
    require(
        np.isclose(middle, right_middle),
        "The middle of the interval is not the mean of the differences.",
    )
    right_low, right_high = _find_interval(baseline, treated)
    wrong = "narrow" if high - low < right_high - right_low else "wide"
    diagnose(
        [low, high],
        lambda other: other(baseline, treated),
        _find_interval,
        INTERVAL_FAULTS,
        f"For {len(baseline)} seeds the interval is too {wrong}: it is mean ± t · s / √n.",
        case="The width is wrong.",
    )


def _make_network() -> nn.Module:
    """From images (N, 3, 2, 2) to logits (N, 4), with BatchNorm."""
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))


def _draw_batches(sizes: tuple[int, ...]) -> Batches:
    """Images (N, 3, 2, 2), not of mean 0 and variance 1, so that BatchNorm changes them."""
    return [(2 * torch.randn(n, 3, 2, 2) + 1, torch.randint(0, 4, (n,))) for n in sizes]


def _read_number(found: object) -> float:
    """What an answer returned, if it is a number."""
    require(found is not None, "Nothing came back: is there a return?")
    require(
        not (isinstance(found, Tensor) and found.requires_grad),
        "What came back is a tensor that drags its history along: take the number, loss.item().",
    )
    if not isinstance(found, Real):
        fail("Return a plain Python float: .item() makes one.")
    return float(found)


@torch.no_grad()
def _evaluate(
    model: nn.Module,
    batches: Batches,
    average: Callable = lambda losses: torch.cat(losses).mean(),
) -> float:
    """The oracle, unless it is given another average of the images' losses, batch by batch."""
    frozen = copy.deepcopy(model).eval()
    losses = [F.cross_entropy(frozen(x), y, reduction="none") for x, y in batches]  # (N,) each
    return average(losses).item()


# fmt: off
EVALUATE_FAULTS: Faults = (
    ("That is the mean of the batches' means: the last batch is smaller, and each image counts "
     "once, so weigh each batch by its size.",
     partial(_evaluate, average=lambda losses: sum(loss.mean() for loss in losses) / len(losses))),
)
# fmt: on


@checks_exercise(faults=EVALUATE_FAULTS)
def check_evaluate(answer: Callable) -> None:
    """``answer(model, batches) -> float``: mean cross-entropy over images, model unchanged."""
    for was_training in (True, False):
        model = _make_network()
        batches = _draw_batches((16, 16, 3))
        model.train(was_training)
        before = copy.deepcopy(model.state_dict())
        found = answer(model, batches)
        gradients_on = torch.is_grad_enabled()
        torch.set_grad_enabled(True)  # an answer may have switched them off for everybody
        require(gradients_on, "Gradients are off for good: use with torch.no_grad().")
        value = _read_number(found)
        for name, tensor in model.state_dict().items():
            require(
                torch.equal(tensor, before[name]),
                f"{name} has changed: BatchNorm must be in eval mode while we only look.",
            )
        untouched = all(p.requires_grad and p.grad is None for p in model.parameters())
        require(untouched, "The parameters have gradients now, or cannot have them any more.")
        require(
            model.training == was_training,
            "Leave the model in the mode in which it came: a training goes on after this.",
        )
        diagnose(
            value,
            lambda other: other(model, batches),  # noqa: B023
            _evaluate,
            EVALUATE_FAULTS,
            f"The mean cross-entropy of the logits, in eval mode, is "
            f"{_evaluate(model, batches):.4f}; yours is {value:.4f}.",
            tolerance=ROUNDING / 2,
            fault_tolerance=ROUNDING / 20,
        )


@checks_exercise()
def check_train_epoch(answer: Callable) -> None:
    """``answer(model, batches, optimizer) -> float``: one step a batch, mean loss over batches."""
    model = _make_network().eval()
    batches = _draw_batches((8, 8, 5))
    # The model comes in eval mode, and a right answer trains it in train mode.
    start = copy.deepcopy(model).train()
    right, losses = train_copy(start, batches, [LR] * len(batches))
    modes = record_modes(model)  # of the forward passes; afterwards the model may be in either
    found = answer(model, batches, torch.optim.SGD(model.parameters(), lr=LR))
    require(all(modes), "The model came in eval mode and was trained in it: model.train().")
    weights = flatten_parameters(model)
    require(
        not weights.equal(flatten_parameters(start)),
        "No weight has changed: are the gradients there when the optimizer steps?",
    )
    require(
        torch.allclose(weights, flatten_parameters(right), atol=1e-5),
        "The weights differ from those of a correct loop: does each step see the gradient of "
        "its own batch alone, and cross_entropy the logits themselves?",
    )
    require(
        abs(_read_number(found) - losses.mean().item()) < ROUNDING,
        "The returned value is not the mean of the batches' losses.",
    )
