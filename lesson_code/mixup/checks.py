"""Checks of the exercises of lesson 05."""

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.checking.checking import Faults, checks_exercise, diagnose, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import (
    Batches,
    flatten_parameters,
    is_close,
    is_near,
    is_pair,
    train_copy,
    train_copy_without_zero_grad,
)

__all__ = [
    "check_cut_mix",
    "check_fmix_mask",
    "check_measure_mixing",
    "check_mix_each",
    "check_train_and_validate",
]

Mix = Callable[..., Tensor]  # mix(first, partners, lam)

NUM_CLASSES = 4
NUM_SEEN = 3  # classes that occur in a batch that is mixed or cut: the last one does not
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


@checks_exercise()
def check_measure_mixing(answer: Callable) -> None:
    """``answer(config, data) -> (one, other, low, high)``: two variants over the same seeds."""
    judge_experiment(run_experiment(answer))


def _check_mixed(
    answer: Callable,
    arguments: tuple,
    oracle: Callable,
    faults: Faults,
    describe_images: Callable[[Tensor], str],
    case: str = "",
) -> None:
    """``describe_images(mixed)`` is the sentence if no fault fits; ``case`` says which case."""
    images = arguments[0]
    given = [part.clone() if isinstance(part, Tensor) else part for part in arguments]
    found = answer(*given)
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
    for name, part, before in zip(("images", "targets", "λ"), given, arguments, strict=False):
        untouched = not isinstance(before, Tensor) or before.equal(part)
        require(untouched, f"It changes the {name} that it is given: make new ones.")
    diagnose(
        mixed, lambda other: other(*arguments)[0], oracle, faults, describe_images(mixed.detach())
    )
    sums = soft.sum(dim=1)  # (N,)
    worst = sums[(sums - 1).abs().argmax()]
    sums_to_1 = is_close(sums, torch.ones(len(soft)), ROUNDING)
    require(sums_to_1, f"A row of targets does not sum to 1, but to {worst:.3f}.")
    right = oracle(*arguments)[1]
    row = int((soft - right).abs().sum(dim=1).argmax())
    expected, given_row = ([round(x, 3) for x in rows[row].tolist()] for rows in (right, soft))
    diagnose(
        soft,
        lambda other: other(*arguments)[1],
        oracle,
        faults,
        f"The targets do not have the shares that the images have{case}: those of image {row} are "
        f"{expected}, not {given_row}.",
    )


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
    ("All images are mixed by one λ, the mean: each has its own.",
     partial(_mix_each,
             mix_images=lambda first, partners, lam: _mix(first, partners, lam.mean()))),
    ("λ is raised to at least one half: take it as it comes.",
     partial(_mix_each, mix_images=lambda first, partners, lam: _mix(
         first, partners, lam.maximum(1 - lam)))),
    ("The images are not mixed: their partners are images[permutation].",
     partial(_mix_each, mix_images=lambda first, partners, lam: first)),
    ("The partner is weighed by its own λ: image i takes 1 − lams[i] of it.",
     lambda images, targets, lams, permutation, num_classes: _mix_each(
         images, targets, lams, permutation, num_classes,
         mix_images=lambda first, partners, lam: lam * first + (1 - lam[permutation]) * partners)),
    ("The partners are those of the inverse permutation: take images[permutation].",
     lambda images, targets, lams, permutation, num_classes: _mix_each(
         images, targets, lams, permutation.argsort(), num_classes)),
    *_with_target_faults(_mix_each),
)
# fmt: on


