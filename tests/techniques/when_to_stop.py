"""Cross-validation: a fold of the training images is left out of the training."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from course_utils.tools.report.lesson_code import read_definitions
from tests.experiments import plant_experiments
from tests.techniques.record import BATCHES

LESSON = read_definitions("18_when_to_stop")
FOLDS = 4
FOLD = 1


class Watched:
    """A loader that keeps what it delivers, and the mean and std that it normalised with."""

    def __init__(self, data, seed):
        self.data, self.delivered = data, []
        size = len(data.train) // BATCHES
        self.loader = data.train_loader(seed, batch_size=size, max_shift=0)

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        for batch in self.loader:
            self.delivered.append(batch[0])
            yield batch


def assign(data):
    return LESSON["assign_folds"](data.train.targets, FOLDS)


def leave_out(data, seed, split=LESSON["split_fold"]):
    """The data seam: training batches of the other folds."""
    return Watched(split(data, assign(data), FOLD), seed)


SEAM = {"make_loader": leave_out}


def sum_pixels(images):
    """One number per image (N, 3, H, W), the same for a flipped one; sorted."""
    return sorted(images.double().sum(dim=(1, 2, 3)).round().tolist())


def invariant(record):
    """Every image of the other folds once and no other, normalised with their own numbers."""
    others = record.data.train.images[assign(record.data) != FOLD]
    delivered = torch.cat(record.loader.delivered).float()
    mean, std = (
        torch.tensor(numbers)[:, None, None]
        for numbers in (record.loader.data.mean, record.loader.data.std)
    )
    pixels = 255 * (delivered * std + mean)
    assert sum_pixels(pixels.round()) == sum_pixels(torch.from_numpy(others).permute(0, 3, 1, 2))
    torch.testing.assert_close(delivered.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)
    variance = delivered.var(dim=(0, 2, 3), correction=0)
    torch.testing.assert_close(variance, torch.ones(3), atol=1e-3, rtol=0)


def leak_statistics(data, fold_of, fold):
    """Normalised with the numbers of all images."""
    part = LESSON["split_fold"](data, fold_of, fold)
    return replace(part, mean=data.mean, std=data.std)


def leak_image(data, fold_of, fold):
    """An image of the fold takes the place of another one."""
    moved = fold_of.copy()
    inside, outside = (fold_of == fold).argmax(), (fold_of != fold).argmax()
    moved[inside], moved[outside] = moved[outside], moved[inside]
    return LESSON["split_fold"](data, moved, fold)


def train_on_fold(data, fold_of, fold):
    return LESSON["split_fold"](data, fold_of == fold, 0)


def leave_other_out(data, fold_of, fold):
    return LESSON["split_fold"](data, fold_of, fold + 1)


FAULTS = [
    ("make_loader", Watched),  # nothing is left out
    ("make_loader", partial(leave_out, split=leak_statistics)),
    ("make_loader", partial(leave_out, split=leak_image)),
    ("make_loader", partial(leave_out, split=train_on_fold)),
    ("make_loader", partial(leave_out, split=leave_other_out)),
]


# The lesson's recipe cards: each gets the names that the card defined.
def check_pytorch_card(card):
    """It stops after three epochs without a lower loss, and has the weights of the lowest."""
    torch.manual_seed(0)
    x, y = torch.randn(80, 3), torch.randint(2, (80,))
    net = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.3)
    losses, weights = [], []
    for _ in range(100):
        optimizer.zero_grad()
        F.cross_entropy(net(x[:40]), y[:40]).backward()
        optimizer.step()
        losses.append(F.cross_entropy(net(x[40:60]), y[40:60]).item())
        weights.append(net.weight.detach().clone())
    stopped, best = LESSON["find_stop"]([-loss for loss in losses], patience=3)
    assert 1 < best < stopped < 100
    assert (card["epoch"], card["best_epoch"]) == (stopped, best)
    torch.testing.assert_close(card["net"].weight.detach(), weights[best - 1])
    assert not card["net"].training


def check_lightning_card(card):
    """What is loaded is the checkpoint with the lowest loss, and the training stopped early."""
    stopping, saving = card["stopping"], card["saving"]
    assert 0 < stopping.stopped_epoch < 99
    assert stopping.patience == 3
    best = card["best"]
    [(inputs, targets)] = card["val"]
    loss = F.cross_entropy(best.model(inputs.to(best.device)).cpu(), targets)
    torch.testing.assert_close(loss, saving.best_model_score.cpu())
    torch.testing.assert_close(loss, stopping.best_score.cpu())
    assert Path(saving.best_model_path).exists()
    epoch = int(Path(saving.best_model_path).name.split("=")[1].split("-")[0])
    assert epoch == stopping.stopped_epoch - 3


# Planted answers of the lesson's exercises.
MEASURE = """
from course_utils.training import compare, warmup_cosine

