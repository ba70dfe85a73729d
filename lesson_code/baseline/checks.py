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
from torch.nn.utils import vector_to_parameters

from course_utils.checking.checking import Faults, checks_exercise, diagnose, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import (
    Batches,
    flatten_parameters,
    record_modes,
    train_copy,
    train_copy_accumulated,
    train_copy_without_zero_grad,
)

__all__ = [
    "check_evaluate",
    "check_measure_change",
    "check_paired_interval",
    "check_train_epoch",
]

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


def _find_alone(baseline: np.ndarray, treated: np.ndarray) -> tuple[float, float]:
    """The interval of the treated values alone, without the baseline."""
    return _find_interval(np.zeros_like(treated), treated)


# fmt: off
INTERVAL_FAULTS: Faults = (
    ("The sign is turned round: a difference is treated minus baseline.",
     lambda baseline, treated: _find_interval(treated, baseline)),
    ("The lower edge comes first: (low, high).",
     lambda baseline, treated: _find_interval(baseline, treated)[::-1]),
    ("Those are the mean and half the width: return both edges, (low, high).",
     lambda baseline, treated: (
         (treated - baseline).mean(), np.ptp(_find_interval(baseline, treated)) / 2)),
    ("That is the interval of the treated accuracies: subtract the baseline, seed by seed.",
     _find_alone),
    ("Those are percentiles of the differences: take mean ± t · s / √n.",
     lambda baseline, treated: np.percentile(treated - baseline, (2.5, 97.5))),
    ("The width is wrong. That of two unpaired samples: take the differences, one per seed.",
     lambda baseline, treated: stats.ttest_ind(treated, baseline).confidence_interval(0.95)),
    ("The width is wrong. That of two unpaired samples (Welch): take the differences.",
     lambda baseline, treated: stats.ttest_ind(
         treated, baseline, equal_var=False).confidence_interval(0.95)),
    # as if the two columns were drawn apart: pairs share most of their scatter
    ("The width is wrong. That of the two columns: take the spread of the differences.",
     partial(_find_interval, spread=lambda baseline, treated: np.hypot(
         baseline.std(ddof=1), treated.std(ddof=1)))),
    ("The width is wrong. The standard deviation divides by n: use ddof=1.",
     partial(_find_interval, spread=lambda baseline, treated: (treated - baseline).std())),
    ("The width is wrong. 1.96 is the normal quantile: with n − 1 degrees of freedom t is larger.",
     partial(_find_interval, quantile=lambda n: 1.96)),
    ("The width is wrong. 95 % inside leaves 2.5 % on each side, so 0.975.",
     partial(_find_interval, quantile=lambda n: stats.t.ppf(0.95, n - 1))),
    ("The width is wrong. The mean uses one degree of freedom, n − 1 are left.",
     partial(_find_interval, quantile=lambda n: stats.t.ppf(0.975, n))),
    ("The width is wrong. That of one difference: the mean of n scatters less, divide by √n.",
     partial(_find_interval, divisor=lambda n: 1)),
    ("The width is wrong. It divides by n: the mean of n scatters less by √n only.",
     partial(_find_interval, divisor=lambda n: n)),
    ("The width is wrong. It divides by √(n − 1): with ddof=1 the divisor is √n.",
     partial(_find_interval, divisor=lambda n: math.sqrt(n - 1))),
)
# fmt: on


@checks_exercise()
def check_measure_change(answer: Callable) -> None:
    """``answer(config, data) -> (baseline, changed, low, high)``: an experiment over pairs."""
    judge_experiment(run_experiment(answer))


@checks_exercise(faults=INTERVAL_FAULTS)
def check_paired_interval(answer: Callable) -> None:
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
        _compare_intervals(low, high, baseline, treated)


