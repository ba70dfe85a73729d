"""Planted answers of the lesson's exercises."""

from tests.lessons.experiments import plant_experiments

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