def _describe_shares(mixed: Tensor, images: Tensor, lams: Tensor, permutation: Tensor) -> str:
    """How much of itself and of its partner is in the image that is furthest from right."""
    right = _mix(images, images[permutation], lams.view(-1, 1, 1, 1))
    row = int((mixed - right).flatten(1).norm(dim=1).argmax())
    pair = torch.stack([images[row], images[permutation[row]]]).flatten(1)  # (2, pixels)
    shares = torch.linalg.lstsq(pair.T, mixed[row].view(-1, 1)).solution.flatten()
    lam = lams[row]
    return (
        f"Image {row} is not lams[{row}] of itself and 1 − lams[{row}] of its partner: it holds "
        f"{shares[0]:.2f} and {shares[1]:.2f} of them instead of {lam:.2f} and {1 - lam:.2f}."
    )


@checks_exercise(faults=EACH_FAULTS)
def check_mix_each(answer: Callable) -> None:
    """``answer(images, targets, lams, permutation, num_classes) -> (images, soft targets)``."""
    for count in (8, 5):
        # As wide as the batch is long: lams (N,) would broadcast along the columns of pixels.
        images = torch.randn(count, 3, 8, count)
        targets = torch.arange(count) % NUM_SEEN
        lams = torch.linspace(0.05, 0.9, count)
        permutation = torch.arange(count).roll(1)
        _check_mixed(
            answer,
            (images, targets, lams, permutation, NUM_CLASSES),
            _mix_each,
            EACH_FAULTS,
            partial(_describe_shares, images=images, lams=lams, permutation=permutation),
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
    ("λ divides by the height squared: an image of H × W has H · W pixels.",
     partial(_cut_mix, measure=lambda inside, box: inside.sum() / inside.shape[0] ** 2)),
    *_with_target_faults(_cut_mix),
)
# fmt: on


@checks_exercise(faults=CUT_FAULTS)
def check_cut_mix(answer: Callable) -> None:
    """``answer(images, targets, box, permutation, num_classes) -> (images, soft targets)``."""
    for box in BOXES:
        _check_one_box(answer, box)


def _check_one_box(answer: Callable, box: tuple[int, int, int, int]) -> None:
    targets = torch.arange(6) % NUM_SEEN
    permutation = torch.arange(6).roll(1)
    images = torch.randn(6, 3, 10, 12)
    _check_mixed(
        answer,
        (images, targets, box, permutation, NUM_CLASSES),
        _cut_mix,
        CUT_FAULTS,
        partial(_describe_cut, images=images, box=box, permutation=permutation),
        case=f" with the box {box}",
    )


def _describe_cut(
    mixed: Tensor, images: Tensor, box: tuple[int, int, int, int], permutation: Tensor
) -> str:
    """Which pixels should be another's, and which are; or what stands in them."""
    right = _cut_mix(images, torch.zeros(len(images)).long(), box, permutation, 1)[0]
    wanted, found = (_describe_pixels(tensor != images) for tensor in (right, mixed))
    if wanted == found:
        return (
            f"With the box {box} the right pixels change, {wanted}, but not to those of the "
            "partner as it came in."
        )
    return (
        f"With (top, left, height, width) = {box} in an image of 10 × 12 the partner shows in "
        f"{wanted}; yours changes {found}."
    )


def _describe_pixels(changed: Tensor) -> str:
    """The rows and columns in which something of ``changed`` (N, C, H, W) is true."""
    rows = changed.any(dim=(0, 1, 3)).nonzero().flatten().tolist()
    columns = changed.any(dim=(0, 1, 2)).nonzero().flatten().tolist()
    if not rows:
        return "no pixel"
    return f"rows {rows[0]}–{rows[-1]} and columns {columns[0]}–{columns[-1]}"


# Noise that is wide, and noise that is high: rows and columns of frequencies must not be swapped.
MASK_CASES = (((24, 40), 0.7, 3.0), ((40, 24), 0.25, 3.0), ((32, 32), 0.5, 1.0))
MASK_TOLERANCE = 0.1  # of the norm: about one pixel in a hundred may differ by rounding

Filter = Callable[[Tensor, float], Tensor]  # frequencies (H, W) and decay, to factors (H, W)
Choose = Callable[[Tensor, float], Tensor]  # values (H, W) and λ, to a mask (H, W)


