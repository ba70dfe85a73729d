"""Putting it together: checks of the lesson's recipe cards."""

import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import AdamW
from torch.utils.data import DataLoader

from course_utils.measure.paired import paired_difference
from lesson_code.putting_it_together.study import PARTS, SCHEDULE

PLAIN_DECAY = 0.01  # of plain fine-tuning in the study
PLAN = PARTS[SCHEDULE]["make_schedule"]
SEARCH_SEEDS, SEEDS = (100, 101), range(5)
close = partial(torch.testing.assert_close, atol=1e-7, rtol=1e-6)


def train_again(card, lr, seed, schedule):
    """The study's plain fine-tuning, or the same with its schedule: accuracy (%) and network."""
    torch.manual_seed(seed)
    net = nn.Linear(3, 2)
    loader = DataLoader(card["train_set"], 8, shuffle=True)
    optimizer = AdamW(net.parameters(), lr=lr, weight_decay=PLAIN_DECAY)
    plan = PLAN(optimizer, card["epochs"] * len(loader)) if schedule else None
    for _ in range(card["epochs"]):
        for inputs, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(net(inputs), labels).backward()
            optimizer.step()
            if plan:
                plan.step()
    pairs = zip(*card["val_set"], strict=True)
    inputs, labels = (torch.stack(list(map(torch.as_tensor, part))) for part in pairs)
    with torch.no_grad():
        return 100 * (net(inputs).argmax(1) == labels).float().mean().item(), net


def check_comparison(card, train):
    """Each variant has its best learning rate, and they are compared at other seeds.

    Args:
        card: the names that it defined.
        train: ``train(lr, seed, schedule)``: the accuracy in percent.
    """
    assert card["lrs"] == (3e-5, 1e-4, 3e-4)
    for schedule in (False, True):
        found = [sum(train(lr, seed, schedule) for seed in SEARCH_SEEDS) for lr in card["lrs"]]
        assert card["best"][schedule] == card["lrs"][found.index(max(found))]
    plain, treated = ([train(card["best"][x], s, x) for s in SEEDS] for x in (False, True))
    difference = paired_difference(plain, treated)
    assert card["gains"] == pytest.approx([b - a for a, b in zip(plain, treated, strict=True)])
    assert card["mean"].item() == pytest.approx(difference.mean, abs=1e-5)
    half = difference.high - difference.mean
    assert card["half"].item() == pytest.approx(half, rel=2e-3, abs=1e-6)


def check_pytorch_card(card):
    """Plain fine-tuning and the schedule are the study's; the better one is stored."""
    for lr, seed, schedule in ((1e-4, 0, False), (0.05, 1, True), (0.05, 2, False)):
        accuracy, net = card["fine_tune"](lr, seed, schedule)
        expected, again = train_again(card, lr, seed, schedule)
        assert accuracy == pytest.approx(expected)
        close(net.state_dict(), again.state_dict())
        assert not net.training
    check_comparison(card, lambda *options: train_again(card, *options)[0])
    use = (card["mean"] > card["half"]).item()
    assert card["use"] is use
    stored = torch.load("fine_tuned.pt", weights_only=True)
    close(stored, train_again(card, card["best"][use], 0, use)[1].state_dict())


def check_lightning_card(card):
    """Loss, accuracy, optimizer and schedule are the study's, and the module learns."""
    net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    lit = card["LitFineTuned"](net, lr=0.5)
    batch = torch.randn(9, 6), torch.arange(9) % 4
    close(lit.training_step(batch, 0), F.cross_entropy(net(batch[0]), batch[1]))
    logged = {}
    lit.log = lambda name, value, **options: logged.update({name: value} | options)
    lit.validation_step(batch, 0)
    accuracy = 100 * (net(batch[0]).argmax(1) == batch[1]).float().mean()
    assert logged == {"val_acc": accuracy, "sync_dist": True}
    check_optimizer(lit.configure_optimizers(), net)
    lit = card["LitFineTuned"](net, lr=0.5, schedule=True)
    for total_steps in (10, 30, 47):
        lit._trainer = SimpleNamespace(estimated_stepping_batches=total_steps)
        [adamw], [about] = lit.configure_optimizers()
        assert about["interval"] == "step"
        other = AdamW(nn.Linear(6, 4).parameters(), lr=0.5)
        planned = PLAN(other, total_steps)
        for _ in range(total_steps):
            assert math.isclose(adamw.param_groups[0]["lr"], other.param_groups[0]["lr"])
            for optimizer, schedule in ((adamw, about["scheduler"]), (other, planned)):
                optimizer.step()
                schedule.step()
        check_optimizer(adamw, net)
    check_comparison(card, card["fine_tune"])
    learned = [card["fine_tune"](0.1, 0, schedule) for schedule in (False, True)]
    assert min(learned) > 85


def check_optimizer(adamw, net):
    """It is AdamW with all parameters and its own weight decay."""
    assert isinstance(adamw, AdamW)
    [group] = adamw.param_groups
    assert group["weight_decay"] == PLAIN_DECAY
    assert {id(p) for p in group["params"]} == {id(p) for p in net.parameters()}
