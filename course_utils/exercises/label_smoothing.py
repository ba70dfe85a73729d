"""Checks of the exercises of lesson 06."""

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.exercises.checking import Faults, checks_exercise, diagnose, require
from course_utils.exercises.oracles import Batches, flatten_parameters, is_pair, record_modes

__all__ = ["check_equal_mass_error", "check_smooth_targets", "check_train_smoothed"]

LR = 0.3
ROUNDING = 1e-5


# number of classes, ε, and how many of the classes occur among the targets
SMOOTHINGS = ((4, 0.1, 4), (10, 0.5, 9), (3, 0.0, 3), (5, 1.0, 5))


def _smooth(
    targets: Tensor,
    num_classes: int,
    smoothing: float,
    values: Callable[[float, int], tuple[float, float]] = lambda eps, c: (
        1 - eps + eps / c,
        eps / c,
    ),
) -> Tensor:
    """The oracle (N, C), unless the ``values`` of the right class and each other one are wrong."""
    of_right, of_others = values(smoothing, num_classes)
    soft = torch.full((len(targets), num_classes), of_others)
    return soft.scatter(1, targets[:, None], of_right)


# fmt: off
SMOOTH_FAULTS: Faults = (
    ("ε is spread over the C − 1 wrong classes; PyTorch spreads it over all C.",
     partial(_smooth, values=lambda eps, c: (1 - eps, eps / (c - 1)))),
    ("The right class lacks its own share of ε, which all C classes get.",
     partial(_smooth, values=lambda eps, c: (1 - eps, eps / c))),
    ("ε is the share that is spread over all classes; here 1 − ε is spread.",
     partial(_smooth, values=lambda eps, c: (eps + (1 - eps) / c, (1 - eps) / c))),
)
# fmt: on


@checks_exercise(faults=SMOOTH_FAULTS)
def check_smooth_targets(answer: Callable) -> None:
    """``answer(targets, num_classes, smoothing) -> (N, C)``, as PyTorch smooths."""
    for num_classes, smoothing, occurring in SMOOTHINGS:
        targets = torch.randint(occurring, (12,))
        found = answer(targets, num_classes, smoothing)
        require(isinstance(found, Tensor), "Return a tensor.")
        case = f"12 targets of {num_classes} classes, ε = {smoothing}:"
        shape = (12, num_classes)
        other = f"{case} the shape is {shape}, not {tuple(found.shape)}."
        require(tuple(found.shape) == shape, other)
        whole = smoothing > 0 and not found.is_floating_point()
        require(
            not whole, f"The dtype {found.dtype} cuts shares off to 0: probabilities are floats."
        )
        sums = found.double().sum(dim=1)  # (N,)
        worst = sums[(sums - 1).abs().argmax()].item()
        otherwise = (
            f"{case} the right class has {1 - smoothing + smoothing / num_classes:.3f} and each "
            f"other one {smoothing / num_classes:.3f}."
        )
        if abs(worst - 1) > ROUNDING:
            otherwise = f"{case} each row sums to 1, and here one sums to {worst:.3f}."
        if worst > 1 + ROUNDING:
            otherwise += " What all classes get must be taken from the right one."
        diagnose(
            found,
            lambda other: other(targets, num_classes, smoothing),  # noqa: B023
            _smooth,
            SMOOTH_FAULTS,
            otherwise,
        )


def _draw_predictions(count: int) -> tuple[Tensor, Tensor]:
    """Probabilities (N, 3), no two with the same confidence, and targets (N,).

    The predictions are overconfident and underconfident in turns as the confidence rises. So
    neighbouring bins have gaps of opposite sign, and it shows where they are cut.
    """
    shuffled = torch.randperm(count)
    confidence = torch.linspace(0.45, 0.99, count)[shuffled]  # (N,), the largest probability
    others = (1 - confidence) * torch.tensor([[0.55], [0.45]])  # (2, N)
    predicted = torch.randint(3, (count,))
    # Which class gets the largest, the second and the third of the probabilities.
    classes = torch.stack([predicted, (predicted + 1) % 3, (predicted + 2) % 3], dim=1)  # (N, 3)
    values = torch.stack([confidence, *others], dim=1)  # (N, 3)
    probabilities = torch.zeros(count, 3).scatter(1, classes, values)
    chance = confidence - 0.4 * (60 * confidence).sin()  # of being right
    is_right = torch.rand(count) < chance
    targets = torch.where(is_right, predicted, (predicted + 1) % 3)
    return probabilities, targets


