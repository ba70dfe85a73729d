"""Checks of the exercises of lesson 05."""

import copy
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.exercises.checking import Faults, checks_exercise, diagnose, fail, require
from course_utils.exercises.oracles import (
    Batches,
    flatten_parameters,
    is_close,
    is_pair,
    train_copy,
)

__all__ = ["check_cut_mix", "check_mix_each", "check_train_and_validate"]

Mix = Callable[..., Tensor]  # mix(first, partners, lam)

NUM_CLASSES = 4
LR = 0.1
ROUNDING = 1e-5

# top, left, height and width of boxes in images of 10 × 12
BOXES = (
    (2, 3, 4, 5),
    (-3, 1, 6, 4),
    (5, -2, 9, 6),
    (0, 7, 3, 30),
    (-2, -2, 40, 40),
    (4, 4, 0, 3),
    # wholly outside
    (20, 3, 4, 4),
    (-9, 2, 5, 4),
    (3, -8, 4, 6),
)


def _check_mixed(
    answer: Callable,
    arguments: tuple,
    oracle: Callable,
    faults: Faults,
    changed: str,
    other_images: str,
    other_targets: str,
) -> None:
    """The last three are the sentences if images are changed in place and if no fault fits."""
    images = arguments[0]
    before = images.clone()
    found = answer(*arguments)
    if not is_pair(found) or not all(isinstance(part, Tensor) for part in found):
        fail("Return two tensors: images and soft targets.")
    mixed, soft = (tensor.float() for tensor in found)  # (N, 3, H, W), (N, C)
    shape = (len(images), NUM_CLASSES)
    require(
        tuple(soft.shape) == shape,
        f"Soft targets have the shape {shape}, not {tuple(soft.shape)}.",
    )
    require(
        mixed.shape == images.shape,
        f"Images come in as {tuple(images.shape)} and go out as {tuple(mixed.shape)}.",
    )
    require(images.equal(before), changed)
    diagnose(mixed, lambda other: other(*arguments)[0], oracle, faults, other_images)
    sums_to_1 = is_close(soft.sum(dim=1), torch.ones(len(soft)), ROUNDING)
    require(sums_to_1, "A row of targets does not sum to 1.")
    diagnose(soft, lambda other: other(*arguments)[1], oracle, faults, other_targets)


def _mix(first: Tensor, partners: Tensor, lam: Tensor | float) -> Tensor:
    return lam * first + (1 - lam) * partners


# fmt: off
# What a wrong answer makes of the targets, and why.
TARGET_FAULTS: Sequence[tuple[str, Mix]] = (
    ("The targets are those of the first images alone: mix them with their partners', too.",
     lambda first, partners, lam: first),
    ("λ and 1 − λ are swapped in the targets: λ belongs to the first image.",
     lambda first, partners, lam: _mix(partners, first, lam)),
)
# fmt: on


def _with_target_faults(oracle: Callable) -> Faults:
    """Wrong answers that are the oracle but for what they make of the targets."""
    return [(why, partial(oracle, mix_targets=mix)) for why, mix in TARGET_FAULTS]


def _mix_each(
    images: Tensor,
    targets: Tensor,
    lams: Tensor,
    permutation: Tensor,
    num_classes: int,
    mix_images: Mix = _mix,
    mix_targets: Mix = _mix,
) -> tuple[Tensor, Tensor]:
    """The oracle, unless images or targets are mixed in another way."""
    hard = F.one_hot(targets, num_classes).float()  # (N,) -> (N, C)
    mixed = mix_images(images, images[permutation], lams.view(-1, 1, 1, 1))
    return mixed, mix_targets(hard, hard[permutation], lams.view(-1, 1))


# fmt: off
EACH_FAULTS: Faults = (
    ("λ went along the columns of pixels: give it the shape (N, 1, 1, 1).",
     partial(_mix_each,
             mix_images=lambda first, partners, lam: _mix(first, partners, lam.flatten()))),
    ("λ and 1 − λ are swapped in the images: λ belongs to the first image.",
     partial(_mix_each, mix_images=lambda first, partners, lam: _mix(partners, first, lam))),
    *_with_target_faults(_mix_each),
)
# fmt: on


