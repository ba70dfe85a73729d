"""Checks of the exercises of lesson 06."""

import copy
import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.exercises.checking import Faults, checks_exercise, diagnose, require
from course_utils.exercises.oracles import Batches, flatten_parameters, is_pair, record_modes

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


def _measure_error(
    probabilities: Tensor,
    targets: Tensor,
    num_bins: int,
    measure: Callable[[Tensor], Tensor] = lambda excess: excess.mean().abs(),
    weigh: Callable[[Tensor], int] = len,
    sort: Callable[[Tensor], Tensor] = torch.argsort,
) -> float:
    """The oracle, unless a bin's gap or weight or the order of the predictions is another."""
    confidence, predicted = probabilities.max(dim=1)  # (N,) each
    right = (predicted == targets).float()
    excess = confidence - right  # (N,)
    bins = excess[sort(confidence)].tensor_split(num_bins)
    gaps = torch.stack([measure(part) for part in bins])
    weights = torch.tensor([weigh(part) for part in bins])
    return ((weights * gaps).sum() / weights.sum()).item()


# fmt: off
ERROR_FAULTS: Faults = (
    ("The distance is taken prediction by prediction: average inside a group first.",
     partial(_measure_error, measure=lambda excess: excess.abs().mean())),
    ("The groups differ in size: weigh each gap by its number of predictions.",
     partial(_measure_error, weigh=lambda part: 1)),
    ("The predictions are grouped as they come: sort them by confidence first.",
     partial(_measure_error, sort=lambda confidence: torch.arange(len(confidence)))),
)
# fmt: on


@checks_exercise(faults=ERROR_FAULTS)
def check_equal_mass_error(answer: Callable) -> None:
    """``answer(probabilities, targets, num_bins) -> error``: bins by rank, not by width."""
    generator = torch.Generator().manual_seed(0)  # the same data always: no fault hides by luck
    for count, num_bins in ((400, 8), (301, 10), (50, 1), (7, 5)):
        arguments = (*_draw_predictions(count, generator), num_bins)
        found = answer(*arguments)
        require(
            found is not None and math.isfinite(float(found)),
            "Return one finite number (an empty group has no mean).",
        )
        found = float(found)
        right = _measure_error(*arguments)
        if abs(found - right) < ROUNDING:  # absolute, as one of the right errors is 0
            continue
        diagnose(
            found,
            lambda other: other(*arguments),  # noqa: B023
            _measure_error,
            ERROR_FAULTS,
            f"{count} predictions in {num_bins} groups of equal size have the error "
            f"{right:.4f}, not {found:.4f}.",
        )


def _train_smoothed(
    model: nn.Module,
    train: Batches,
    val_images: Tensor,
    val_targets: Tensor,
    smoothing: float,
    lr: float,
    activate: Callable[[Tensor], Tensor] = lambda logits: logits,
    smooth_training: bool = True,
    smooth_validation: bool = False,
    measure: Callable[..., Tensor] = lambda logits, targets: logits.softmax(dim=1).amax(dim=1),
) -> tuple[float, float]:
    """The oracle, unless one of its parts is another.

    ``activate(logits)`` is given to the training loss, ``measure(logits, targets)`` (N,) are the
    confidences.
    """
    training_smoothing = smoothing if smooth_training else 0.0
    validation_smoothing = smoothing if smooth_validation else 0.0
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    model.train()
    for images, targets in train:
        outputs = activate(model(images))
        optimizer.zero_grad()
        F.cross_entropy(outputs, targets, label_smoothing=training_smoothing).backward()
        optimizer.step()
    with torch.no_grad():
        logits = model.eval()(val_images)
    loss = F.cross_entropy(logits, val_targets, label_smoothing=validation_smoothing)
    return loss.item(), measure(logits, val_targets).mean().item()


# fmt: off
TRAIN_FAULTS: Faults = (
    ("There is a softmax before cross_entropy, which applies its own: give it logits.",
     partial(_train_smoothed, activate=lambda logits: logits.softmax(dim=1))),
    ("The training loss is not smoothed.",
     partial(_train_smoothed, smooth_training=False)),
    ("The validation loss is smoothed: runs with another ε could not be compared with it.",
     partial(_train_smoothed, smooth_validation=True)),
    ("The mean of the largest logits is no confidence: take probabilities.",
     partial(_train_smoothed, measure=lambda logits, targets: logits.amax(dim=1))),
    ("Confidence is the probability of the class that is named, not of the true one.",
     partial(_train_smoothed,
             measure=lambda logits, targets: logits.softmax(dim=1).gather(1, targets[:, None]))),
)
# fmt: on


@checks_exercise(faults=TRAIN_FAULTS)
def check_train_smoothed(answer: Callable) -> None:
    """``answer(model, train, val_images, val_targets, smoothing, lr) -> (loss, confidence)``."""
    for smoothing in (0.3, 0.0):
        _check_smoothed_training(answer, smoothing)


def _check_smoothed_training(answer: Callable, smoothing: float) -> None:
    train = [(torch.randn(8, 12), torch.arange(8) % 4) for _ in range(4)]
    val_images = 2 * torch.randn(15, 12)
    val_targets = torch.arange(15) % 4
    arguments = (train, val_images, val_targets, smoothing, LR)
    model = nn.Linear(12, 4)
    start = copy.deepcopy(model)
    modes = record_modes(model)
    found = answer(model, *arguments)
    require(is_pair(found), "Return two numbers: validation loss and mean confidence.")

    def run(other: Callable) -> tuple:
        """Another answer's weights (P,), loss and confidence."""
        trained = copy.deepcopy(start)
        loss, confidence = other(trained, *arguments)
        return flatten_parameters(trained), loss, confidence

    diagnose(
        flatten_parameters(model),
        lambda other: run(other)[0],
        _train_smoothed,
        TRAIN_FAULTS,
        "The weights are not those of SGD on the smoothed loss of each batch.",
    )
    # Sorted in reverse, True comes first: all of the training is before all of the validation.
    turns = modes == sorted(modes, reverse=True) and set(modes) == {True, False}
    require(
        turns and modes.count(True) >= len(train),
        "Train in train mode and validate in eval mode: model.train(), .eval().",
    )
    right = run(_train_smoothed)
    for place, name in ((1, "validation loss"), (2, "mean confidence")):
        value = float(found[place - 1])
        diagnose(
            value,
            lambda other: run(other)[place],  # noqa: B023
            _train_smoothed,
            TRAIN_FAULTS,
            f"The {name} is {right[place]:.4f}, not {value:.4f}.",
            tolerance=1e-4 / right[place],  # 1e-4 itself, whatever the number is
            fault_tolerance=ROUNDING,
        )
