"""Planted answers of the lesson's exercises."""

from tests.lessons.experiments import plant_experiments

MEASURE = """
from dataclasses import replace
from functools import partial
import numpy as np
import torch.nn.functional as F
from course_utils.training import compare, fit

def measure_hard(config, data):
    rng = np.random.default_rng(1)
    targets = data.train.targets.copy()
    wrong = rng.random(len(targets)) < 0.3
    targets[wrong] = rng.integers(0, data.num_classes, wrong.sum())
    spoiled = replace(data, train=replace(data.train, targets=targets))
    variants = {{"mean": {{}}, "other": {{"loss": {loss}}}}}
    measured = compare(config, spoiled, variants, seeds=(5, 6, 7), name="mine")
    found = measured.difference("other")
    return measured.values("mean"), measured.values("other"), found.low, found.high
"""


KEEP = """
import math
import torch
import torch.nn.functional as F

def keep_hardest(logits, targets, share):
    {guard}
    losses = F.cross_entropy(logits, targets, reduction="none")
    {body}
"""


RIGHT_KEEP = {
    "guard": "check_share(share)",
    "body": "k = math.ceil(share * losses.numel()); "
            "return losses.sort(descending=True).values[:k].mean()",
}  # fmt: skip


GUARD = """
def check_share(share):
    if share <= 0 or share > 1:
        raise ValueError(f"share {share}: between 0 and 1")
"""


KEEP_BY_HAND = """
import torch

def keep_hardest(logits, targets, share):
    check_share(share)
    logs = logits.log_softmax(dim=1)
    if targets.dim() == 1:
        losses = -logs.gather(1, targets[:, None])[:, 0]
    else:
        losses = -(targets * logs).sum(dim=1)
    k = -int(-share * len(losses) // 1)
    return losses.topk(k).values.sum() / k
"""


RANK = """
import torch
import torch.nn.functional as F

def rank_suspects(train, inputs, targets, folds):
    n = len(inputs)
    losses = [None] * n
    for fold in range(folds):
        rest = [i for i in range(n) if {rest}]
        own = [i for i in range(n) if i % folds == fold]
        model = train(inputs[rest], targets[rest])
        {mode}
        for i in own:
            logits = model(inputs[i : i + 1]).detach()
            losses[i] = F.cross_entropy(logits, targets[i : i + 1]).item()
    {result}
"""


RIGHT_RANK = {
    "rest": "i % folds != fold",
    "mode": "model.eval()",
    "result": "return torch.tensor(sorted(range(n), key=lambda i: -losses[i]))",
}


RANK_BLOCKS = """
import torch
import torch.nn.functional as F

def rank_suspects(train, inputs, targets, folds):
    numbers = torch.arange(len(inputs))
    scored = []
    for fold in range(folds):
        own = numbers[fold::folds]
        rest = torch.cat([numbers[other::folds] for other in range(folds) if other != fold])
        model = train(inputs[rest], targets[rest]).eval()
        with torch.inference_mode():
            loss = F.cross_entropy(model(inputs[own]), targets[own], reduction="none")
        scored += list(zip(loss.tolist(), own.tolist()))
    return torch.tensor([number for _, number in sorted(scored, reverse=True)])
"""


TRAIN = """
import torch
import torch.nn.functional as F

def train_selective(model, optimizer, batches, count):
    for inputs, targets in batches:
        {look}
        with torch.no_grad():
            losses = F.cross_entropy(model(inputs), targets, reduction="none")
        {back}
        chosen = losses.sort(descending={descending}).indices[:count]
        {zero}
        loss = F.cross_entropy(model(inputs[chosen]), targets[chosen], reduction="sum")
        (loss / {size}).backward()
        optimizer.step()
    {end}
"""


RIGHT_TRAIN = {
    "look": "model.eval()",
    "back": "model.train()",
    "descending": "True",
    "zero": "model.zero_grad()",
    "size": "len(chosen)",
    "end": "pass",
}


AS_GIVEN = """
import torch
import torch.nn.functional as F

def train_selective(model, optimizer, batches, count):
    for inputs, targets in batches:
        model.eval()
        losses = F.cross_entropy(model(inputs), targets, reduction="none")
        chosen = losses.argsort()[:count]
        loss = F.cross_entropy(model(inputs[chosen]), targets[chosen], reduction="sum")
        loss = loss / len(inputs)
        loss.backward()
        optimizer.step()
"""