@checks_exercise(faults=EACH_FAULTS)
def check_mix_each(answer: Callable) -> None:
    """``answer(images, targets, lams, permutation, num_classes) -> (images, soft targets)``."""
    for count in (8, 5):
        # As wide as the batch is long: lams (N,) would broadcast along the columns of pixels.
        images = torch.randn(count, 3, 8, count)
        targets = torch.arange(count) % NUM_CLASSES
        lams = torch.linspace(0.05, 0.9, count)
        permutation = torch.arange(count).roll(1)
        _check_mixed(
            answer,
            (images, targets, lams, permutation, NUM_CLASSES),
            _mix_each,
            EACH_FAULTS,
            "It changes the images that it is given: return new.",
            "Image i is not lams[i] of itself and 1 − lams[i] of its partner.",
            "The targets do not have the shares that the images have.",
        )


def _cut_mix(
    images: Tensor,
    targets: Tensor,
    box: tuple[int, int, int, int],
    permutation: Tensor,
    num_classes: int,
    measure: Callable[..., Tensor | float] = lambda inside, box: inside.float().mean(),
    mix_targets: Mix = _mix,
) -> tuple[Tensor, Tensor]:
    """The oracle, unless it measures the pasted share or mixes the targets in another way."""
    top, left, height, width = box
    inside = torch.zeros(images.shape[2:], dtype=torch.bool)  # (H, W)
    # A slice ends by itself at the lower and the right border, but a negative one counts from
    # there, so the upper and the left border are clipped.
    inside[max(0, top) : max(0, top + height), max(0, left) : max(0, left + width)] = True
    hard = F.one_hot(targets, num_classes).float()  # (N,) -> (N, C)
    cut = torch.where(inside, images[permutation], images)
    return cut, mix_targets(hard, hard[permutation], 1 - measure(inside, box))


# fmt: off
CUT_FAULTS: Faults = (
    ("λ comes from the box as drawn: over the border less is pasted, count that.",
     partial(_cut_mix, measure=lambda inside, box: box[2] * box[3] / inside.numel())),
    *_with_target_faults(_cut_mix),
)
# fmt: on


@checks_exercise(faults=CUT_FAULTS)
def check_cut_mix(answer: Callable) -> None:
    """``answer(images, targets, box, permutation, num_classes) -> (images, soft targets)``."""
    for box in BOXES:
        _check_one_box(answer, box)


def _check_one_box(answer: Callable, box: tuple[int, int, int, int]) -> None:
    targets = torch.arange(6) % NUM_CLASSES
    permutation = torch.arange(6).roll(1)
    images = torch.randn(6, 3, 10, 12)
    _check_mixed(
        answer,
        (images, targets, box, permutation, NUM_CLASSES),
        _cut_mix,
        CUT_FAULTS,
        "It pastes into the images it is given: clone them.",
        f"With the box {box} the pixels are not those of the partner inside it, clipped to "
        "the image of 10 × 12, and the image's own outside.",
        f"The targets do not have the shares that the images have, with the box {box}.",
    )


class _Record:
    """What each forward pass of a model was given."""

    def __init__(self, model: nn.Module) -> None:
        self.inputs: list[Tensor] = []  # (N, 3, 2, 2) each
        self.weights: list[Tensor] = []  # (P,) each
        self.modes: list[bool] = []  # whether the model was in train mode
        self._handle = model.register_forward_pre_hook(self._note)

    def _note(self, model: nn.Module, args: tuple) -> None:
        inputs = args[0].detach().clone()
        weights = flatten_parameters(model)
        if self.inputs and inputs.equal(self.inputs[-1]) and weights.equal(self.weights[-1]):
            return  # the same once more, as for a second loss
        self.inputs.append(inputs)
        self.weights.append(weights)
        self.modes.append(model.training)

    def stop(self) -> None:
        self._handle.remove()


