"""Top-k loss: the mean of the highest losses of each batch."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from course_utils.tools.report.lesson_code import read_definitions
from tests.experiments import plant_experiments

SHARE = 0.5
LESSON = read_definitions("17_hard_examples")
SEAM = {"loss": partial(LESSON["top_k_loss"], share=SHARE)}


def invariant(record):
    """Each training loss is the mean of the highest half of its batch's cross-entropies."""
    for logits, targets, loss in record.losses:
        each = F.cross_entropy(logits.float(), targets, reduction="none")
        worst = sorted(each.tolist(), reverse=True)[: max(1, round(SHARE * len(each)))]
        assert math.isclose(loss.item(), sum(worst) / len(worst), rel_tol=0.02)
        assert loss.item() > each.mean().item()


def take_threshold(logits, targets):
    """Losses above a fixed limit, not a share of the batch."""
    each = F.cross_entropy(logits, targets, reduction="none")
    return each[each > 1.0].sum() / len(each)


class RankOverEpoch:
    """The highest losses of the epoch so far, not of the batch."""

    def __init__(self):
        self.seen = []

    def __call__(self, logits, targets):
        each = F.cross_entropy(logits, targets, reduction="none")
        self.seen.append(each.detach().float())
        limit = torch.cat(self.seen).quantile(1 - SHARE)
        return (each * (each > limit)).sum() / max(1, int((each > limit).sum()))


def divide_by_batch(logits, targets):
    return SHARE * SEAM["loss"](logits, targets)


FAULTS = [
    ("loss", F.cross_entropy),
    ("loss", partial(LESSON["small_loss"], share=SHARE)),
    ("loss", partial(LESSON["top_k_loss"], share=0.1)),
    ("loss", partial(LESSON["focal_loss"], gamma=2.0)),
    ("loss", take_threshold),
    ("loss", RankOverEpoch()),
    ("loss", divide_by_batch),
]


# The lesson's recipe cards: each gets the names that the card defined.
def check_pytorch_card(card):
    """Each example is judged by a network that was trained on the other half."""
    torch.manual_seed(0)
    right = torch.tensor([0, 1] * 20)
    x = torch.randn(40, 3) + 2 * right[:, None]
    y = torch.where(torch.arange(40) < 3, 1 - right, right)
    half = torch.randperm(40) % 2
    losses = torch.empty(40)
    for part in (0, 1):
        net = nn.Linear(3, 2)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
        for _ in range(30):
            optimizer.zero_grad()
            F.cross_entropy(net(x[half == part]), y[half == part]).backward()
            optimizer.step()
        for index in torch.nonzero(half != part)[:, 0]:
            losses[index] = -net(x[index]).log_softmax(dim=0)[y[index]].detach()
    torch.testing.assert_close(card["losses"], losses, rtol=1e-4, atol=1e-5)
    assert sorted(losses.argsort(descending=True)[:3].tolist()) == [0, 1, 2]  # the wrong labels


def check_lightning_card(card):
    """Trained with the logarithms of the classes' shares, validated with the plain logits."""
    trained, right = card["lit_net"].cpu(), []
    shares = torch.tensor([35 / 40, 5 / 40])
    for inputs, targets in DataLoader(card["pairs"], 8):
        logits = trained.model(inputs)
        loss = trained.training_step((inputs, targets), 0)
        torch.testing.assert_close(loss, F.cross_entropy(logits + shares.log(), targets))
        right.append((logits.argmax(dim=1) == targets).float().mean())
    validated = card["trainer"].callback_metrics["val_accuracy"].cpu()
    torch.testing.assert_close(validated, torch.stack(right).mean())
    assert card["trainer"].global_step == 5


# Planted answers of the lesson's exercises.
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