def _damp(frequency: Tensor, decay: float) -> Tensor:
    """Factors for each frequency; the lowest one is that of one wave along the longer side."""
    return frequency.clamp(min=1 / max(frequency.shape)) ** -decay


def _keep_largest(values: Tensor, lam: float) -> Tensor:
    """True at the round(λ · H · W) largest values."""
    count = round(lam * values.numel())
    order = values.flatten().argsort(descending=True)
    mask = torch.zeros(values.numel(), dtype=torch.bool)
    mask[order[:count]] = True
    return mask.view_as(values)


def _fmix_mask(
    noise: Tensor,
    lam: float,
    decay: float,
    damp: Filter = _damp,
    choose: Choose = _keep_largest,
) -> Tensor:
    """The oracle, unless it damps or chooses in another way."""
    height, width = noise.shape
    vertical = torch.fft.fftfreq(height)[:, None]  # (H, 1), in waves per pixel
    horizontal = torch.fft.fftfreq(width)[None]  # (1, W)
    frequency = (vertical.square() + horizontal.square()).sqrt()  # (H, W)
    values = torch.fft.ifft2(torch.fft.fft2(noise) * damp(frequency, decay)).real
    return choose(values, lam)


# fmt: off
MASK_FAULTS: Faults = (
    ("The noise is not filtered: divide its spectrum by frequency ** decay.",
     partial(_fmix_mask, damp=lambda frequency, decay: torch.ones_like(frequency))),
    ("The high frequencies are amplified: divide by frequency ** decay, do not multiply.",
     partial(_fmix_mask, damp=lambda frequency, decay: 1 / _damp(frequency, decay))),
    ("The decay is not used: raise the frequency to the power of decay.",
     partial(_fmix_mask, damp=lambda frequency, decay: _damp(frequency, 1.0))),
    ("λ is the share of the second image here: keep the first one where the largest values are.",
     partial(_fmix_mask, choose=lambda values, lam: _keep_largest(values, 1 - lam))),
    ("The smallest values are kept: λ belongs to the largest.",
     partial(_fmix_mask, choose=lambda values, lam: _keep_largest(-values, lam))),
    ("All values above zero are kept, whatever λ is: keep the round(λ · H · W) largest.",
     partial(_fmix_mask, choose=lambda values, lam: values > 0)),
    ("The threshold is a share of the range of values: keep a share of the pixels instead.",
     partial(_fmix_mask, choose=lambda values, lam: (
         values - values.min()) / (values.max() - values.min()) > 1 - lam)),
)
# fmt: on


@checks_exercise(faults=MASK_FAULTS)
def check_fmix_mask(answer: Callable) -> None:
    """``answer(noise, lam, decay) -> mask``: bool ``(H, W)``, True where the first image stays."""
    for shape, lam, decay in MASK_CASES:
        _check_one_mask(answer, torch.randn(shape), lam, decay)


def _check_one_mask(answer: Callable, noise: Tensor, lam: float, decay: float) -> None:
    given = noise.clone()
    mask = answer(given, lam, decay)
    require(isinstance(mask, Tensor), "Return a tensor: the mask.")
    require(given.equal(noise), "It changes the noise that it is given: make a new tensor.")
    shape = tuple(noise.shape)
    require(tuple(mask.shape) == shape, f"The mask has the shape {shape}, not {tuple(mask.shape)}.")
    require(mask.dtype == torch.bool, f"The mask is of the type bool, not {mask.dtype}.")
    wanted, found = round(lam * noise.numel()), int(mask.sum())
    diagnose(
        mask.float(),
        lambda other: other(noise, lam, decay).float(),
        _fmix_mask,
        MASK_FAULTS,
        f"With λ = {lam} and decay {decay:g} it is another mask: {found} pixels of {shape} are "
        f"True, and {wanted} should be, at the largest values of the filtered noise.",
        tolerance=MASK_TOLERANCE,
    )
    require(found == wanted, f"{found} pixels are True: round(λ · H · W) is {wanted}.")


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


