"""Top-k loss: the mean of the highest losses of each batch."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from course_tools.study.lesson_code import read_definitions

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


def check_pytorch_card(card):
    """Each example is judged by a network of the other folds, and its class has a threshold."""
    torch.manual_seed(0)
    right = torch.arange(60) % 3
    x = torch.randn(60, 3) + 4 * F.one_hot(right, 3)
    y = torch.where(torch.arange(60) < 4, (right + 1) % 3, right)
    folds = torch.randperm(60) % 5
    found = torch.empty(60, 3)
    for fold in range(5):
        net = nn.Linear(3, 3)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
        for _ in range(30):
            optimizer.zero_grad()
            F.cross_entropy(net(x[folds != fold]), y[folds != fold]).backward()
            optimizer.step()
        for index in torch.nonzero(folds == fold)[:, 0]:
            found[index] = net(x[index]).softmax(dim=0).detach()
    torch.testing.assert_close(card["probabilities"].cpu(), found, rtol=1e-4, atol=1e-5)
    suspects = torch.from_numpy(LESSON["find_label_suspects"](y.numpy(), found.numpy()))
    assert torch.equal(card["suspects"].cpu(), suspects)
    assert set(range(4)) <= set(torch.nonzero(suspects)[:, 0].tolist())  # the wrong labels
    order = card["order"].cpu()
    given = found[torch.arange(60), y][order]
    assert (given.diff() >= -1e-5).all()


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
