"""Check of lesson 90's long script: which of its four faults are left, read off a small training.

The corrected script is run on made-up images. The network notes its inputs, modes and weights.
Each fault is looked for on its own, so one that is left hides no other.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor, nn

from course_utils.checking.checking import checks_exercise, require
from course_utils.checking.oracles import flatten_parameters, is_pair

__all__ = ["check_repair_script", "load_script", "read_script"]

COUNT, CLASSES, EPOCHS, LR, SEED = 90, 3, 4, 0.05, 3
FAULTS = MappingProxyType(  # what is said of a fault that is fixed
    {
        "head": "the new head is trained",
        "mode": "every epoch trains in train mode",
        "scale": "validation images are normalised as the training images are",
        "best": "the best weights come back",
    }
)
NO_TEXT = "Return the text of the whole script."
UNCHANGED = "The script is unchanged: replace what is wrong in it."
NO_FUNCTION = "The script has no function fine_tune any more."
NO_PAIR = "fine_tune has to return the model and the list of accuracies."
NOT_GIVEN = "The model gets an image that is none of the photographs, not even normalised."
LEAKED = "The script now validates on images that it trains on."
TRAIN_SCALE = "The training images no longer have mean 0 and standard deviation 1 in each channel."
FEWER = "Epoch {} trains on {} images and validates on {}, of {}: {} and {} are due."
EVAL_MODE = "The script now validates in train mode."
WRONG_ACCURACY = "Epoch {} reports an accuracy of {:.4f}, and {} of {} validation images are right."
NO_GRADIENT_STEP = "No weight below the head is trained any more."


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
    require(callable(namespace.get("fine_tune")), NO_FUNCTION)
    return namespace["fine_tune"]


@dataclass
class _Epoch:
    """What the network saw in one epoch; ``weights`` are those that were validated."""

    trained: list[int] = field(default_factory=list)
    validated: list[int] = field(default_factory=list)
    hits: int = 0
    weights: Tensor | None = None


class _Watched(nn.Module):
    """A small network with a BatchNorm, a dropout and a head ``fc``, that notes what it gets.

    From its third epoch on it answers with the worst class when it is validated, so that the
    best epoch is never the last one.
    """

    def __init__(self, images: Tensor, targets: Tensor) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.conv = nn.Conv2d(3, 8, 2)
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(8, 5)
        self.notes = _Notes(images, targets)
        self.double()

    def forward(self, images: Tensor) -> Tensor:
        features = self.conv(self.norm(images)).relu().amax(dim=(2, 3))
        logits = self.fc(self.dropout(features))
        if not torch.is_grad_enabled() and len(self.notes.epochs) > 2:
            logits = -logits
        self.notes.add(self, images, logits.detach())
        return logits


class _Notes:
    """Inputs, modes and weights of the watched network, by epoch. A copy shares the notes."""

    def __init__(self, images: Tensor, targets: Tensor) -> None:
        self.images, self.targets = images, targets
        self.epochs: list[_Epoch] = [_Epoch()]
        self.train_modes: list[bool] = []
        self.eval_modes: list[bool] = []
        self.heads: list[Tensor] = []  # weights of the head in each training pass
        self.scales: dict[bool, list[Tensor]] = {True: [], False: []}  # trains: (2, 3) each

    def __deepcopy__(self, _: dict) -> "_Notes":
        return self

    def find(self, images: Tensor) -> list[int]:
        """The numbers of images of which each channel was scaled and shifted in any way."""
        found, own = _sign(images), _sign(self.images)
        distances = (found[:, None] - own).abs()  # (batch, N)
        require(distances.amin(dim=1).max() < 1e-6, NOT_GIVEN)
        return distances.argmin(dim=1).tolist()

    def add(self, model: "_Watched", images: Tensor, logits: Tensor) -> None:
        trains = torch.is_grad_enabled()
        numbers = self.find(images.detach())
        self.scales[trains].append(_read_scale(images.detach(), self.images[numbers]))
        if trains:
            if self.epochs[-1].validated:
                self.epochs.append(_Epoch())
            self.epochs[-1].trained += numbers
            self.train_modes.append(model.training and model.norm.training)
            self.heads.append(model.fc.weight.detach().clone())
            return
        epoch = self.epochs[-1]
        epoch.validated += numbers
        epoch.hits += int((logits.argmax(dim=1) == self.targets[numbers]).sum())
        epoch.weights = flatten_parameters(model)
        self.eval_modes.append(model.training)


def _sign(images: Tensor) -> Tensor:
    """A number for each image (N, 3, H, W) that scaling and shifting a channel leave alone."""
    first = images[:, 0].flatten(1)
    return (first[:, 0] - first[:, 1]) / (first[:, 2] - first[:, 3])


def _read_scale(found: Tensor, images: Tensor) -> Tensor:
    """Factor and shift (2, 3) of the channels that make ``found`` of the first of ``images``."""
    one, other = found[0].flatten(1), images[0].flatten(1)  # (3, H · W)
    factor = (one[:, 0] - one[:, 1]) / (other[:, 0] - other[:, 1])
    return torch.stack([factor, one[:, 0] - factor * other[:, 0]])


def _make_images() -> tuple[Tensor, Tensor]:
    """Images (N, 3, 3, 4) whose classes are easy to tell, and their targets (N,)."""
    targets = torch.arange(COUNT) % CLASSES
    images = 0.3 * torch.randn(COUNT, 3, 3, 4, dtype=torch.float64)
    images[torch.arange(COUNT), targets] += 2.0  # each class is bright in its own channel
    return 5 + images * torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)[:, None, None], targets


def _check_rest(notes: _Notes, accuracies: list[float], start: Tensor, end: Tensor) -> None:
    """Fail if the script does something wrong that it did right before."""
    due_val = COUNT // 5
    before: set[int] = set()
    for number, epoch in enumerate(notes.epochs):
        train, val = set(epoch.trained), set(epoch.validated)
        counts = (len(epoch.trained), len(epoch.validated))
        due = (COUNT - due_val, due_val)
        require(counts == due, FEWER.format(number, *counts, COUNT, *due))
        before |= train
        require(not before & val, LEAKED)
    require(len(accuracies) == EPOCHS == len(notes.epochs), NO_PAIR)
    for number, (value, epoch) in enumerate(zip(accuracies, notes.epochs, strict=True)):
        wrong = WRONG_ACCURACY.format(number, float(value), epoch.hits, due_val)
        require(abs(float(value) - epoch.hits / due_val) < 1e-6, wrong)
    require(not any(notes.eval_modes), EVAL_MODE)
    require(not torch.equal(start, end), NO_GRADIENT_STEP)


def _find_faults(notes: _Notes, model: nn.Module) -> list[str]:
    """Those of `FAULTS` that are left."""
    train = sorted(set(notes.epochs[0].trained))
    images = notes.images[train]
    mean, std = images.mean(dim=(0, 2, 3)), images.std(dim=(0, 2, 3))
    due = torch.stack([1 / std, -mean / std])
    for scale in notes.scales[True]:
        require(torch.allclose(scale, due, rtol=0.02, atol=0.02), TRAIN_SCALE)
    used = notes.scales[True][0]
    scores = [epoch.hits for epoch in notes.epochs]
    best = [epoch.weights for epoch in notes.epochs if epoch.hits == max(scores)]
    end = flatten_parameters(model)
    holds = {
        "head": not torch.equal(notes.heads[0], notes.heads[-1]),
        "mode": all(notes.train_modes),
        "scale": all(torch.allclose(scale, used) for scale in notes.scales[False]),
        "best": any(weights is not None and torch.allclose(end, weights) for weights in best),
    }
    return [name for name in FAULTS if not holds[name]]


@checks_exercise()
@torch.enable_grad()
def check_repair_script(answer: Callable) -> None:
    """``answer(source) -> source``: the script without its faults; says which are fixed."""
    source = read_script()
    fixed = answer(source)
    require(isinstance(fixed, str), NO_TEXT)
    require(fixed != source, UNCHANGED)
    fine_tune = load_script(fixed)
    images, targets = _make_images()
    model = _Watched(images, targets)
    notes, start = model.notes, model.conv.weight.detach().clone()
    found = fine_tune(model, images, targets, CLASSES, EPOCHS, LR, SEED)
    require(is_pair(found) and isinstance(found[0], nn.Module), NO_PAIR)
    trained, accuracies = found
    left = _find_faults(notes, trained)
    _check_rest(notes, list(accuracies), start, copy.deepcopy(trained).conv.weight)
    done = [sentence for name, sentence in FAULTS.items() if name not in left]
    which = f": {', and '.join(done)}" if done else ""
    verb = "is" if len(done) == 1 else "are"
    count = f"{len(done)} of {len(FAULTS)} faults {verb} fixed"
    require(not left, f"{count}{which}. {len(left)} to go.")
