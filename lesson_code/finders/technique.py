"""Finders: a range test before the training; nothing of it stays in the training."""

import copy
import math

import torch
import torch.nn.functional as F
from lightning.pytorch.tuner import Tuner
from torch import nn
from torch.optim import SGD

from course_utils.training import quiet_trainer

NOT_COMBINED = "it runs before a training, and is no part of one"


def find_by_hand(net, batches, lowest, highest, beta=0.9):
    """A tenth of the learning rate with the lowest smoothed loss, from all of the losses."""
    net = copy.deepcopy(net)
    optimizer, losses = SGD(net.parameters(), lr=1.0, momentum=0.9), []
    rates = torch.logspace(0, 1, len(batches), base=highest / lowest, dtype=torch.float64) * lowest
    for rate, (inputs, targets) in zip(rates.tolist(), batches, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        loss = F.cross_entropy(net(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    smoothed = []
    for count in range(1, len(losses) + 1):
        weights = [beta ** (count - 1 - place) for place in range(count)]
        total = sum(w * loss for w, loss in zip(weights, losses[:count], strict=True))
        smoothed.append(total / sum(weights))
    return rates[smoothed.index(min(smoothed))].item() / 10


def check_pytorch_card(card):
    """A tenth of the lowest smoothed loss, the network as it was; a sweep that goes both ways."""
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    torch.testing.assert_close(card["net"].weight, net.weight)
    expected = find_by_hand(net, card["batches"], lowest=1e-5, highest=10.0)
    torch.testing.assert_close(card["start"], expected)
    assert 1e-4 < 10 * card["start"] < 9  # the lowest loss lies inside, not at an end
    other = card["find_start"](
        net, lambda p: SGD(p, lr=1.0, momentum=0.9), card["batches"], lowest=1e-3, highest=0.1
    )
    torch.testing.assert_close(other, find_by_hand(net, card["batches"], 1e-3, 0.1))
    for best in (0.02, 0.5, 40.0):
        tried = []

        def measure(lr, best=best, tried=tried):
            tried.append(lr)
            return -abs(math.log(lr / best))

        found = card["sweep_both_ways"](measure, 0.5)
        assert abs(math.log(found / best)) <= math.log(3) / 2 + 1e-6  # none of the grid is nearer
        assert min(tried) < found < max(tried)
        assert len(tried) == len(set(tried))


def check_lightning_card(card):
    """The fields hold a batch size and a tenth of the lowest loss's rate; the weights stay."""
    assert card["lit_net"].hparams.batch_size == 24  # 32 minus 5 %, down to a multiple of 8
    torch.manual_seed(0)
    torch.testing.assert_close(card["lit_net"].model.weight, nn.Linear(3, 2).weight)
    torch.manual_seed(0)
    again = Tuner(quiet_trainer(max_epochs=-1)).lr_find(
        card["LitNet"](batch_size=24),
        min_lr=1e-5,
        max_lr=10.0,
        update_attr=False,
        early_stop_threshold=None,
    )
    losses = again.results["loss"]
    assert len(losses) == 100
    lowest = min(range(10, 100), key=losses.__getitem__)
    assert 10 < lowest < 99
    assert card["search"]["early_stop_threshold"] is None, "a small first loss would end it"
    assert card["lit_net"].hparams.lr == again.results["lr"][lowest] / 10