def _measure_learning_rate(
    start: nn.Module, batch: tuple[Tensor, Tensor], after: Tensor
) -> float | None:
    """The length of the step on this batch that leads to ``after`` (P,), if one does."""
    weights = flatten_parameters(start)
    against_gradient = flatten_parameters(train_copy(start, [batch], [1.0])[0]) - weights
    taken = after - weights
    length = (taken @ against_gradient / against_gradient.square().sum()).item()
    return length if is_near(taken, length * against_gradient, 1e-4) else None


def _check_training(
    inputs: list[Tensor], train: Batches, start: nn.Module, after_first: Tensor, found: Tensor
) -> None:
    """The weights ``found`` (P,) are those of SGD on the mixed images with their soft targets.

    ``after_first`` (P,) are those after one step. Image i of a batch is 1 at place i and 0
    elsewhere, so a mixed image says what is in it.
    """
    right = [images.flatten(1)[:, : len(images)] for images in inputs]  # (N, N) each
    alone = [torch.eye(len(share)) for share in right]
    # λ and 1 − λ change places; an image that is its own partner stays 1.
    swapped = [(share > 0).float() - share + (share == 1) for share in right]
    mixed = any(not torch.equal(share, one) for share, one in zip(right, alone, strict=True))
    require(mixed, "The training images are not mixed.")
    hard = [F.one_hot(targets, NUM_CLASSES).float() for _, targets in train]  # (N, C) each

    def run(other: tuple[list[Tensor], Callable]) -> Tensor:
        """The weights (P,) that targets with these shares and this training lead to."""
        shares, train_other = other
        soft = [share @ targets for share, targets in zip(shares, hard, strict=True)]
        mixed = list(zip(inputs, soft, strict=True))
        return flatten_parameters(train_other(start, mixed, [LR] * len(train))[0])

    faults = (
        (
            "The images are mixed with their partners, and the targets are not.",
            (alone, train_copy),
        ),
        ("λ and 1 − λ are swapped between images and targets.", (swapped, train_copy)),
        (
            "A step sees the gradients of all batches so far: call zero_grad before each backward.",
            (right, train_copy_without_zero_grad),
        ),
    )
    otherwise = (
        "The steps are not those of SGD on the mixed images: have their soft targets the same λ "
        "and the same partners?"
    )
    learning_rate = _measure_learning_rate(start, (inputs[0], right[0] @ hard[0]), after_first)
    if learning_rate is not None and not math.isclose(learning_rate, LR, rel_tol=1e-3):
        otherwise = f"The learning rate is {learning_rate:.3g}, and lr is {LR}."
    diagnose(found, run, (right, train_copy), faults, otherwise)


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
    returned = answer(model, train, val, NUM_CLASSES, alpha, LR)
    record.stop()
    require(returned is not None, "Nothing came back: return the mean validation loss.")
    loss = float(returned)

    steps = len(train)
    require(len(record.inputs) > steps, "Every batch is to be trained on, and then validated.")
    # Sorted, False comes first: all forward passes in eval mode before all those in train mode.
    validated_first = len(set(record.modes)) == 2 and record.modes == sorted(record.modes)
    require(not validated_first, "It validates before it trains: return the loss after the epoch.")
    trained_in_train_mode = all(record.modes[:steps])
    require(trained_in_train_mode, "It trains in eval mode: call model.train() before.")
    validated_in_eval_mode = not any(record.modes[steps:])
    require(validated_in_eval_mode, "It validates in train mode: model.eval() comes before.")
    weights = flatten_parameters(model)
    require(
        all(torch.equal(seen, weights) for seen in record.weights[steps:]),
        "The weights change while it validates: it trains on the validation images.",
    )
    _check_training(record.inputs[:steps], train, start, record.weights[1], weights)
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