def _compare_intervals(low: float, high: float, baseline: np.ndarray, treated: np.ndarray) -> None:
    """Fail if the interval is wrong, with its fault, or else its order, its middle, its width."""
    right_low, right_high = _find_interval(baseline, treated)
    middle, right_middle = (low + high) / 2, (right_low + right_high) / 2
    half_width, right_half_width = (high - low) / 2, (right_high - right_low) / 2
    if half_width < 0:
        otherwise = "The lower edge comes first: (low, high)."
    elif not math.isclose(middle, right_middle, rel_tol=1e-4):
        otherwise = (
            f"The middle of the interval is {middle:.3f}, and the mean of the differences "
            f"{right_middle:.3f}."
        )
    else:
        wrong = "narrow" if half_width < right_half_width else "wide"
        otherwise = (
            f"For {len(baseline)} seeds the interval is too {wrong}: it is mean ± "
            f"{right_half_width:.3f}, that is t · s / √n, and yours is mean ± {half_width:.3f}."
        )
    diagnose(
        [low, high],
        lambda other: tuple(other(baseline, treated)),
        _find_interval,
        INTERVAL_FAULTS,
        otherwise,
    )


def _make_network() -> nn.Module:
    """From images (N, 3, 2, 2) to logits (N, 4), with BatchNorm."""
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))


def _draw_batches(sizes: tuple[int, ...]) -> Batches:
    """Images (N, 3, 2, 2), not of mean 0 and variance 1, so that BatchNorm changes them."""
    return [(2 * torch.randn(n, 3, 2, 2) + 1, torch.randint(0, 4, (n,))) for n in sizes]


def _name_mode(training: bool) -> str:
    return "train" if training else "eval"


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


Measure = Callable[[Tensor, Tensor], Tensor]  # measure(logits, targets): losses (N,)


