"""Checks of the exercises of lesson 05."""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.exercises.checking import checks_exercise, require

__all__ = ["check_cut_mix", "check_mix_each", "check_train_and_validate"]

NUM_CLASSES = 4
LR = 0.1
Batches = list[tuple[torch.Tensor, torch.Tensor]]
Tensors = list[torch.Tensor]


def _close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return found.shape == expected.shape and torch.allclose(found.float(), expected, atol=1e-5)


def _require_pair(found: object, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    pair = isinstance(found, tuple | list) and len(found) == 2
    tensors = pair and all(isinstance(tensor, torch.Tensor) for tensor in found)
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
    soft: torch.Tensor, lams: torch.Tensor, targets: torch.Tensor, permutation: torch.Tensor, at=""
) -> None:
    """``lams`` (N, 1): the share of each first image."""
    hard = F.one_hot(targets, NUM_CLASSES).float()
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
    require(False, f"The targets do not have the shares that the images have{at}.")


@checks_exercise
def check_mix_each(answer: Callable) -> None:
    """``answer(images, targets, lams, permutation, num_classes) -> (images, soft targets)``."""
    for count in (8, 5):
        images = torch.randn(count, 3, 8, count)  # as wide as the batch: no broadcasting by luck
        targets = torch.arange(count) % NUM_CLASSES
        lams = torch.linspace(0.05, 0.9, count)
        permutation = torch.arange(count).roll(1)
        before = images.clone()
        mixed, soft = _require_pair(answer(images, targets, lams, permutation, NUM_CLASSES), images)
        require(torch.equal(images, before), "It changes the images that it is given: return new.")
        shares = lams.view(-1, 1, 1, 1)
        columns = lams * images + (1 - lams) * images[permutation]
        require(
            not _close(mixed, columns),
            "λ went along the columns of pixels: give it the shape (N, 1, 1, 1).",
        )
        require(
            not _close(mixed, (1 - shares) * images + shares * images[permutation]),
            "λ and 1 − λ are swapped in the images: λ belongs to the first image.",
        )
        right = _close(mixed, shares * images + (1 - shares) * images[permutation])
        require(right, "Image i is not lams[i] of itself and 1 − lams[i] of its partner.")
        _check_targets(soft, lams.view(-1, 1), targets, permutation)


BOXES = (
    *((2, 3, 4, 5), (-3, 1, 6, 4), (5, -2, 9, 6), (0, 7, 3, 30), (-2, -2, 40, 40), (4, 4, 0, 3)),
    *((20, 3, 4, 4), (-9, 2, 5, 4), (3, -8, 4, 6)),  # wholly outside
)


@checks_exercise
def check_cut_mix(answer: Callable) -> None:
    """``answer(images, targets, box, permutation, num_classes) -> (images, soft targets)``."""
    height, width = 10, 12
    targets = torch.arange(6) % NUM_CLASSES
    permutation = torch.arange(6).roll(1)
    for box in BOXES:
        images = torch.randn(6, 3, height, width)
        before = images.clone()
        top, left, box_height, box_width = box
        inside = torch.zeros(height, width, dtype=torch.bool)
        bottom, right = max(0, top + box_height), max(0, left + box_width)
        inside[max(top, 0) : bottom, max(left, 0) : right] = True
        cut, soft = _require_pair(answer(images, targets, box, permutation, NUM_CLASSES), images)
        require(torch.equal(images, before), "It pastes into the images it is given: clone them.")
        require(
            _close(cut, torch.where(inside, images[permutation], images)),
            f"With the box {box} the pixels are not those of the partner inside it, clipped to "
            f"the image of {height} × {width}, and the image's own outside.",
        )
        drawn = 1 - box_height * box_width / (height * width)
        lam = 1 - inside.float().mean()
        hard = F.one_hot(targets, NUM_CLASSES).float()
        by_drawn = drawn * hard + (1 - drawn) * hard[permutation]
        require(
            abs(drawn - lam) < 1e-6 or not _close(soft, by_drawn),
            "λ comes from the box as drawn: over the border less is pasted, count that.",
        )
        _check_targets(soft, lam.view(1, 1), targets, permutation, f", with the box {box}")


