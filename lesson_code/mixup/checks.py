"""Checks of the exercises of lesson 05."""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.checking.checking import checks_exercise, diagnose, fail, require
from course_utils.checking.oracles import (
    flatten_parameters,
    is_close,
    is_pair,
    train_copy,
    train_copy_without_zero_grad,
)
from course_utils.checking.outputs import Output
from course_utils.checking.reports import compare_planted
from course_utils.measure.provenance import describe_value

__all__ = [
    "check_cut_mix",
    "check_fmix_mask",
    "check_mix_each",
    "check_mixing_experiment",
    "check_train_and_validate",
]

NUM_CLASSES = 4
NUM_SEEN = 3  # classes that occur in a batch that is mixed or cut: the last one does not
LR = 0.1
ROUNDING = 1e-5


# ---- ☆ Another mixing.


def _mixes(batch_transform: Callable | None) -> bool:
    """Whether a transform of the batch returns other images and soft targets."""
    if batch_transform is None:
        return False
    images, targets = torch.randn(16, 3, 8, 8), torch.arange(16) % NUM_CLASSES
    for _ in range(9):  # λ may be near 1 once
        found, soft = batch_transform(images.clone(), targets)
        if soft.shape == (16, NUM_CLASSES) and not found.equal(images):
            return True
    return False


def _describe_training(options: Mapping) -> tuple[str, dict[str, str]]:
    """Whether batches are mixed, and the other options."""
    others = {name: describe_value(x) for name, x in options.items() if x is not None}
    others.pop("batch_transform", None)
    return ("mixed" if _mixes(options.get("batch_transform")) else "without"), others


def _require_kinds(kinds: set[str]) -> None:
    plain = "without" in kinds
    require(plain, "No training is without mixing: leave batch_transform out of one.")
    require(
        "mixed" in kinds,
        "No training is mixed: its batch_transform has to return other images and soft targets of "
        "num_classes columns.",
    )


@checks_exercise()
def check_mixing_experiment(answer: Callable) -> Iterator[Output]:
    """``answer(train, num_classes) -> dict``: paired accuracies, interval in points, verdict."""
    yield from compare_planted(
        lambda train: answer(train, NUM_CLASSES),
        _describe_training,
        ("without", "mixed"),
        _require_kinds,
    )


# ---- ★ One λ for each image, ★★ a box of the partner.


def _run_mixing(answer: Callable, *arguments: Any) -> tuple[Tensor, Tensor]:
    """Images (N, C, H, W) and soft targets (N, classes), if they can be compared."""
    given = [part.clone() if isinstance(part, Tensor) else part for part in arguments]
    found = answer(*given)
    if not is_pair(found) or not all(isinstance(part, Tensor) for part in found):
        fail("Return two tensors: images and soft targets.")
    mixed, soft = (tensor.float() for tensor in found)
    before, after = (tuple(images.shape) for images in (arguments[0], mixed))
    shape = (before[0], NUM_CLASSES)
    require(soft.shape == shape, f"Soft targets have the shape {shape}, not {tuple(soft.shape)}.")
    require(before == after, f"Images come in as {before} and go out as {after}.")
    for name, part, original in zip(("images", "targets", "λ"), given, arguments, strict=False):
        if isinstance(original, Tensor):
            require(original.equal(part), f"It changes the {name} that it is given: make new ones.")
    return mixed, soft


def _compare_targets(
    soft: Tensor, targets: Tensor, permutation: Tensor, kept: Tensor, case: str = ""
) -> Iterator[Output]:
    """``kept`` (N,): how much of itself each image keeps."""
    sums = soft.sum(dim=1)  # (N,)
    worst = sums[(sums - 1).abs().argmax()]
    require(abs(worst - 1) < ROUNDING, f"A row of targets does not sum to 1, but to {worst:.3f}.")
    partners = targets[permutation]
    own, other = (soft.gather(1, classes[:, None])[:, 0] for classes in (targets, partners))
    row = int(((own - kept).abs() + (own + other - 1).abs()).argmax())
    yield Output(
        soft,
        f"The targets do not have the shares that the images have{case}: those of image {row} "
        f"need {kept[row]:.3f} at its class {targets[row]} and the rest at its partner's class "
        f"{partners[row]}, not {[round(share, 3) for share in soft[row].tolist()]}.",
    )


