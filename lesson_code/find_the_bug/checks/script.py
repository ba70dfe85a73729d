"""Check of lesson 90's long script: which of its four faults are left, read off a small training.

The corrected script is run on made-up images. The network notes its inputs, modes and weights.
Each fault is looked for on its own, so one that is left hides no other.
"""

from collections import OrderedDict
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from course_utils.checking.checking import checks_exercise, require
from course_utils.checking.oracles import flatten_parameters, is_pair

__all__ = ["check_repair_script", "load_script", "read_script"]

COUNT, CLASSES, EPOCHS, LR, SEED = 90, 3, 4, 0.05, 3
VAL = COUNT // 5
OTHER_SCALE = "The training images no longer have mean 0 and standard deviation 1 in each channel."
NO_IMAGE = "The model gets an image that is none of the photographs, not even normalised."
NO_PAIR = "fine_tune has to return the model and the list of accuracies, one for each epoch."


def read_script() -> str:
    """The text of Kim's script, with its four faults."""
    return Path(__file__).with_name("kims_script.py").read_text(encoding="utf-8")


def load_script(source: str) -> Callable:
    """The function ``fine_tune`` of a script's text, in a namespace of its own.

    Raises:
        CheckFailed: when the text defines no such function.
    """
    namespace: dict = {"__name__": "kims_script"}
    exec(compile(source, "kims_script.py", "exec"), namespace)
    require(callable(namespace.get("fine_tune")), "The script has no function fine_tune any more.")
    return namespace["fine_tune"]


def _make_images() -> tuple[Tensor, Tensor]:
    """Images (N, 3, 3, 4) whose classes are easy to tell, and their targets (N,)."""
    targets = torch.arange(COUNT) % CLASSES
    images = 0.3 * torch.randn(COUNT, 3, 3, 4, dtype=torch.float64)
    images[torch.arange(COUNT), targets] += 2.0  # each class is bright in its own channel
    return 5 + images * torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)[:, None, None], targets


def _make_network() -> nn.Module:
    """With a BatchNorm, a dropout and a head ``fc``."""
    pool = nn.Sequential(nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Dropout(0.2))
    layers = {"norm": nn.BatchNorm2d(3), "conv": nn.Conv2d(3, 8, 2), "pool": pool}
    return nn.Sequential(OrderedDict(layers, fc=nn.Linear(8, 5))).double()


class _Pass(NamedTuple):
    """What the network was in a forward pass, and what it saw."""

    trains: bool
    numbers: list[int]  # of its images
    scale: Tensor  # (2, 3): factor and shift of the channels
    hits: int
    modes: set[bool]  # of all modules
    head: Tensor
    weights: Tensor


def _watch(network: nn.Module, images: Tensor, targets: Tensor) -> list[_Pass]:
    """A list that gets each forward pass of the network, and of its copies.

    From the third epoch on, the network is made to answer with the worst class when it is
    validated. So the best epoch is never the last one.
    """
    passes: list[_Pass] = []
    own = _sign(images)

    def note(model: nn.Module, inputs: tuple[Tensor], logits: Tensor) -> Tensor:
        given, trains = inputs[0].detach(), torch.is_grad_enabled()
        distances = (_sign(given)[:, None] - own).abs()  # (batch, N)
        require(distances.amin(dim=1).max() < 1e-6, NO_IMAGE)
        numbers = distances.argmin(dim=1)
        trained = sum(len(seen.numbers) for seen in passes if seen.trains)
        if not trains and trained > 2 * (COUNT - VAL):
            logits = -logits
        scale = _read_scale(given[0], images[numbers[0]])
        hits = int((logits.argmax(dim=1) == targets[numbers]).sum())
        modes = {module.training for module in model.modules()}
        head = model.get_parameter("fc.weight").detach().clone()
        weights = flatten_parameters(model)
        passes.append(_Pass(trains, numbers.tolist(), scale, hits, modes, head, weights))
        return logits

    network.register_forward_hook(note)
    return passes


def _sign(images: Tensor) -> Tensor:
    """A number for each image (N, 3, H, W) that scaling and shifting a channel leave alone."""
    first = images[:, 0].flatten(1)
    return (first[:, 0] - first[:, 1]) / (first[:, 2] - first[:, 3])