def measure_epochs(config, data):
    def vary(epochs):
        return {{"make_schedule": warmup_cosine, "trainer": {{"max_epochs": epochs}}}}

    variants = {{"long": vary(config.epochs), "short": vary({short})}}
    measured = compare(config, data, variants, seeds=(3, 4, 5), name="mine")
    found = measured.difference("short")
    return measured.values("long"), measured.values("short"), found.low, found.high
"""
FIND = """
import math

def find_weights(losses, patience):
    lowest, best, bad = math.inf, {first}, 0
    for i, loss in enumerate(losses):
        {guard}
        if loss {better} lowest:
            lowest, best, bad = loss, {epoch}, 0
        else:
            bad = bad + 1
        if bad {stop} patience:
            return {result}
    return {end}
"""
RIGHT_FIND = {
    "first": "0",
    "guard": "if not math.isfinite(loss): return i + 1, best",
    "better": "<",
    "epoch": "i + 1",
    "stop": ">=",
    "result": "i + 1, best",
    "end": "len(losses), best",
}
FIND_BY_NUMPY = """
import numpy as np

def find_weights(losses, patience):
    values = np.array(losses, dtype=float)
    for n in range(1, len(values) + 1):
        past = values[:n]
        if not np.isfinite(past[-1]):
            return n, int(past[:-1].argmin()) + 1 if n > 1 else 0
        if n - (int(past.argmin()) + 1) >= patience:
            break
    return n, int(values[:n].argmin()) + 1
"""
ASSIGN = """
import numpy as np

def assign_groups(groups, folds):
    names, sizes = np.unique(groups, return_counts=True)
    room = [0] * folds
    fold_of = np.zeros(len(groups), dtype=int)
    for turn, k in enumerate({order}):
        fold = {fold}
        room[fold] += {added}
        fold_of[groups == names[k]] = fold
    return {result}
"""
RIGHT_ASSIGN = {
    "order": "np.argsort(sizes)[::-1]",
    "fold": "room.index(min(room))",
    "added": "sizes[k]",
    "result": "fold_of",
}
ASSIGN_BY_LIBRARY = """
import numpy as np
from sklearn.model_selection import GroupKFold

def assign_groups(groups, folds):
    fold_of = np.empty(len(groups), dtype=int)
    for fold, (_, held) in enumerate(GroupKFold(folds).split(groups, groups=groups)):
        fold_of[held] = fold
    return fold_of
"""
PREDICT = """
import torch

def predict_held_out(make_model, train, inputs, targets, fold_of):
    {before}
    rows = [None] * len(inputs)
    for fold in sorted(set(fold_of.tolist())):
        held = [i for i, f in enumerate(fold_of.tolist()) if f == fold]
        rest = [i for i, f in enumerate(fold_of.tolist()) if f != fold]
        mean, std = inputs[{known}].mean(dim=0), inputs[{known}].std(dim=0)
        {make}
        train(model, (inputs[{trained}] - mean) / std, targets[{trained}])
        {mode}
        with torch.no_grad():
            found = model({judged})
        for i, row in zip(held, found{softmax}):
            rows[i] = row
    return torch.stack(rows)
"""
RIGHT_PREDICT = {
    "before": "pass",
    "known": "rest",
    "make": "model = make_model()",
    "trained": "rest",
    "mode": "model.eval()",
    "judged": "(inputs[held] - mean) / std",
    "softmax": ".softmax(dim=1)",
}
AS_GIVEN = """
import torch

def predict_held_out(make_model, train, inputs, targets, fold_of):
    inputs = (inputs - inputs.mean(dim=0)) / inputs.std(dim=0)
    model, found = make_model(), []
    for fold in fold_of.unique():
        inside = fold_of == fold
        train(model, inputs[~inside], targets[~inside])
        with torch.no_grad():
            found.append(model(inputs[inside]).softmax(dim=1))
    return torch.cat(found)