def _group_by_rank(confidence: Tensor, num_bins: int) -> Sequence[Tensor]:
    """The places of the predictions of each bin, the bins of low confidence first."""
    return confidence.sort().indices.tensor_split(num_bins)


def _group_by_width(confidence: Tensor, num_bins: int) -> Sequence[Tensor]:
    """A fault: bins of equal width, of which the empty ones are left out."""
    numbers = (confidence * num_bins).long()
    return [(numbers == number).nonzero()[:, 0] for number in numbers.unique()]


def _group_evenly(confidence: Tensor, num_bins: int) -> Sequence[Tensor]:
    """A fault: ⌊N / num_bins⌋ predictions in each bin, so that some may be left over."""
    size = len(confidence) // num_bins
    return confidence.sort().indices[: num_bins * size].split(size)


def _leave_rest_to_last(confidence: Tensor, num_bins: int) -> Sequence[Tensor]:
    """A fault: ⌊N / num_bins⌋ predictions in each bin but the last one."""
    size = len(confidence) // num_bins
    return confidence.sort().indices.tensor_split(tuple(range(size, num_bins * size, size)))


def _average(gaps: Tensor, shares: Tensor) -> Tensor:
    return (gaps * shares).sum()


def _measure_error(
    probabilities: Tensor,
    targets: Tensor,
    num_bins: int,
    group: Callable[[Tensor, int], Sequence[Tensor]] = _group_by_rank,
    sort_right: bool = True,
    measure: Callable[[Tensor], Tensor] = lambda excess: excess.mean().abs(),
    combine: Callable[[Tensor, Tensor], Tensor] = _average,
) -> float:
    """The oracle; another value of an argument from ``group`` on is a fault.

    ``measure(excess)`` is the gap of a bin, ``combine(gaps, shares)`` is the error, from
    the gaps and the shares of all predictions that the bins hold.
    """
    confidence, predicted = probabilities.max(dim=1)  # (N,) each
    right = (predicted == targets).float()
    bins = group(confidence, num_bins)
    order = torch.cat(list(bins))
    excess = confidence[order] - (right[order] if sort_right else right)
    sizes = [len(places) for places in bins]
    gaps = torch.stack([measure(part) for part in excess.split(sizes)])
    return combine(gaps, torch.tensor(sizes) / len(targets)).item()


DROPPED = "Predictions that are left over are dropped: the first groups take one more each."
NO_ABSOLUTE = "Gaps of opposite sign cancel: take the absolute value of each."
# fmt: off
ERROR_FAULTS: Faults = (
    ("The distance is taken prediction by prediction: average inside a group first.",
     partial(_measure_error, measure=lambda excess: excess.abs().mean())),
    (NO_ABSOLUTE, partial(_measure_error, measure=lambda excess: excess.mean())),
    (NO_ABSOLUTE, partial(_measure_error, measure=lambda excess: -excess.mean())),
    ("The groups differ in size: weigh each gap by its number of predictions.",
     partial(_measure_error, combine=lambda gaps, shares: gaps.mean())),
    ("That is the largest gap of a group: take the mean, weighted by size.",
     partial(_measure_error, combine=lambda gaps, shares: gaps.max())),
    ("That is a percentage: the error is a number from 0 to 1.",
     partial(_measure_error, combine=lambda gaps, shares: 100 * _average(gaps, shares))),
    ("The confidences are sorted, but which answers are right keeps the old order.",
     partial(_measure_error, sort_right=False)),
    ("The predictions are grouped as they come: sort them by confidence first.",
     partial(_measure_error, group=lambda confidence, num_bins:
             torch.arange(len(confidence)).tensor_split(num_bins))),
    ("The bins have equal width: they should hold equally many predictions.",
     partial(_measure_error, group=_group_by_width)),
    ("There is one group too few.",
     partial(_measure_error, group=lambda confidence, num_bins:
             _group_by_rank(confidence, max(num_bins - 1, 1)))),
    (DROPPED, partial(_measure_error, group=_group_evenly)),
    (DROPPED, partial(_measure_error, group=_group_evenly, combine=lambda gaps, _: gaps.mean())),
    ("The last group takes all that are left over: the first groups take one more each.",
     partial(_measure_error, group=_leave_rest_to_last)),
    ("The groups of the highest confidence take one more: those of the lowest should.",
     partial(_measure_error, group=lambda confidence, num_bins:
             confidence.sort(descending=True).indices.tensor_split(num_bins))),
    ("All groups but the last have ⌈N / groups⌉ predictions: sizes may differ by one only.",
     partial(_measure_error, group=lambda confidence, num_bins:
             confidence.sort().indices.chunk(num_bins))),
)
# fmt: on


