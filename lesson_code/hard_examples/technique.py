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
