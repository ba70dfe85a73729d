"""Checks of the exercises of lesson 06."""

import copy
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.checks.checking import checks_exercise, require

__all__ = ["check_equal_mass_error", "check_smooth_targets", "check_train_smoothed"]


@checks_exercise
def check_smooth_targets(answer: Callable) -> None:
    """``answer(targets, num_classes, smoothing) -> (N, C)``, as PyTorch smooths."""
    for num_classes, smoothing in ((4, 0.1), (10, 0.5), (3, 0.0), (5, 1.0)):
        targets = torch.randint(num_classes, (12,))
        found = answer(targets, num_classes, smoothing)
        require(isinstance(found, torch.Tensor), "Return a tensor.")
        shape = (12, num_classes)
        require(tuple(found.shape) == shape, f"The shape is {shape}, not {tuple(found.shape)}.")
        sums = found.sum(dim=1)
        require(
            torch.allclose(sums, torch.ones(12), atol=1e-5),
            f"Each row sums to 1, and here one sums to {sums[0]:.3f}: what is given to all "
            "classes must be taken from the right one.",
        )
        hard = F.one_hot(targets, num_classes).float()
        others = (1 - smoothing) * hard + smoothing * (1 - hard) / (num_classes - 1)
        require(
            smoothing == 0 or not torch.allclose(found, others, atol=1e-5),
            "ε is spread over the C − 1 wrong classes; PyTorch spreads it over all C.",
        )
        expected = (1 - smoothing) * hard + smoothing / num_classes
        require(
            torch.allclose(found, expected, atol=1e-5),
            f"With {num_classes} classes and ε = {smoothing} the right class has "
            f"{1 - smoothing + smoothing / num_classes:.3f} and each other one "
            f"{smoothing / num_classes:.3f}.",
        )


def _equal_mass_error(
    confidence: torch.Tensor, right: torch.Tensor, num_bins: int
) -> tuple[float, float]:
    """Weighted by the groups' sizes, and (a fault) not weighted."""
    groups = confidence.argsort().tensor_split(num_bins)
    gaps = [abs((right[g].mean() - confidence[g].mean()).item()) for g in groups]
    sizes = [len(group) for group in groups]
    weighted = sum(n * gap for n, gap in zip(sizes, gaps, strict=True)) / len(right)
    return weighted, sum(gaps) / num_bins


@checks_exercise
def check_equal_mass_error(answer: Callable) -> None:
    """``answer(probabilities, targets, num_bins) -> error``: bins by rank, not by width."""
    # 7 predictions in 5 groups: two of two and three of one, so that weights matter
    cases = [(7, 5), (400, 8), (301, 10), (50, 1)]
    for count, num_bins in cases:
        confidence = torch.linspace(0.55, 0.999, count, dtype=torch.float64) ** 0.3
        order = torch.randperm(count)
        confidence = confidence[order]
        wrong_share = torch.linspace(0.9, 0.1, count, dtype=torch.float64)[order]
        right = (wrong_share * 10).floor() % 2 == 0
        targets = torch.where(right, 1, 0)
        probabilities = torch.stack([1 - confidence, confidence], dim=1)
        found = answer(probabilities, targets, num_bins)
        require(
            isinstance(found, float | torch.Tensor) and math.isfinite(float(found)),
            "Return one finite number (an empty group has no mean).",
        )
        expected, unweighted = _equal_mass_error(confidence, right.double(), num_bins)
        gap = abs(found - expected) < 1e-5
        each = (right.double() - confidence).abs().mean()
        require(
            gap or abs(found - each) > 1e-5,
            "The distance is taken prediction by prediction: average inside a group first.",
        )
        require(
            gap or abs(found - unweighted) > 1e-5,
            "The groups differ in size: weigh each gap by its number of predictions.",
        )
        unsorted = _equal_mass_error_in_order(confidence, right.double(), num_bins)
        require(
            gap or abs(found - unsorted) > 1e-5,
            "The predictions are grouped as they come: sort them by confidence first.",
        )
        require(
            gap,
            f"{count} predictions in {num_bins} groups of equal size have the error "
            f"{expected:.4f}, not {float(found):.4f}.",
        )


def _equal_mass_error_in_order(
    confidence: torch.Tensor, right: torch.Tensor, num_bins: int
) -> float:
    groups = torch.arange(len(right)).tensor_split(num_bins)
    gaps = [len(g) * abs((right[g].mean() - confidence[g].mean()).item()) for g in groups]
    return sum(gaps) / len(right)


def _train(model: nn.Module, batches: list, smoothing: float, lr: float, soft: bool) -> nn.Module:
    """The oracle; ``soft``: with the fault of a softmax before the loss."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for images, targets in batches:
        answers = model(images).softmax(dim=1) if soft else model(images)
        optimizer.zero_grad()
        F.cross_entropy(answers, targets, label_smoothing=smoothing).backward()
        optimizer.step()
    return model


@checks_exercise
def check_train_smoothed(answer: Callable) -> None:
    """``answer(model, train, val_images, val_targets, smoothing, lr) -> (loss, confidence)``."""
    for smoothing in (0.3, 0.0):
        batches = [(torch.randn(8, 12), torch.arange(8) % 4) for _ in range(4)]
        val_images, val_targets = 2 * torch.randn(15, 12), torch.arange(15) % 4
        model = nn.Linear(12, 4)
        trained = _train(model, batches, smoothing, 0.3, soft=False)
        with_softmax = _train(model, batches, smoothing, 0.3, soft=True)
        without = _train(model, batches, 0.0, 0.3, soft=False)
        found = answer(model, batches, val_images, val_targets, smoothing, 0.3)
        require(
            isinstance(found, tuple | list) and len(found) == 2,
            "Return two numbers: validation loss and mean confidence.",
        )
        require(
            not torch.allclose(model.weight, with_softmax.weight, atol=1e-6),
            "There is a softmax before cross_entropy, which applies its own: give it logits.",
        )
        require(
            smoothing == 0 or not torch.allclose(model.weight, without.weight, atol=1e-6),
            "The training loss is not smoothed.",
        )
        require(
            torch.allclose(model.weight, trained.weight, atol=1e-5),
            "The weights are not those of SGD on the smoothed loss of each batch.",
        )
        with torch.no_grad():
            logits = trained(val_images)
        smoothed = F.cross_entropy(logits, val_targets, label_smoothing=smoothing)
        plain = F.cross_entropy(logits, val_targets)
        loss, confidence = (float(value) for value in found)
        require(
            smoothing == 0 or abs(loss - smoothed) > 1e-5,
            "The validation loss is smoothed: runs with another ε could not be compared with it.",
        )
        require(abs(loss - plain) < 1e-4, f"The validation loss is {plain:.4f}, not {loss:.4f}.")
        probabilities = logits.softmax(dim=1)
        expected = probabilities.amax(dim=1).mean()
        if abs(confidence - expected) < 1e-4:
            continue
        require(
            abs(confidence - logits.amax(dim=1).mean()) > 1e-5,
            "The mean of the largest logits is no confidence: take probabilities.",
        )
        of_targets = probabilities.gather(1, val_targets[:, None]).mean()
        require(
            abs(confidence - of_targets) > 1e-5,
            "Confidence is the probability of the class that is named, not of the true one.",
        )
        require(False, f"The mean confidence is {expected:.4f}, not {confidence:.4f}.")