def _measure_images(logits: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy of each image (N,)."""
    return F.cross_entropy(logits, targets, reduction="none")


@torch.no_grad()
def _evaluate(
    model: nn.Module,
    batches: Batches,
    average: Callable[[list[Tensor]], Tensor] = lambda losses: torch.cat(losses).mean(),
    measure: Measure = _measure_images,
    training: bool = False,
) -> float:
    """The oracle, unless it averages or measures the images' losses, or works, in another way.

    ``average`` gets the losses batch by batch; ``training`` is the mode of the model.
    """
    frozen = copy.deepcopy(model).train(training)
    return average([measure(frozen(x), y) for x, y in batches]).item()


# fmt: off
EVALUATE_FAULTS: Faults = (
    ("That is the mean of the batches' means: the last batch is smaller, and each image counts "
     "once, so weigh each batch by its size.",
     partial(_evaluate, average=lambda losses: torch.stack([x.mean() for x in losses]).mean())),
    ("cross_entropy applies a softmax itself: give it the logits, not probabilities.",
     partial(_evaluate, measure=lambda logits, targets: _measure_images(
         logits.softmax(dim=1), targets))),
    ("That is the loss in train mode, with the statistics of each batch: measure in eval mode.",
     partial(_evaluate, training=True)),
    ("That is the sum over the images: divide it by their number.",
     partial(_evaluate, average=lambda losses: torch.cat(losses).sum())),
    ("The sum is divided by the number of batches: divide it by the number of images.",
     partial(_evaluate, average=lambda losses: torch.cat(losses).sum() / len(losses))),
    ("The divisor counts all batches as large as the first one: the last batch is smaller.",
     partial(_evaluate, average=lambda losses:
             torch.cat(losses).sum() / (len(losses) * len(losses[0])))),
    ("The smaller last batch is left out: every image counts.",
     partial(_evaluate, average=lambda losses: torch.cat(losses[:-1]).mean())),
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
        trainable = all(p.requires_grad for p in model.parameters())
        require(trainable, "The parameters are frozen now: a training goes on after this.")
        without_gradients = all(p.grad is None for p in model.parameters())
        require(without_gradients, "The parameters have gradients now: use no backward here.")
        require(
            model.training == was_training,
            f"The model came in {_name_mode(was_training)} mode and is left in "
            f"{_name_mode(model.training)} mode: put it back.",
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


Train = Callable[[nn.Module, Batches], tuple[nn.Module, Tensor]]  # a trained copy, its losses


def _take_steps(
    model: nn.Module, batches: Batches, loss: Measure = F.cross_entropy
) -> tuple[nn.Module, Tensor]:
    """One step for each batch."""
    return train_copy(model, batches, [LR] * len(batches), loss)


def _take_one_step(model: nn.Module, batches: Batches) -> tuple[nn.Module, Tensor]:
    """One step for all batches, against the sum of their gradients."""
    return train_copy_accumulated(model, [batches], [LR * len(batches)])


def _forget_zero_grad(model: nn.Module, batches: Batches) -> tuple[nn.Module, Tensor]:
    """Each step goes against the sum of all gradients so far."""
    return train_copy_without_zero_grad(model, batches, [LR] * len(batches))


def _train_epoch(
    model: nn.Module,
    batches: Batches,
    optimizer: object,
    train: Train = _take_steps,
    average: Callable[[Tensor, Tensor], Tensor] = lambda losses, sizes: losses.mean(),
) -> float:
    """The oracle, unless it trains or averages (losses, sizes of the batches) in another way."""
    trained, losses = train(model.train(), batches)
    vector_to_parameters(flatten_parameters(trained), model.parameters())
    return average(losses, torch.tensor([len(targets) for _, targets in batches])).item()


# fmt: off
TRAIN_FAULTS: Faults = (
    ("A step sees the gradients of all batches so far, not the gradient of its own batch alone: "
     "call zero_grad before each backward.",
     partial(_train_epoch, train=_forget_zero_grad)),
    ("cross_entropy applies a softmax itself: give it the logits, not probabilities.",
     partial(_train_epoch, train=partial(
         _take_steps, loss=lambda logits, targets: F.cross_entropy(logits.softmax(1), targets)))),
    ("nll_loss takes the logarithms of probabilities: give cross_entropy the logits.",
     partial(_train_epoch, train=partial(
         _take_steps, loss=lambda logits, targets: F.nll_loss(logits.softmax(dim=1), targets)))),
    ("One step is taken for all batches: take one after each batch.",
     partial(_train_epoch, train=_take_one_step)),
    # there are three
    ("The loss is divided by the number of batches before backward: that shortens every step.",
     partial(_train_epoch, train=partial(
         _take_steps, loss=lambda logits, targets: F.cross_entropy(logits, targets) / 3))),
    ("The loss is the sum over a batch's images: take their mean.",
     partial(_train_epoch, train=partial(
         _take_steps, loss=partial(F.cross_entropy, reduction="sum")))),
    ("The returned value is the mean over images, not the mean of the batches' losses.",
     partial(_train_epoch, average=lambda losses, sizes: (losses * sizes).sum() / sizes.sum())),
    ("The returned value is the sum, not the mean of the batches' losses.",
     partial(_train_epoch, average=lambda losses, sizes: losses.sum())),
    ("The returned value is the last loss, not the mean of the batches' losses.",
     partial(_train_epoch, average=lambda losses, sizes: losses[-1])),
)
# fmt: on


@checks_exercise(faults=TRAIN_FAULTS)
def check_train_epoch(answer: Callable) -> None:
    """``answer(model, batches, optimizer) -> float``: one step per batch, mean loss."""
    model = _make_network().eval()  # a right answer trains it in train mode
    start = copy.deepcopy(model)
    batches = _draw_batches((8, 8, 5))
    modes = record_modes(model)  # of the forward passes; afterwards the model may be in either
    found = answer(model, batches, torch.optim.SGD(model.parameters(), lr=LR))
    require(all(modes), "The model came in eval mode and was trained in it: model.train().")
    weights = flatten_parameters(model)
    require(
        not weights.equal(flatten_parameters(start)),
        "No weight has changed: are the gradients there when the optimizer steps?",
    )

    def run(other: Callable) -> tuple[Tensor, float]:
        """Another answer's weights (P,) and value."""
        trained = copy.deepcopy(start)
        value = other(trained, batches, None)
        return flatten_parameters(trained), value

    diagnose(
        weights,
        lambda other: run(other)[0],
        _train_epoch,
        TRAIN_FAULTS,
        "The weights differ from those of a correct loop: each step sees the gradient of its "
        "own batch alone, and cross_entropy the logits themselves.",
    )
    value = _read_number(found)
    _, right = run(_train_epoch)
    diagnose(
        value,
        lambda other: run(other)[1],
        _train_epoch,
        TRAIN_FAULTS,
        f"The mean of the batches' losses, each before its step, is {right:.4f}; yours is "
        f"{value:.4f}.",
        tolerance=ROUNDING,
        fault_tolerance=ROUNDING / 10,
    )
