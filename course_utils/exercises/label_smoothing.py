"""Checks of the exercises of lesson 06."""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.exercises.checking import checks_exercise, fail, require
from course_utils.exercises.oracles import (
    Batches,
    flatten_parameters,
    is_pair,
    record_modes,
    train_copy,
)

__all__ = ["check_equal_mass_error", "check_smooth_targets", "check_train_smoothed"]

LR = 0.3
ROUNDING = 1e-5


@checks_exercise()
def check_smooth_targets(answer: Callable) -> None:
    """``answer(targets, num_classes, smoothing) -> (N, C)``, as PyTorch smooths."""
    for num_classes, smoothing in ((4, 0.1), (10, 0.5), (3, 0.0), (5, 1.0)):
        targets = torch.randint(num_classes, (12,))
        found = answer(targets, num_classes, smoothing)
        require(isinstance(found, Tensor), "Return a tensor.")
        found = found.float()
        shape = (12, num_classes)
        require(tuple(found.shape) == shape, f"The shape is {shape}, not {tuple(found.shape)}.")
        sums = found.sum(dim=1)  # (N,)
        worst = sums[(sums - 1).abs().argmax()]
        require(
            torch.allclose(sums, torch.ones(12), atol=ROUNDING),
            f"Each row sums to 1, and here one sums to {worst:.3f}: what is given to all "
            "classes must be taken from the right one.",
        )
        hard = F.one_hot(targets, num_classes).float()  # (N, C)
        over_others = (1 - smoothing) * hard + smoothing * (1 - hard) / (num_classes - 1)
        require(
            smoothing == 0 or not torch.allclose(found, over_others, atol=ROUNDING),
            "ε is spread over the C − 1 wrong classes; PyTorch spreads it over all C.",
        )
        expected = (1 - smoothing) * hard + smoothing / num_classes
        require(
            torch.allclose(found, expected, atol=ROUNDING),
            f"With {num_classes} classes and ε = {smoothing} the right class has "
            f"{1 - smoothing + smoothing / num_classes:.3f} and each other one "
            f"{smoothing / num_classes:.3f}.",
        )