MASKED = """
import torch
import torch.nn.functional as F

def train_selective(model, optimizer, batches, count):
    for inputs, targets in batches:
        with torch.no_grad():
            losses = F.cross_entropy(model.eval()(inputs), targets, reduction="none")
        mask = losses >= losses.sort().values[-count]
        optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(model.train()(inputs[mask]), targets[mask]).backward()
        optimizer.step()
"""


def _keep(**changed):
    return GUARD + KEEP.format(**RIGHT_KEEP | changed)


def _rank(**changed):
    return RANK.format(**RIGHT_RANK | changed)


def _train(**changed):
    return TRAIN.format(**RIGHT_TRAIN | changed)


WRONG_ANSWERS = {
    "measure_hard": plant_experiments("measure_hard"),
    "keep_hardest": [
        (_keep(body="return losses.topk(round(share * len(losses))).values.mean()"),
         "not rounded up"),
        (_keep(body="return losses.topk(max(1, int(share * len(losses)))).values.mean()"),
         "not rounded up"),
        (_keep(body="return losses.sort().values[: math.ceil(share * len(losses))].mean()"),
         "The lowest losses"),
        (_keep(body="return losses.topk(math.ceil(share * len(losses))).values.sum()"),
         "Not the mean"),
        (_keep(body="return losses.topk(math.ceil(share * len(losses))).values"),
         "without dimensions"),
        (_keep(body="return losses.detach().topk(math.ceil(share * len(losses))).values.mean()"),
         "has no gradient"),
        (_keep(body="return losses.topk(min(len(losses), int(share * len(losses)) + 1))"
                    ".values.mean()"), "Not the mean"),
        (_keep(body="loss = losses.topk(math.ceil(share * len(losses))).values.mean(); "
                    "return torch.tensor(loss.item(), requires_grad=True)"), "not the gradient"),
        (_keep(guard="if not 0 < share < 1: raise ValueError(share)"), "A share of 1 is allowed"),
        (_keep(guard="pass"), "A share of"),
        (_keep(guard="assert 0 < share <= 1"), "raises AssertionError"),
        (_keep(guard="if share < 0 or share > 1: raise ValueError(share)"), "A share of 0"),
    ],
    "rank_suspects": [
        (_rank(rest="True"), "have seen the examples"),
        (_rank(rest="i % folds == fold"), "trained on the fold"),
        (_rank(mode="pass"), "in train mode"),
        (_rank().replace("def rank", "@torch.no_grad()\ndef rank"), "under no_grad"),
        (_rank(result="return torch.tensor(sorted(range(n), key=lambda i: -losses[i])).float()"),
         "integers"),
        (_rank(result="return torch.tensor(losses).argsort()"), "The lowest loss"),
        (_rank(result="return torch.tensor(losses).argsort(descending=True)[:5]"),
         "every index once"),
        (_rank(result="return sorted(range(n), key=lambda i: -losses[i])"), "as a tensor"),
        (_rank(result="return torch.tensor(losses)"), "every index once"),
    ],
    "train_selective": [
        (AS_GIVEN, "not those of steps on the hardest"),
        (_train(descending="False"), "The easiest examples"),
        (_train(back="pass"), "in eval mode"),
        (_train(look="pass"), "The look is in train mode"),
        (_train(zero="pass"), "add up"),
        (_train().replace(":count]", ":4]"), "not those of steps on the hardest"),
        (_train(size="len(inputs)"), "size of the whole batch"),
        (_train(size="1"), "not those of steps on the hardest"),
        (_train(end="model.eval()"), "The network ends in eval mode"),
    ],
}  # fmt: skip


OTHER_RIGHT_ANSWERS = {
    "measure_hard": [
        MEASURE.format(loss="partial(F.cross_entropy, label_smoothing=0.2)"),
        MEASURE.format(loss="lambda z, t: F.cross_entropy(z, t, reduction='none').median()"),
    ],
    "keep_hardest": [_keep(), GUARD + KEEP_BY_HAND],
    "rank_suspects": [_rank(), RANK_BLOCKS],
    "train_selective": [_train(), MASKED],
}