def _check_training(inputs: list[Tensor], train: Batches, start: nn.Module, found: Tensor) -> None:
    """The weights ``found`` (P,) are those of SGD on the mixed images with their soft targets.

    Image i of a batch is 1 at place i and 0 elsewhere, so a mixed image says what is in it.
    """
    right = [images.flatten(1)[:, : len(images)] for images in inputs]  # (N, N) each
    alone = [torch.eye(len(share)) for share in right]
    # λ and 1 − λ change places; an image that is its own partner stays 1.
    swapped = [(share > 0).float() - share + (share == 1) for share in right]
    mixed = any(not torch.equal(share, one) for share, one in zip(right, alone, strict=True))
    require(mixed, "The training images are not mixed.")
    hard = [F.one_hot(targets, NUM_CLASSES).float() for _, targets in train]  # (N, C) each

    def run(shares: list[Tensor]) -> Tensor:
        """The weights (P,) that targets with these shares lead to."""
        soft = [share @ targets for share, targets in zip(shares, hard, strict=True)]
        trained, _ = train_copy(start, list(zip(inputs, soft, strict=True)), [LR] * len(train))
        return flatten_parameters(trained)

    faults = (
        ("The images are mixed with their partners, and the targets are not.", alone),
        ("λ and 1 − λ are swapped between images and targets.", swapped),
    )
    otherwise = "The steps are not those of SGD on the mixed images with their soft targets."
    diagnose(found, run, right, faults, otherwise)


def _require_drawn_anew(inputs: list[Tensor], alpha: float) -> None:
    """λ follows Beta(α, α): for a large α it is near 0.5, else it differs between batches."""
    # The least mixed image tells λ, up to λ and 1 − λ: its largest pixel is max(λ, 1 − λ).
    largest = [images.flatten(1).max(dim=1).values.min().item() for images in inputs]
    all_differ = len(set(largest)) == len(largest)
    follows = max(largest) < 0.55 if alpha > 1 else all_differ
    require(follows, "λ does not follow Beta(α, α), drawn anew for each batch.")


@checks_exercise()
def check_train_and_validate(answer: Callable) -> None:
    """``answer(model, train, val, num_classes, alpha, lr) -> loss``: what was fed to the model?"""
    for alpha in (1.0, 1e4):
        _check_one_training(answer, alpha)


def _check_one_training(answer: Callable, alpha: float) -> None:
    classes = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
    images = torch.eye(8, 12).view(8, 3, 2, 2)  # image i is 1 at place i only
    train = [(images.clone(), classes.roll(shift)) for shift in range(3)]
    val = [(torch.randn(n, 3, 2, 2), torch.arange(n) % NUM_CLASSES) for n in (8, 5)]
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, NUM_CLASSES))
    start = copy.deepcopy(model)
    record = _Record(model)
    loss = float(answer(model, train, val, NUM_CLASSES, alpha, LR))
    record.stop()

    steps = len(train)
    require(len(record.inputs) > steps, "Every batch is to be trained on, and then validated.")
    modes_right = all(record.modes[:steps]) and not any(record.modes[steps:])
    require(modes_right, "Train in train mode, validate in eval mode: model.eval().")
    weights = flatten_parameters(model)
    require(
        all(torch.equal(seen, weights) for seen in record.weights[steps:]),
        "The weights change while it validates: it trains on the validation images.",
    )
    _check_training(record.inputs[:steps], train, start, weights)
    _require_drawn_anew(record.inputs[:steps], alpha)

    val_images = torch.cat([images for images, _ in val])
    val_targets = torch.cat([targets for _, targets in val])
    seen = torch.cat(record.inputs[steps:])
    unmixed = is_close(seen, val_images, ROUNDING)
    require(unmixed, "The validation images are mixed: leave them as they are.")
    with torch.no_grad():
        expected = F.cross_entropy(model(val_images), val_targets).item()
    require(
        abs(loss - expected) < 1e-4,
        f"The loss is {loss:.4f}; the mean over all validation images is {expected:.4f}.",
    )
