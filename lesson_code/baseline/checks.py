"""Checks of the exercises of lesson 01."""

import math
from collections.abc import Callable, Iterator
from numbers import Real

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from course_utils.checking.checking import checks_exercise, fail, require
from course_utils.checking.experiment import read_accuracies
from course_utils.checking.oracles import Batches, flatten_parameters, record_modes
from course_utils.checking.outputs import Output
from course_utils.measure.paired import paired_difference
from course_utils.study_results import read_study

__all__ = [
    "check_find_fair_gain",
    "check_paired_interval",
    "check_report_noise",
    "check_train_epoch",
]

MIN_SEEDS = 3  # of an experiment
NOISE_TOLERANCE = 0.01  # of a noise floor that may be typed with three digits


@checks_exercise()
def check_report_noise(answer: Callable) -> None:
    """``answer() -> (accuracies, noise floor)``: what the student measured, beside the study."""
    found = answer()
    require(
        isinstance(found, tuple | list) and len(found) == 2,
        "Return two things: the accuracies of your seeds, and their noise floor in points.",
    )
    accuracies = _read_seeds(found[0])
    std, low, high = _estimate_noise(accuracies)
    _compare_noise(found[1], accuracies, std)
    print(f"{len(accuracies)} seeds: {std:.2f} points, 95 % interval {low:.2f} to {high:.2f}")
    study = read_study("baseline")
    for regime in study.regimes:
        theirs, *_ = _estimate_noise(study.values(regime, "baseline"))
        place = "inside" if low <= theirs <= high else "outside"
        print(f"study, {regime}: {theirs:.2f} points, {place} your interval")


def _read_seeds(values: object) -> np.ndarray:
    """One accuracy in [0, 1] for each of three seeds or more, if it is that."""
    accuracies = read_accuracies(values)
    require(
        len(accuracies) >= MIN_SEEDS,
        f"{len(accuracies)} accuracies say little about a spread: train {MIN_SEEDS} seeds or more.",
    )
    require(np.ptp(accuracies) > 0, "All accuracies are equal: has the seed reached the training?")
    return accuracies


def _estimate_noise(accuracies: np.ndarray) -> tuple[float, float, float]:
    """Standard deviation in points, and the edges of its 95 % interval by χ²."""
    df, std = len(accuracies) - 1, 100 * float(np.std(accuracies, ddof=1))
    low, high = std * np.sqrt(df / stats.chi2.ppf((0.975, 0.025), df))
    return std, float(low), float(high)


def _compare_noise(found: object, accuracies: np.ndarray, std: float) -> None:
    """Fail unless ``found`` is the noise floor of the accuracies, and say what it is instead."""
    if isinstance(found, np.generic):
        found = found.item()
    if not isinstance(found, Real):
        fail("The noise floor has to be a number, in points.")
    value = float(found)
    if math.isclose(value, std, rel_tol=NOISE_TOLERANCE):
        return
    faults = {
        "That is the standard deviation in the unit of the accuracies: one point is 0.01.": std
        / 100,
        "The standard deviation divides by n: use ddof=1.": 100 * np.std(accuracies),
        "That is the variance: take its root.": 1e4 * np.var(accuracies, ddof=1),
        "That is the distance of the best seed from the worst: take the standard deviation.": 100
        * np.ptp(accuracies),
    }
    for sentence, wrong in faults.items():
        if math.isclose(value, wrong, rel_tol=NOISE_TOLERANCE):
            fail(sentence)
    fail(f"The noise floor of these accuracies is {std:.2f} points, and yours is {value:.4g}.")


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


@checks_exercise()
def check_find_fair_gain(answer: Callable) -> Iterator[Output]:
    """``answer(baseline, best, k) -> (gain, probability)``, against the best of k baselines."""
    rng = np.random.default_rng(0)
    for n, k, rank, lead in ((6, 2, 5, 0.0), (8, 3, 6, 0.0), (7, 1, 4, 0.0), (5, 5, 4, 0.01)):
        baseline = rng.normal(0.6, 0.02, n)
        best = float(np.sort(baseline)[rank]) + lead  # with no lead, luck reaches it, too
        given = baseline.copy()
        found = answer(given, best, k)
        require(
            isinstance(found, tuple | list | np.ndarray) and len(found) == 2,
            "Return two numbers: the gain, and the probability.",
        )
        require(np.array_equal(given, baseline), "It changes the array that it is given.")
        gain, probability = (float(number) for number in found)
        case = f"With {n} seeds and k = {k}:"
        yield Output(
            gain,
            f"The gain over the expected best of {k} is {{right}}, and yours is {gain:.4g}.",
            case,
            tolerance=1e-4,
        )
        yield Output(
            probability,
            f"Luck is as good in {{right}} of all choices, and yours is {probability:.4g}.",
            case,
            tolerance=1e-4,
        )