@checks_exercise(faults=ERROR_FAULTS)
def check_equal_mass_error(answer: Callable) -> None:
    """``answer(probabilities, targets, num_bins) -> error``: bins by rank, not by width."""
    for count, num_bins in ((400, 8), (307, 10), (50, 1), (7, 5)):
        arguments = (*_draw_predictions(count), num_bins)
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


def _smoothed_loss(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(logits, targets, label_smoothing=smoothing)


def _plain_loss(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(logits, targets)


def _loss_of_others(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """A fault: ε is spread over the wrong classes only."""
    _, over_others = SMOOTH_FAULTS[0]
    return F.cross_entropy(logits, over_others(targets, logits.shape[1], smoothing))


def _train_smoothed(
    model: nn.Module,
    train: Batches,
    val_images: Tensor,
    val_targets: Tensor,
    smoothing: float,
    lr: float,
    training_loss: Callable[[Tensor, Tensor, float], Tensor] = _smoothed_loss,
    clear: bool = True,
    validation_loss: Callable[[Tensor, Tensor, float], Tensor] = _plain_loss,
    measure: Callable[..., Tensor] = lambda logits, targets: logits.softmax(dim=1).amax(dim=1),
) -> tuple[float, float]:
    """The oracle; another value of an argument from ``training_loss`` on is a fault.

    ``measure(logits, targets)`` (N,) are the confidences.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    model.train()
    for images, targets in train:
        outputs = model(images)
        if clear:
            optimizer.zero_grad()
        training_loss(outputs, targets, smoothing).backward()
        optimizer.step()
    with torch.no_grad():
        logits = model.eval()(val_images)
    loss = validation_loss(logits, val_targets, smoothing)
    return loss.item(), measure(logits, val_targets).mean().item()


def _train_at_fixed_lr(
    model: nn.Module,
    train: Batches,
    val_images: Tensor,
    val_targets: Tensor,
    smoothing: float,
    lr: float,
) -> tuple[float, float]:
    """A fault: ``lr`` is ignored."""
    return _train_smoothed(model, train, val_images, val_targets, smoothing, lr=0.1)


# fmt: off
TRAIN_FAULTS: Faults = (
    ("There is a softmax before cross_entropy, which applies its own: give it logits.",
     partial(_train_smoothed, training_loss=lambda logits, targets, smoothing:
             _smoothed_loss(logits.softmax(dim=1), targets, smoothing))),
    ("The training loss is not smoothed.",
     partial(_train_smoothed, training_loss=_plain_loss)),
    ("In training ε is spread over the wrong classes; PyTorch spreads it over all.",
     partial(_train_smoothed, training_loss=_loss_of_others)),
    ("Gradients of older batches count in a step: zero_grad is missing.",
     partial(_train_smoothed, clear=False)),
    (f"The steps have the learning rate 0.1, not lr, which is {LR} here.",
     _train_at_fixed_lr),
    ("The validation loss is smoothed: runs with another ε could not be compared with it.",
     partial(_train_smoothed, validation_loss=_smoothed_loss)),
    ("The validation loss is that of probabilities: cross_entropy wants logits here too.",
     partial(_train_smoothed, validation_loss=lambda logits, targets, _:
             F.cross_entropy(logits.softmax(dim=1), targets))),
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
    # With ε = 0 the model comes in eval mode, as an earlier call would leave it.
    model = nn.Linear(12, 4).train(smoothing > 0)
    start = copy.deepcopy(model)
    modes = record_modes(model)
    found = answer(model, *arguments)
    require(is_pair(found), "Return two numbers: validation loss and mean confidence.")

    def run(other: Callable) -> tuple:
        """Another answer's weights (P,), loss and confidence."""
        trained = copy.deepcopy(start)
        loss, confidence = other(trained, *arguments)
        return flatten_parameters(trained), loss, confidence

    unchanged = flatten_parameters(model).equal(flatten_parameters(start))
    require(not unchanged, "The weights never change: does each step have its gradient?")
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