"""
PREDICT_BY_ORDER = """
import torch

def predict_held_out(make_model, train, inputs, targets, fold_of):
    parts, places = [], []
    for fold in fold_of.unique(sorted=False):
        rest = inputs[fold_of != fold]
        shift, scale = rest.mean(0), rest.std(0)
        model = make_model()
        train(model, (rest - shift) / scale, targets[fold_of != fold])
        logits = model.eval()((inputs[fold_of == fold] - shift) / scale).detach()
        parts.append(torch.nn.functional.softmax(logits, dim=-1))
        places.append(torch.nonzero(fold_of == fold)[:, 0])
    return torch.cat(parts)[torch.cat(places).argsort()]
"""


def _find(**changed):
    return FIND.format(**RIGHT_FIND | changed)


def _assign(**changed):
    return ASSIGN.format(**RIGHT_ASSIGN | changed)


def _predict(**changed):
    return PREDICT.format(**RIGHT_PREDICT | changed)


WRONG_ANSWERS = {
    "measure_epochs": plant_experiments("measure_epochs"),
    "find_weights": [
        (_find(result="best, i + 1", end="best, len(losses)"), "These are swapped"),
        (_find(result="i + 1, i + 1", end="len(losses), len(losses)"), "last epoch are restored"),
        (_find(better="<="), "no lower loss"),
        (_find(stop=">"), "an epoch too late"),
        (_find(guard="pass"), "must end the training"),
        (_find(guard="if math.isnan(loss): return i + 1, best"), "infinite loss"),
        (_find(first="-1", epoch="i", result="i, best", end="len(losses) - 1, best"),
         "count from 1"),
        (_find(guard="if not math.isfinite(loss): return i, best"), "It should be"),
        (_find(end="len(losses), len(losses)"), "last epoch are restored"),
        (_find(stop=">= 2 or bad >="), "It should be"),
        (_find(better="< 5 and loss <"), "It should be"),
        (_find(first="None"), "whole numbers"),
        (_find(end="best"), "Return two numbers"),
        (_find(end="len(losses), float(best)"), "whole numbers"),
    ],
    "assign_groups": [
        (_assign(order="range(len(names))"), "largest first"),
        (_assign(order="np.argsort(sizes)"), "the largest group first"),
        (_assign(fold="turn % folds"), "fewest images"),
        (_assign(added="1"), "fewest images"),
        (_assign(result="np.arange(len(groups)) % folds"), "is in two folds"),
        (_assign(result="fold_of + 1"), "from 0 to"),
        (_assign(result="[groups.fill(0), fold_of][1]"), "must stay as it was"),
        (_assign(result="room"), "the fold of each image"),
        (_assign(result="fold_of.astype(float)"), "from 0 to"),
        (_assign(fold="0"), "do not have the sizes"),
    ],
    "predict_held_out": [
        (AS_GIVEN, "All of the four faults"),
        (_predict().replace("def predict", "@torch.no_grad()\ndef predict"), "needs gradients"),
        (_predict(softmax=".softmax(dim=0)"), "must sum to 1"),
        (_predict(mode="model.eval(); inputs.zero_()"), "must stay as they were"),
        (PREDICT_BY_ORDER.replace(".std(0)", ".std(0, correction=0)"), "divides by n - 1"),
        (PREDICT_BY_ORDER.replace("[torch.cat(places).argsort()]", ""), "order of the folds"),
        (_predict(known="held + rest"), "those of all examples"),
        (_predict(known="held"), "of the fold that is judged"),
        (_predict(before="model = make_model()", make="pass"), "One network is trained"),
        (_predict(mode="pass"), "in train mode"),
        (_predict(softmax=""), "These are logits"),
        (_predict(trained="held + rest", known="rest"), "not the probabilities"),
        (_predict(trained="held"), "not the probabilities"),
        (_predict(judged="inputs[held]"), "are not scaled"),
        (_predict(mode="return torch.zeros(3)"), r"tensor \(N, C\)"),
    ],
}  # fmt: skip

OTHER_RIGHT_ANSWERS = {
    "measure_epochs": [MEASURE.format(short="1"), MEASURE.format(short="config.epochs // 2")],
    "find_weights": [_find(), FIND_BY_NUMPY],
    "assign_groups": [_assign(), ASSIGN_BY_LIBRARY],
    "predict_held_out": [_predict(), PREDICT_BY_ORDER],
}