@checks_exercise()
def check_mix_each(answer: Callable) -> Iterator[Output]:
    """``answer(images, targets, lams, permutation, num_classes) -> (images, soft targets)``."""
    # As wide as the batch is long: lams (N,) would broadcast along the columns of pixels.
    images = torch.randn(8, 3, 1, 8)
    targets = torch.arange(8) % NUM_SEEN
    lams = torch.linspace(0.05, 0.9, 8)
    permutation = torch.arange(8).roll(1)
    mixed, soft = _run_mixing(answer, images, targets, lams, permutation, NUM_CLASSES)
    pairs = torch.stack([images, images[permutation]], dim=-1).flatten(1, 3)  # (N, pixels, 2)
    shares = torch.linalg.lstsq(pairs, mixed.flatten(1)[..., None]).solution[..., 0]  # (N, 2)
    wanted = torch.stack([lams, 1 - lams], dim=1)
    row = int((shares - wanted).abs().sum(dim=1).argmax())
    yield Output(
        mixed,
        f"Image {row} is not lams[{row}] of itself and 1 − lams[{row}] of its partner: it holds "
        f"{shares[row, 0]:.2f} and {shares[row, 1]:.2f} of them instead of {wanted[row, 0]:.2f} "
        f"and {wanted[row, 1]:.2f}.",
    )
    yield from _compare_targets(soft, targets, permutation, lams)


# Top, left, height and width, and where that is in images of 10 × 12; the last are outside.
BOXES = (
    ((2, 3, 4, 5), "rows 2–5 and columns 3–7"), ((-3, 1, 6, 4), "rows 0–2 and columns 1–4"),
    ((5, -2, 9, 6), "rows 5–9 and columns 0–3"), ((0, 7, 3, 30), "rows 0–2 and columns 7–11"),
    ((-2, -2, 40, 40), "rows 0–9 and columns 0–11"), ((4, 4, 0, 3), "no pixel"),
    ((20, 3, 4, 4), "no pixel"), ((-9, 2, 5, 4), "no pixel"), ((3, -8, 4, 6), "no pixel"),
)  # fmt: skip


@checks_exercise()
def check_cut_mix(answer: Callable) -> Iterator[Output]:
    """``answer(images, targets, box, permutation, num_classes) -> (images, soft targets)``."""
    targets = torch.arange(6) % NUM_SEEN
    permutation = torch.arange(6).roll(1)
    for box, place in BOXES:
        images = torch.randn(6, 3, 10, 12)
        cut, soft = _run_mixing(answer, images, targets, box, permutation, NUM_CLASSES)
        own, pasted = (
            (cut - source).abs().amax(dim=(0, 1)) < ROUNDING  # (H, W)
            for source in (images, images[permutation])
        )
        changed = _describe_pixels(~own)
        if changed == place:
            changed = "them, but not to those of the partner as it came in"
        yield Output(
            pasted.float() - own.float(),
            f"With (top, left, height, width) = {box} in an image of 10 × 12 the partner shows in "
            f"{place}; yours changes {changed}.",
        )
        kept = own.float().mean().expand(6)
        yield from _compare_targets(soft, targets, permutation, kept, f" with the box {box}")


def _describe_pixels(changed: Tensor) -> str:
    """The rows and columns in which something of ``changed`` (H, W) is true."""
    rows, columns = (changed.any(dim=dim).nonzero().flatten().tolist() for dim in (1, 0))
    if not rows:
        return "no pixel"
    return f"rows {rows[0]}–{rows[-1]} and columns {columns[0]}–{columns[-1]}"


# ---- ★★ A mask of blobs.

# Noise that is wide, and noise that is high: rows and columns of frequencies must not be swapped.
MASK_CASES = (((24, 40), 0.7, 3.0), ((40, 24), 0.25, 3.0), ((32, 32), 0.5, 1.0))


@checks_exercise()
def check_fmix_mask(answer: Callable) -> Iterator[Output]:
    """``answer(noise, lam, decay) -> mask``: bool ``(H, W)``, True where the first image stays."""
    for shape, lam, decay in MASK_CASES:
        noise = torch.randn(shape)
        given = noise.clone()
        mask = answer(given, lam, decay)
        require(isinstance(mask, Tensor), "Return a tensor: the mask.")
        require(given.equal(noise), "It changes the noise that it is given: make a new tensor.")
        require(mask.shape == shape, f"The mask has the shape {shape}, not {tuple(mask.shape)}.")
        require(mask.dtype == torch.bool, f"The mask is of the type bool, not {mask.dtype}.")
        wanted, found = round(lam * noise.numel()), int(mask.sum())
        yield Output(
            F.avg_pool2d(mask[None].float(), 2)[0],  # fewer numbers
            f"With λ = {lam} and decay {decay:g} it is another mask: {found} pixels of {shape} "
            f"are True, and {wanted} should be, at the largest values of the filtered noise.",
            tolerance=0.05,  # about one pixel in a hundred may differ by rounding
        )
        require(found == wanted, f"{found} pixels are True: round(λ · H · W) is {wanted}.")


# ---- ★★★ A training with mixup. Each answer draws its own λ and partners: what was fed to the
# model shows them.


def _record_passes(model: nn.Module) -> list[tuple]:
    """A list that gets of each forward pass: inputs, weights (P,), whether the model trains."""
    passes: list[tuple] = []

    def note(model: nn.Module, args: tuple) -> None:
        new = (args[0].detach().clone(), flatten_parameters(model), model.training)
        same = passes and all(map(torch.equal, new[:2], passes[-1][:2]))  # as for a second loss
        if not same:
            passes.append(new)

    model.register_forward_pre_hook(note)
    return passes


