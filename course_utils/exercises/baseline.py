"""Checks of the exercises of lesson 01."""

import copy
from collections.abc import Callable
from numbers import Real

import numpy as np
import torch
import torch.nn.functional as F
from scipy import stats
from torch import nn

from course_utils.exercises.checking import checks_exercise, require

__all__ = ["check_evaluate", "check_paired_interval", "check_train_epoch"]

ROUNDING = 1e-4


def _mistaken_half_widths(baseline: np.ndarray, treated: np.ndarray) -> dict[str, float]:
    """What usual mistakes make of half the interval, and how to mend each."""
    difference, n = treated - baseline, len(baseline)
    t, s, root = stats.t.ppf(0.975, n - 1), difference.std(ddof=1), np.sqrt(n)
    low, high = stats.ttest_ind(treated, baseline).confidence_interval(0.95)
    apart = np.sqrt(baseline.var(ddof=1) + treated.var(ddof=1))
    return {
        "That of two unpaired samples: take the differences, one a seed.": (high - low) / 2,
        "That of the two columns: take the spread of the differences.": t * apart / root,
        "The standard deviation divides by n: use ddof=1.": t * difference.std() / root,
        "1.96 is the normal quantile: with n − 1 degrees of freedom t is larger.": 1.96 * s / root,
        "95 % inside leaves 2.5 % on each side, so 0.975.": stats.t.ppf(0.95, n - 1) * s / root,
        "The mean uses one degree of freedom, n − 1 are left.": stats.t.ppf(0.975, n) * s / root,
        "That of one difference: the mean of n scatters less, divide by √n.": t * s,
        "It divides by n: the mean of n scatters less by √n only.": t * s / n,
    }


@checks_exercise
def check_paired_interval(answer: Callable) -> None:
    """``answer(baseline, treated) -> (low, high)``: the 95 % t-interval of paired differences."""
    rng = np.random.default_rng(0)
    for n in (3, 5, 10):
        shared = rng.normal(60, 5, n)  # what both members of a pair have from their seed
        baseline, treated = shared + rng.normal(0, 0.5, n), shared + rng.normal(1, 0.5, n)
        found = answer(baseline.copy(), treated.copy())
        require(
            isinstance(found, tuple | list | np.ndarray) and len(found) == 2,
            "Return two numbers: (low, high).",
        )
        low, high = (float(edge) for edge in found)
        require(low <= high, "The lower edge comes first: (low, high).")
        expected = stats.ttest_rel(treated, baseline).confidence_interval(0.95)
        if np.allclose([low, high], expected):
            continue
        middle, true = (low + high) / 2, (treated - baseline).mean()
        turned = np.isclose(middle, -true)
        require(not turned, "The sign is turned round: a difference is treated minus baseline.")
        require(
            np.isclose(middle, true),
            "The middle of the interval is not the mean of the differences.",
        )
        for sentence, half in _mistaken_half_widths(baseline, treated).items():
            require(not np.isclose((high - low) / 2, half), f"The width is wrong. {sentence}")
        wrong = "narrow" if high - low < expected.high - expected.low else "wide"
        require(False, f"For {n} seeds the interval is too {wrong}: it is mean ± t · s / √n.")


def _small_network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))


def _batches(sizes: tuple[int, ...]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(2 * torch.randn(n, 3, 2, 2) + 1, torch.randint(0, 4, (n,))) for n in sizes]


def _require_number(found: object) -> None:
    require(found is not None, "Nothing came back: is there a return?")
    require(
        not (isinstance(found, torch.Tensor) and found.requires_grad),
        "What came back is a tensor that drags its history along: take the number, loss.item().",
    )
    require(isinstance(found, Real), "Return a plain Python float: .item() makes one.")


@checks_exercise
def check_evaluate(answer: Callable) -> None:
    """``answer(model, batches) -> float``: mean cross-entropy over images, model unchanged."""
    for was_training in (True, False):
        model, batches = _small_network(), _batches((16, 16, 3))
        model.train(was_training)
        before = copy.deepcopy(model.state_dict())
        found = answer(model, batches)
        gradients_on = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        require(gradients_on, "Gradients are off for good: use with torch.no_grad().")
        _require_number(found)
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
        model.eval()
        with torch.no_grad():
            losses = [F.cross_entropy(model(x), y, reduction="none") for x, y in batches]
        expected = torch.cat(losses).mean().item()
        if abs(found - expected) < ROUNDING:
            continue
        of_batches = np.mean([loss.mean().item() for loss in losses])
        require(
            abs(found - of_batches) > ROUNDING / 10,
            "That is the mean of the batches' means: the last batch is smaller, and each image "
            "counts once, so weigh each batch by its size.",
        )
        require(
            False,
            f"The mean cross-entropy of the logits, in eval mode, is {expected:.4f}; yours is "
            f"{found:.4f}.",
        )


@checks_exercise
def check_train_epoch(answer: Callable) -> None:
    """``answer(model, batches, optimizer) -> float``: one step a batch, mean loss over batches."""
    model, batches = _small_network().eval(), _batches((8, 8, 5))
    start, oracle = copy.deepcopy(model.state_dict()), copy.deepcopy(model).train()
    optimizer = torch.optim.SGD(oracle.parameters(), lr=0.3)
    losses = []
    for images, targets in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(oracle(images), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    modes: list[bool] = []  # of each forward pass; afterwards the model may be in either
    model.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    found = answer(model, batches, torch.optim.SGD(model.parameters(), lr=0.3))
    require(all(modes), "The model came in eval mode and was trained in it: model.train().")
    require(
        any(not torch.equal(start[name], p) for name, p in model.named_parameters()),
        "No weight has changed: are the gradients there when the optimizer steps?",
    )
    pairs = zip(model.parameters(), oracle.parameters(), strict=True)
    require(
        all(torch.allclose(p, q, atol=1e-5) for p, q in pairs),
        "The weights differ from those of a correct loop: does each step see the gradient of "
        "its own batch alone, and cross_entropy the logits themselves?",
    )
    _require_number(found)
    require(
        abs(found - np.mean(losses)) < ROUNDING,
        "The returned value is not the mean of the batches' losses.",
    )
