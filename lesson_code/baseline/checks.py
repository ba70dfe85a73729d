"""Checks of the exercises of lesson 01."""

import copy
import math
from collections.abc import Callable, Iterator
from numbers import Real

import numpy as np
import torch
from torch import Tensor, nn

from course_utils.checking.checking import checks_exercise, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import Batches, flatten_parameters, record_modes
from course_utils.checking.outputs import Output
from course_utils.measure.paired import paired_difference

__all__ = ["check_evaluate", "check_measure_change", "check_paired_interval", "check_train_epoch"]


@checks_exercise()
def check_measure_change(answer: Callable) -> None:
    """``answer(config, data) -> (baseline, changed, low, high)``: an experiment over pairs."""
    judge_experiment(run_experiment(answer))


@checks_exercise()
def check_paired_interval(answer: Callable) -> Iterator[Output]:
    """``answer(baseline, treated) -> (low, high)``: the 95 % t-interval of paired differences."""
    rng = np.random.default_rng(0)
    for n in (3, 5, 10):
        shared = rng.normal(60, 5, n)  # what both members of a pair have from their seed
        baseline = shared + rng.normal(0, 0.5, n)
        treated = shared + rng.normal(1, 0.5, n)
        given = baseline.copy(), treated.copy()
        found = answer(*given)
        require(
            isinstance(found, tuple | list | np.ndarray) and len(found) == 2,
            "Return two numbers: (low, high).",
        )
        untouched = np.array_equal(given, (baseline, treated))
        require(untouched, "It changes the arrays that it is given: compute new ones.")
        low, high = (float(edge) for edge in found)
        yield Output([low, high], _describe_interval(low, high, baseline, treated))


def _describe_interval(low: float, high: float, baseline: np.ndarray, treated: np.ndarray) -> str:
    """What is wrong with an interval: its order, its middle, or its width."""
    right = paired_difference(baseline, treated)
    middle, width, right_width = (low + high) / 2, (high - low) / 2, (right.high - right.low) / 2
    if width < 0:
        return "The lower edge comes first: (low, high)."
    if not math.isclose(middle, right.mean, rel_tol=1e-4):
        return (
            f"The middle of the interval is {middle:.3f}, and the mean of the differences "
            f"{right.mean:.3f}."
        )
    return (
        f"For {right.n} seeds the interval is too {'narrow' if width < right_width else 'wide'}: "
        f"it is mean ± {right_width:.3f}, that is t · s / √n, and yours is mean ± {width:.3f}."
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


@checks_exercise()
def check_evaluate(answer: Callable) -> Iterator[Output]:
    """``answer(model, batches) -> float``: mean cross-entropy over images, model unchanged."""
    for was_training, mode, other in ((True, "train", "eval"), (False, "eval", "train")):
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
        trainable = all(p.requires_grad for p in model.parameters())
        require(trainable, "The parameters are frozen now: a training goes on after this.")
        without_gradients = all(p.grad is None for p in model.parameters())
        require(without_gradients, "The parameters have gradients now: use no backward here.")
        require(
            model.training == was_training,
            f"The model came in {mode} mode and is left in {other} mode: put it back.",
        )
        yield Output(
            value,
            "The mean cross-entropy of the logits, in eval mode, is {right}; yours is "
            f"{value:.4f}.",
            tolerance=5e-5,
            fault_tolerance=5e-6,
        )


@checks_exercise()
def check_train_epoch(answer: Callable) -> Iterator[Output]:
    """``answer(model, batches, optimizer) -> float``: one step per batch, mean loss."""
    model = _make_network().eval()  # a right answer trains it in train mode
    start = flatten_parameters(model)
    batches = _draw_batches((8, 8, 5))
    modes = record_modes(model)  # of the forward passes; afterwards the model may be in either
    found = answer(model, batches, torch.optim.SGD(model.parameters(), lr=0.3))
    require(all(modes), "The model came in eval mode and was trained in it: model.train().")
    weights = flatten_parameters(model)
    require(
        not weights.equal(start),
        "No weight has changed: are the gradients there when the optimizer steps?",
    )
    yield Output(
        weights,
        "The weights differ from those of a correct loop: each step sees the gradient of its "
        "own batch alone, and cross_entropy the logits themselves.",
    )
    value = _read_number(found)
    yield Output(
        value,
        "The mean of the batches' losses, each before its step, is {right}; yours is "
        f"{value:.4f}.",
        tolerance=1e-4,
        fault_tolerance=1e-5,
    )
