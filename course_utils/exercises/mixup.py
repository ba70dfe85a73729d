"""Checks of the exercises of lesson 05."""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.exercises.checking import checks_exercise, fail, require
from course_utils.exercises.oracles import (
    Batches,
    flatten_parameters,
    is_close,
    is_pair,
    train_copy,
)

__all__ = ["check_cut_mix", "check_mix_each", "check_train_and_validate"]

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


def _close(found: Tensor, expected: Tensor) -> bool:
    return is_close(found, expected, atol=ROUNDING)


def _one_hot(targets: Tensor) -> Tensor:
    return F.one_hot(targets, NUM_CLASSES).float()  # (N,) -> (N, C)


def _read_pair(found: object, images: Tensor) -> tuple[Tensor, Tensor]:
    """Mixed images (N, …) and soft targets (N, C), if that is what an answer returned."""
    if not is_pair(found):
        fail("Return two tensors: images and soft targets.")
    tensors = all(isinstance(tensor, Tensor) for tensor in found)
    require(tensors, "Return two tensors: images and soft targets.")
    mixed, soft = (tensor.float() for tensor in found)
    shape = (len(images), NUM_CLASSES)
    require(
        tuple(soft.shape) == shape,
        f"Soft targets have the shape {shape}, not {tuple(soft.shape)}.",
    )
    require(
        mixed.shape == images.shape,
        f"Images come in as {tuple(images.shape)} and go out as {tuple(mixed.shape)}.",
    )
    return mixed, soft


def _check_targets(
    soft: Tensor, lams: Tensor, targets: Tensor, permutation: Tensor, at: str = ""
) -> None:
    """``soft`` (N, C); ``lams`` (N, 1) or (1, 1): the share of each first image."""
    hard = _one_hot(targets)
    partners = hard[permutation]
    if _close(soft, lams * hard + (1 - lams) * partners):
        return
    require(
        not _close(soft, hard),
        "The targets are those of the first images alone: mix them with their partners', too.",
    )
    require(
        not _close(soft, (1 - lams) * hard + lams * partners),
        "λ and 1 − λ are swapped in the targets: λ belongs to the first image.",
    )
    require(_close(soft.sum(dim=1), torch.ones(len(soft))), "A row of targets does not sum to 1.")
    fail(f"The targets do not have the shares that the images have{at}.")


@checks_exercise()
def check_mix_each(answer: Callable) -> None:
    """``answer(images, targets, lams, permutation, num_classes) -> (images, soft targets)``."""
    for count in (8, 5):
        # As wide as the batch is long: lams (N,) would broadcast along the columns of pixels.
        images = torch.randn(count, 3, 8, count)
        targets = torch.arange(count) % NUM_CLASSES
        lams = torch.linspace(0.05, 0.9, count)
        permutation = torch.arange(count).roll(1)
        before = images.clone()
        found = answer(images, targets, lams, permutation, NUM_CLASSES)
        mixed, soft = _read_pair(found, images)
        require(torch.equal(images, before), "It changes the images that it is given: return new.")
        partners = images[permutation]
        shares = lams.view(-1, 1, 1, 1)
        require(
            not _close(mixed, lams * images + (1 - lams) * partners),
            "λ went along the columns of pixels: give it the shape (N, 1, 1, 1).",
        )
        require(
            not _close(mixed, (1 - shares) * images + shares * partners),
            "λ and 1 − λ are swapped in the images: λ belongs to the first image.",
        )
        require(
            _close(mixed, shares * images + (1 - shares) * partners),
            "Image i is not lams[i] of itself and 1 − lams[i] of its partner.",
        )
        _check_targets(soft, lams.view(-1, 1), targets, permutation)


@checks_exercise()
def check_cut_mix(answer: Callable) -> None:
    """``answer(images, targets, box, permutation, num_classes) -> (images, soft targets)``."""
    for box in BOXES:
        _check_one_box(answer, box)


def _check_one_box(answer: Callable, box: tuple[int, int, int, int]) -> None:
    height = 10
    width = 12
    targets = torch.arange(6) % NUM_CLASSES
    permutation = torch.arange(6).roll(1)
    images = torch.randn(6, 3, height, width)
    before = images.clone()
    found = answer(images, targets, box, permutation, NUM_CLASSES)
    cut, soft = _read_pair(found, images)
    require(torch.equal(images, before), "It pastes into the images it is given: clone them.")

    top, left, box_height, box_width = box
    # A slice ends by itself at the lower and the right border, but a negative one counts from
    # there, so the upper and the left border are clipped.
    rows = slice(max(0, top), max(0, top + box_height))
    columns = slice(max(0, left), max(0, left + box_width))
    inside = torch.zeros(height, width, dtype=torch.bool)
    inside[rows, columns] = True
    require(
        _close(cut, torch.where(inside, images[permutation], images)),
        f"With the box {box} the pixels are not those of the partner inside it, clipped to "
        f"the image of {height} × {width}, and the image's own outside.",
    )
    lam = 1 - inside.float().mean()
    lam_of_whole_box = 1 - box_height * box_width / (height * width)
    hard = _one_hot(targets)
    by_whole_box = lam_of_whole_box * hard + (1 - lam_of_whole_box) * hard[permutation]
    clipped = abs(lam_of_whole_box - lam) >= 1e-6
    require(
        not clipped or not _close(soft, by_whole_box),
        "λ comes from the box as drawn: over the border less is pasted, count that.",
    )
    _check_targets(soft, lam.view(1, 1), targets, permutation, f", with the box {box}")


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
    learning_rates = [LR] * len(train)
    shares = [images.flatten(1)[:, : len(images)] for images in inputs]  # (N, N) each
    hard = [_one_hot(targets) for _, targets in train]
    mixed = any(not torch.equal(share, torch.eye(len(share))) for share in shares)
    require(mixed, "The training images are not mixed.")

    def is_trained_on(targets: list[Tensor]) -> bool:
        batches = list(zip(inputs, targets, strict=True))
        trained, _ = train_copy(start, batches, learning_rates)
        return _close(found, flatten_parameters(trained))

    soft = [share @ targets for share, targets in zip(shares, hard, strict=True)]
    if is_trained_on(soft):
        return
    # λ and 1 − λ change places; an image that is its own partner stays 1.
    swapped = [(share > 0).float() - share + (share == 1) for share in shares]
    swapped_soft = [share @ targets for share, targets in zip(swapped, hard, strict=True)]
    require(
        not is_trained_on(hard),
        "The images are mixed with their partners, and the targets are not.",
    )
    require(not is_trained_on(swapped_soft), "λ and 1 − λ are swapped between images and targets.")
    fail("The steps are not those of SGD on the mixed images with their soft targets.")


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
    require(_close(seen, val_images), "The validation images are mixed: leave them as they are.")
    with torch.no_grad():
        expected = F.cross_entropy(model(val_images), val_targets).item()
    require(
        abs(loss - expected) < 1e-4,
        f"The loss is {loss:.4f}; the mean over all validation images is {expected:.4f}.",
    )
