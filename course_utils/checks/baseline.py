"""Checks of the exercises of lesson 01."""

import copy
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from scipy import stats
from torch import nn

from course_utils.checks.checking import checks_exercise, require

__all__ = ["check_evaluate", "check_paired_interval", "check_train_epoch"]


@checks_exercise
def check_paired_interval(answer: Callable) -> None:
    """``answer(baseline, treated) -> (low, high)``: the 95 % t-interval of paired differences."""
    rng = np.random.default_rng()
    for n in (3, 5, 10):
        shared = rng.normal(60, 5, n)  # what both members of a pair have from their seed
        baseline, treated = shared + rng.normal(0, 0.5, n), shared + rng.normal(1, 0.5, n)
        low, high = (float(edge) for edge in answer(baseline, treated))
        expected = stats.ttest_rel(treated, baseline).confidence_interval(0.95)
        if np.allclose([low, high], expected):
            continue
        reversed_sign = stats.ttest_rel(baseline, treated).confidence_interval(0.95)
        require(
            not np.allclose([low, high], reversed_sign),
            "The sign is turned round: a difference is treated minus baseline.",
        )
        middle = np.isclose((low + high) / 2, (treated - baseline).mean())
        require(middle, "The middle of the interval is not the mean of the differences.")
        unpaired = stats.ttest_ind(treated, baseline).confidence_interval(0.95)
        require(
            high - low < 0.9 * (unpaired.high - unpaired.low),
            "The interval is as wide as that of two unpaired samples: take the spread of the "
            "differences, one a seed.",
        )
        require(
            high - low > expected.high - expected.low,
            f"For {n} seeds the interval is too narrow: divide by n − 1 in the standard deviation "
            "and take the 97.5 % quantile of the t-distribution with n − 1 degrees of freedom.",
        )
        require(False, f"For {n} seeds the interval is too wide: did you divide by √n?")


def _small_network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))


def _batches(sizes: tuple[int, ...]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(2 * torch.randn(n, 3, 2, 2) + 1, torch.randint(0, 4, (n,))) for n in sizes]


@checks_exercise
def check_evaluate(answer: Callable) -> None:
    """``answer(model, batches) -> float``: mean cross-entropy over images, model unchanged."""
    for was_training in (True, False):
        model, batches = _small_network(), _batches((16, 16, 3))
        model.train(was_training)
        before = copy.deepcopy(model.state_dict())
        found = answer(model, batches)
        require(isinstance(found, float), "Return a plain Python float: .item() makes one.")
        for name, tensor in model.state_dict().items():
            require(
                torch.equal(tensor, before[name]),
                f"{name} has changed: BatchNorm must be in eval mode while we only look.",
            )
        require(
            model.training == was_training,
            "Leave the model in the mode in which it came: a training goes on after this.",
        )
        images, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
        model.eval()
        with torch.no_grad():
            expected = F.cross_entropy(model(images), targets).item()
        require(
            abs(found - expected) < 1e-4,
            f"With batches of 16, 16 and 3 images the mean is {expected:.4f}, yours {found:.4f}: "
            "each image counts once, so weigh each batch by its size, in eval mode.",
        )


@checks_exercise
def check_train_epoch(answer: Callable) -> None:
    """``answer(model, batches, optimizer) -> float``: one step a batch, mean loss over batches."""
    model, batches = _small_network(), _batches((8, 8, 8))
    start, oracle = copy.deepcopy(model.state_dict()), copy.deepcopy(model)
    optimizer = torch.optim.SGD(oracle.parameters(), lr=0.3)
    losses = []
    for images, targets in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(oracle(images), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    # gradients that lie about from earlier work must not leak into the first step
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    found = answer(model, batches, torch.optim.SGD(model.parameters(), lr=0.3))
    require(
        any(not torch.equal(start[name], p) for name, p in model.named_parameters()),
        "No weight has changed: are the gradients there when the optimizer steps?",
    )
    require(
        all(
            torch.allclose(p, q, atol=1e-5)
            for p, q in zip(model.parameters(), oracle.parameters(), strict=True)
        ),
        "The weights differ from those of a correct loop: does each step see the gradient of "
        "its own batch alone, and cross_entropy the logits themselves?",
    )
    require(
        isinstance(found, float),
        "The mean loss is a tensor that keeps every step's graph alive: add loss.item().",
    )
    require(abs(found - np.mean(losses)) < 1e-4, "The returned value is not the mean loss.")