def _draw_predictions(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Probabilities (N, 3), no two with the same confidence, and targets (N,).

    The predictions are underconfident where the confidence is low and overconfident where it
    is high, so that the gaps of the bins differ.
    """
    shuffled = torch.randperm(count, generator=generator)
    confidence = torch.linspace(0.45, 0.99, count)[shuffled]  # (N,), the largest probability
    others = (1 - confidence) * torch.tensor([[0.55], [0.45]])  # (2, N)
    predicted = torch.randint(3, (count,), generator=generator)
    # Which class gets the largest, the second and the third of the probabilities.
    classes = torch.stack([predicted, (predicted + 1) % 3, (predicted + 2) % 3], dim=1)  # (N, 3)
    values = torch.stack([confidence, *others], dim=1)  # (N, 3)
    probabilities = torch.zeros(count, 3).scatter(1, classes, values)
    chance = 1.4 - 0.9 * confidence  # of being right
    is_right = torch.rand(count, generator=generator) < chance
    targets = torch.where(is_right, predicted, (predicted + 1) % 3)
    return probabilities, targets


def _grouped_error(
    order: Tensor, confidence: Tensor, right: Tensor, num_bins: int
) -> tuple[float, float]:
    """Over bins of ``order``, weighted by their sizes and (a fault) not weighted.

    ``order`` (N,): the predictions in the order in which they are shared out to the bins;
    ``right`` (N,): 1 where a prediction is right.
    """
    bins = order.tensor_split(num_bins)
    gaps = [abs((right[places].mean() - confidence[places].mean()).item()) for places in bins]
    weighted = sum(len(places) * gap for places, gap in zip(bins, gaps, strict=True)) / len(right)
    return weighted, sum(gaps) / num_bins


@checks_exercise()
def check_equal_mass_error(answer: Callable) -> None:
    """``answer(probabilities, targets, num_bins) -> error``: bins by rank, not by width."""
    generator = torch.Generator().manual_seed(0)  # the same data always: no fault hides by luck
    for count, num_bins in ((400, 8), (301, 10), (50, 1), (7, 5)):
        probabilities, targets = _draw_predictions(count, generator)
        found = answer(probabilities, targets, num_bins)
        require(
            found is not None and math.isfinite(float(found)),
            "Return one finite number (an empty group has no mean).",
        )
        confidence, predicted = probabilities.max(dim=1)  # (N,) each
        right = (predicted == targets).float()
        expected, unweighted = _grouped_error(confidence.argsort(), confidence, right, num_bins)
        if abs(found - expected) < ROUNDING:
            continue
        unsorted, _ = _grouped_error(torch.arange(count), confidence, right, num_bins)
        each = (right - confidence).abs().mean()
        faults = {
            "The distance is taken prediction by prediction: average inside a group first.": each,
            "The groups differ in size: weigh each gap by its number of predictions.": unweighted,
            "The predictions are grouped as they come: sort them by confidence first.": unsorted,
        }
        for sentence, value in faults.items():
            require(abs(found - value) > ROUNDING, sentence)
        fail(
            f"{count} predictions in {num_bins} groups of equal size have the error "
            f"{expected:.4f}, not {float(found):.4f}.",
        )


@checks_exercise()
def check_train_smoothed(answer: Callable) -> None:
    """``answer(model, train, val_images, val_targets, smoothing, lr) -> (loss, confidence)``."""
    for smoothing in (0.3, 0.0):
        _check_smoothed_training(answer, smoothing)


def _check_smoothed_training(answer: Callable, smoothing: float) -> None:
    train = [(torch.randn(8, 12), torch.arange(8) % 4) for _ in range(4)]
    val_images = 2 * torch.randn(15, 12)
    val_targets = torch.arange(15) % 4
    model = nn.Linear(12, 4)
    right, with_softmax, without_smoothing = _train_copies(model, train, smoothing)
    modes = record_modes(model)
    found = answer(model, train, val_images, val_targets, smoothing, LR)
    require(is_pair(found), "Return two numbers: validation loss and mean confidence.")
    weights = flatten_parameters(model)
    require(
        not torch.allclose(weights, flatten_parameters(with_softmax), atol=1e-6),
        "There is a softmax before cross_entropy, which applies its own: give it logits.",
    )
    require(
        smoothing == 0
        or not torch.allclose(weights, flatten_parameters(without_smoothing), atol=1e-6),
        "The training loss is not smoothed.",
    )
    require(
        torch.allclose(weights, flatten_parameters(right), atol=ROUNDING),
        "The weights are not those of SGD on the smoothed loss of each batch.",
    )
    # Sorted in reverse, True comes first: all of the training is before all of the validation.
    turns = modes == sorted(modes, reverse=True) and set(modes) == {True, False}
    require(
        turns and modes.count(True) >= len(train),
        "Train in train mode and validate in eval mode: model.train(), .eval().",
    )
    with torch.no_grad():
        logits = right(val_images)
    loss, confidence = (float(value) for value in found)
    _check_val_loss(loss, logits, val_targets, smoothing)
    _check_confidence(confidence, logits, val_targets)


def _train_copies(
    model: nn.Module, train: Batches, smoothing: float
) -> tuple[nn.Module, nn.Module, nn.Module]:
    """A right one, one with the fault of a softmax before the loss, and one without smoothing."""
    learning_rates = [LR] * len(train)
    smoothed = partial(F.cross_entropy, label_smoothing=smoothing)

    def smoothed_of_probabilities(logits: Tensor, targets: Tensor) -> Tensor:
        return smoothed(logits.softmax(dim=1), targets)

    right, _ = train_copy(model, train, learning_rates, smoothed)
    with_softmax, _ = train_copy(model, train, learning_rates, smoothed_of_probabilities)
    without_smoothing, _ = train_copy(model, train, learning_rates)
    return right, with_softmax, without_smoothing


def _check_val_loss(found: float, logits: Tensor, targets: Tensor, smoothing: float) -> None:
    """Validation measures the loss without smoothing."""
    smoothed = F.cross_entropy(logits, targets, label_smoothing=smoothing)
    plain = F.cross_entropy(logits, targets)
    require(
        abs(found - plain) < 1e-4 or abs(found - smoothed) > ROUNDING,
        "The validation loss is smoothed: runs with another ε could not be compared with it.",
    )
    require(abs(found - plain) < 1e-4, f"The validation loss is {plain:.4f}, not {found:.4f}.")


def _check_confidence(found: float, logits: Tensor, targets: Tensor) -> None:
    """The mean over images of the largest probability."""
    probabilities = logits.softmax(dim=1)  # (N, C)
    expected = probabilities.amax(dim=1).mean()
    if abs(found - expected) < 1e-4:
        return
    require(
        abs(found - logits.amax(dim=1).mean()) > ROUNDING,
        "The mean of the largest logits is no confidence: take probabilities.",
    )
    of_targets = probabilities.gather(1, targets[:, None]).mean()
    require(
        abs(found - of_targets) > ROUNDING,
        "Confidence is the probability of the class that is named, not of the true one.",
    )
    fail(f"The mean confidence is {expected:.4f}, not {found:.4f}.")