@checks_exercise()
def check_train_and_validate(answer: Callable) -> None:
    """``answer(model, train, val, num_classes, alpha, lr) -> loss``: what was fed to the model?"""
    for alpha in (1.0, 1e4):
        classes = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
        images = torch.eye(8, 12).view(8, 3, 2, 2)  # image i is 1 at place i only
        train = [(images.clone(), classes.roll(shift)) for shift in range(3)]
        val = [(torch.randn(n, 3, 2, 2), torch.arange(n) % NUM_CLASSES) for n in (8, 5)]
        model = nn.Sequential(nn.Flatten(), nn.Linear(12, NUM_CLASSES))
        start = copy.deepcopy(model)
        passes = _record_passes(model)
        returned = answer(model, train, val, NUM_CLASSES, alpha, LR)
        require(returned is not None, "Nothing came back: return the mean validation loss.")
        loss = float(returned)
        steps = len(train)
        require(len(passes) > steps, "Every batch is to be trained on, and then validated.")
        inputs, seen, modes = (list(parts) for parts in zip(*passes, strict=True))
        # Sorted, False comes first: all forward passes in eval mode before all those in train mode.
        early = len(set(modes)) == 2 and modes == sorted(modes)
        require(not early, "It validates before it trains: return the loss after the epoch.")
        require(all(modes[:steps]), "It trains in eval mode: call model.train() before.")
        require(not any(modes[steps:]), "It validates in train mode: model.eval() comes before.")
        weights = flatten_parameters(model)
        require(
            all(torch.equal(other, weights) for other in seen[steps:]),
            "The weights change while it validates: it trains on the validation images.",
        )
        _check_weights(inputs[:steps], [y for _, y in train], start, seen[1], weights)
        # λ follows Beta(α, α): for a large α it is near 0.5, else it differs between batches. The
        # least mixed image tells it, up to λ and 1 − λ: its largest pixel is max(λ, 1 − λ).
        largest = [images.flatten(1).amax(dim=1).min().item() for images in inputs[:steps]]
        require(min(largest) < 1, "The training images are not mixed.")
        follows = max(largest) < 0.55 if alpha > 1 else len(set(largest)) == steps
        require(follows, "λ does not follow Beta(α, α), drawn anew for each batch.")
        val_images, val_targets = (torch.cat(parts) for parts in zip(*val, strict=True))
        unmixed = is_close(torch.cat(inputs[steps:]), val_images, ROUNDING)
        require(unmixed, "The validation images are mixed: leave them as they are.")
        with torch.no_grad():
            expected = F.cross_entropy(model(val_images), val_targets).item()
        require(
            abs(loss - expected) < 1e-4,
            f"The loss is {loss:.4f}; the mean over all validation images is {expected:.4f}.",
        )


def _check_weights(
    inputs: list[Tensor],
    targets: list[Tensor],
    start: nn.Module,
    after_first: Tensor,
    found: Tensor,
) -> None:
    """The weights ``found`` (P,) are those of SGD on the mixed images with their soft targets.

    ``after_first`` (P,) are those after one step. Image i of a batch is 1 at place i and 0
    elsewhere, so a mixed image says what is in it.
    """

    def train(other: tuple[Callable, Callable, float], steps: int = len(inputs)) -> Tensor:
        """The weights (P,) after another training, and what it makes of shares (N, N)."""
        train_other, change, lr = other
        batches = [
            (x, change(x.flatten(1)[:, : len(x)]) @ F.one_hot(y, NUM_CLASSES).float())
            for x, y in zip(inputs[:steps], targets, strict=False)
        ]
        return flatten_parameters(train_other(start, batches, [lr] * steps)[0])

    right = (train_copy, torch.clone, LR)
    taken, step = (end - flatten_parameters(start) for end in (after_first, train(right, 1)))
    lr = LR * (taken.norm() / step.norm()).item()
    faults = (
        ("The images are mixed with their partners, and the targets are not.",
         (train_copy, lambda shares: torch.eye(len(shares)), LR)),
        ("λ and 1 − λ are swapped between images and targets.",
         # an image that is its own partner stays 1
         (train_copy, lambda shares: (shares > 0).float() - shares + (shares == 1), LR)),
        ("A step sees the gradients of all batches so far: call zero_grad before each backward.",
         (train_copy_without_zero_grad, torch.clone, LR)),
        (f"The learning rate is {lr:.3g}, and lr is {LR}.", (train_copy, torch.clone, lr)),
    )  # fmt: skip
    otherwise = (
        "The steps are not those of SGD on the mixed images: have their soft targets the same λ "
        "and the same partners?"
    )
    diagnose(found, train, right, faults, otherwise)
