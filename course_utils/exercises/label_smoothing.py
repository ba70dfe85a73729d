"""Checks of the exercises of lesson 06."""

import copy
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.exercises.checking import checks_exercise, require

__all__ = ["check_equal_mass_error", "check_smooth_targets", "check_train_smoothed"]


@checks_exercise
def check_smooth_targets(answer: Callable) -> None:
    """``answer(targets, num_classes, smoothing) -> (N, C)``, as PyTorch smooths."""
    for num_classes, smoothing in ((4, 0.1), (10, 0.5), (3, 0.0), (5, 1.0)):
        targets = torch.randint(num_classes, (12,))
        found = answer(targets, num_classes, smoothing)
        require(isinstance(found, torch.Tensor), "Return a tensor.")
        found = found.float()
        shape = (12, num_classes)
        require(tuple(found.shape) == shape, f"The shape is {shape}, not {tuple(found.shape)}.")
        sums = found.sum(dim=1)
        worst = sums[(sums - 1).abs().argmax()]
        require(
            torch.allclose(sums, torch.ones(12), atol=1e-5),
            f"Each row sums to 1, and here one sums to {worst:.3f}: what is given to all "
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


def _grouped_error(
    order: torch.Tensor, confidence: torch.Tensor, right: torch.Tensor, num_bins: int
) -> tuple[float, float]:
    """Over groups of ``order``, weighted by their sizes and (a fault) not weighted."""
    groups = order.tensor_split(num_bins)
    gaps = [abs((right[g].mean() - confidence[g].mean()).item()) for g in groups]
    weighted = sum(len(g) * gap for g, gap in zip(groups, gaps, strict=True)) / len(right)
    return weighted, sum(gaps) / num_bins


@checks_exercise
def check_equal_mass_error(answer: Callable) -> None:
    """``answer(probabilities, targets, num_bins) -> error``: bins by rank, not by width."""
    generator = torch.Generator().manual_seed(0)  # the same data always: no fault hides by luck
    for count, num_bins in ((400, 8), (301, 10), (50, 1), (7, 5)):
        shuffled = torch.randperm(count, generator=generator)
        confidence = torch.linspace(0.45, 0.99, count)[shuffled]
        rest = (1 - confidence) * torch.tensor([[0.55], [0.45]])
        answers = torch.randint(3, (count,), generator=generator)
        order = torch.stack([answers, (answers + 1) % 3, (answers + 2) % 3], dim=1)
        values = torch.stack([confidence, *rest], dim=1)
        probabilities = torch.zeros(count, 3).scatter(1, order, values)
        chance = 1.4 - 0.9 * confidence  # too modest where it is low, too sure where it is high
        right = (torch.rand(count, generator=generator) < chance).float()
        targets = torch.where(right.bool(), answers, (answers + 1) % 3)
        found = answer(probabilities, targets, num_bins)
        require(
            found is not None and math.isfinite(float(found)),
            "Return one finite number (an empty group has no mean).",
        )
        expected, unweighted = _grouped_error(confidence.argsort(), confidence, right, num_bins)
        if abs(found - expected) < 1e-5:
            continue
        unsorted, _ = _grouped_error(torch.arange(count), confidence, right, num_bins)
        each = (right - confidence).abs().mean()
        faults = {
            "The distance is taken prediction by prediction: average inside a group first.": each,
            "The groups differ in size: weigh each gap by its number of predictions.": unweighted,
            "The predictions are grouped as they come: sort them by confidence first.": unsorted,
        }
        for sentence, value in faults.items():
            require(abs(found - value) > 1e-5, sentence)
        require(
            False,
            f"{count} predictions in {num_bins} groups of equal size have the error "
            f"{expected:.4f}, not {float(found):.4f}.",
        )


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
        modes: list[bool] = []
        model.register_forward_pre_hook(lambda module, _, m=modes: m.append(module.training))
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
        turns = modes == sorted(modes, reverse=True) and set(modes) == {True, False}
        require(
            turns and modes.count(True) >= len(batches),
            "Train in train mode and validate in eval mode: model.train(), .eval().",
        )
        with torch.no_grad():
            logits = trained(val_images)
        smoothed = F.cross_entropy(logits, val_targets, label_smoothing=smoothing)
        plain = F.cross_entropy(logits, val_targets)
        loss, confidence = (float(value) for value in found)
        require(
            abs(loss - plain) < 1e-4 or abs(loss - smoothed) > 1e-5,
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