def _replay(model: nn.Module, inputs: Tensors, targets: Tensors) -> torch.Tensor:
    """Weights of ``model`` after an SGD step on each pair of inputs and soft targets."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for images, soft in zip(inputs, targets, strict=True):
        optimizer.zero_grad()
        F.cross_entropy(model(images), soft).backward()
        optimizer.step()
    return model[1].weight.detach()


def _check_training(
    inputs: Tensors, train: Batches, start: nn.Module, weight: torch.Tensor
) -> None:
    """Image i of a batch is 1 at place i and 0 elsewhere: a mixture tells what is in it."""
    shares = [images.flatten(1)[:, : len(images)] for images in inputs]
    hard = [F.one_hot(targets, NUM_CLASSES).float() for _, targets in train]
    mixed = any(not torch.equal(share, torch.eye(len(share))) for share in shares)
    require(mixed, "The training images are not mixed.")
    soft = [share @ labels for share, labels in zip(shares, hard, strict=True)]
    if torch.allclose(weight, _replay(start, inputs, soft), atol=1e-5):
        return
    swapped = [(share > 0).float() - share + (share == 1) for share in shares]
    soft_swapped = [share @ labels for share, labels in zip(swapped, hard, strict=True)]
    require(
        not torch.allclose(weight, _replay(start, inputs, hard), atol=1e-5),
        "The images are mixed with their partners, and the targets are not.",
    )
    require(
        not torch.allclose(weight, _replay(start, inputs, soft_swapped), atol=1e-5),
        "λ and 1 − λ are swapped between images and targets.",
    )
    require(False, "The steps are not those of SGD on the mixed images with their soft targets.")


@checks_exercise
def check_train_and_validate(answer: Callable) -> None:
    """``answer(model, train, val, num_classes, alpha, lr) -> loss``: what was fed to the model?"""
    for alpha in (1.0, 1e4):
        classes = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
        eye = torch.eye(8, 12).view(8, 3, 2, 2)
        train: Batches = [(eye.clone(), classes.roll(shift)) for shift in range(3)]
        val: Batches = [(torch.randn(n, 3, 2, 2), torch.arange(n) % NUM_CLASSES) for n in (8, 5)]
        model = nn.Sequential(nn.Flatten(), nn.Linear(12, NUM_CLASSES))
        start, inputs, weights, modes = copy.deepcopy(model), [], [], []

        def record(module, args, inputs=inputs, weights=weights, modes=modes):
            now = args[0].detach().clone(), module[1].weight.detach().clone()
            if inputs and all(map(torch.equal, now, (inputs[-1], weights[-1]))):
                return  # the same once more, as for a second loss
            for notes, value in zip((inputs, weights, modes), (*now, module.training), strict=True):
                notes.append(value)

        model.register_forward_pre_hook(record)
        loss = float(answer(model, train, val, NUM_CLASSES, alpha, LR))
        require(len(inputs) > len(train), "Every batch is to be trained on, and then validated.")
        weight = model[1].weight.detach()
        modes_right = all(modes[: len(train)]) and not any(modes[len(train) :])
        require(modes_right, "Train in train mode, validate in eval mode: model.eval().")
        require(
            all(torch.equal(seen, weight) for seen in weights[len(train) :]),
            "The weights change while it validates: it trains on the validation images.",
        )
        _check_training(inputs[: len(train)], train, start, weight)
        tops = [images.flatten(1).max(dim=1).values.min().item() for images in inputs[: len(train)]]
        varied = max(tops) < 0.55 if alpha > 1 else len(set(tops)) == len(tops)
        require(varied, "λ does not follow Beta(α, α), drawn anew for each batch.")
        images, val_targets = (torch.cat(part) for part in zip(*val, strict=True))
        seen = torch.cat(inputs[len(train) :])
        require(_close(seen, images), "The validation images are mixed: leave them as they are.")
        with torch.no_grad():
            logits = images.flatten(1) @ weight.T + model[1].bias
        expected = F.cross_entropy(logits, val_targets).item()
        require(
            abs(loss - expected) < 1e-4,
            f"The loss is {loss:.4f}; the mean over all validation images is {expected:.4f}.",
        )