def _read_scale(found: Tensor, image: Tensor) -> Tensor:
    """Factor and shift (2, 3) of the channels that make ``found`` of ``image``."""
    one, other = found.flatten(1), image.flatten(1)  # (3, H · W)
    factor = (one[:, 0] - one[:, 1]) / (other[:, 0] - other[:, 1])
    return torch.stack([factor, one[:, 0] - factor * other[:, 0]])


def _check_rest(trains: list[list[_Pass]], vals: list[list[_Pass]], accuracies: list) -> None:
    """Fail if an epoch does something wrong that it did right before."""
    before: set[int] = set()
    for epoch, (train, val, found) in enumerate(zip(trains, vals, accuracies, strict=True)):
        trained, validated = ([n for seen in part for n in seen.numbers] for part in (train, val))
        what = f"trains on {len(trained)} images and validates on {len(validated)}, of {COUNT}"
        whole = (len(trained), len(validated)) == (COUNT - VAL, VAL)
        require(whole, f"Epoch {epoch} {what}: {COUNT - VAL} and {VAL} are due.")
        before |= set(trained)
        apart = not before & set(validated)
        require(apart, "The script now validates on images that it trains on.")
        value, hits = float(found), sum(seen.hits for seen in val)
        what = f"an accuracy of {value:.4f}, and {hits} of {VAL} validation images are right"
        require(abs(value - hits / VAL) < 1e-6, f"Epoch {epoch} reports {what}.")
        in_eval = all(seen.modes == {False} for seen in val)
        require(in_eval, "The script now validates in train mode.")


@checks_exercise()
def check_repair_script(answer: Callable) -> None:
    """``answer(source) -> source``: the script without its faults; says which are fixed."""
    source = read_script()
    fixed = answer(source)
    require(isinstance(fixed, str), "Return the text of the whole script.")
    require(fixed != source, "The script is unchanged: replace what is wrong in it.")
    (images, targets), network = _make_images(), _make_network()
    passes = _watch(network, images, targets)
    start = network.get_parameter("conv.weight").detach().clone()
    found = load_script(fixed)(network, images, targets, CLASSES, EPOCHS, LR, SEED)
    require(is_pair(found) and isinstance(found[0], nn.Module), NO_PAIR)
    model, accuracies = found
    blocks = [list(block) for _, block in groupby(passes, key=lambda seen: seen.trains)]
    require(len(blocks) == 2 * EPOCHS == 2 * len(accuracies) and blocks[0][0].trains, NO_PAIR)
    trains, vals = blocks[::2], blocks[1::2]
    steps = [seen for part in trains for seen in part]
    used = images[[number for seen in trains[0] for number in seen.numbers]]
    mean, std = used.mean(dim=(0, 2, 3)), used.std(dim=(0, 2, 3))
    due = torch.stack([1 / std, -mean / std])
    scaled = all(torch.allclose(seen.scale, due, rtol=0.02, atol=0.02) for seen in steps)
    require(scaled, OTHER_SCALE)
    _check_rest(trains, vals, accuracies)
    moved = not torch.equal(start, model.get_parameter("conv.weight"))
    require(moved, "No weight below the head is trained any more.")
    hits = [sum(seen.hits for seen in val) for val in vals]
    best = [val[-1].weights for val, right in zip(vals, hits, strict=True) if right == max(hits)]
    end, scale = flatten_parameters(model), steps[0].scale
    holds = {
        "the new head is trained": not torch.equal(steps[0].head, steps[-1].head),
        "every epoch trains in train mode": all(seen.modes == {True} for seen in steps),
        "validation images are normalised as the training images are": all(
            torch.allclose(seen.scale, scale) for part in vals for seen in part
        ),
        "the best weights come back": any(torch.allclose(end, weights) for weights in best),
    }
    done = [sentence for sentence, is_fixed in holds.items() if is_fixed]
    which = f": {', and '.join(done)}" if done else ""
    count = f"{len(done)} of {len(holds)} faults {'is' if len(done) == 1 else 'are'} fixed{which}"
    require(all(holds.values()), f"{count}. {len(holds) - len(done)} to go.")
