"""Putting it together: checks of the lesson's recipe cards."""

import copy
import math
from functools import partial
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW
from torch.optim.swa_utils import update_bn

from course_utils.training.parameter_groups import group_parameters
from lesson_code.putting_it_together.study import (
    PARTS,
    WEIGHT_DECAY,
    mix_slowly,
    warm_up_tenth,
)

SMOOTHED = PARTS["label smoothing"]["loss"]
MAX_NORM = PARTS["clipping"]["trainer"]["gradient_clip_val"]
group = partial(group_parameters, weight_decay=WEIGHT_DECAY, **PARTS["decay groups"]["optimizer"])


def train_again(card):
    """The card's training with the parts of the study; its network, average and largest norm."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    average = copy.deepcopy(net)
    optimizer = AdamW(group(list(net.named_parameters()), lr=card["lr"]))
    schedule = warm_up_tenth(optimizer, card["epochs"] * len(card["batches"]))
    norms = []
    for inputs, labels in card["batches"] * card["epochs"]:
        optimizer.zero_grad()
        SMOOTHED(net(inputs), labels).backward()
        norms.append(clip_grad_norm_(net.parameters(), MAX_NORM).item())
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            for mean, weight in zip(average.parameters(), net.parameters(), strict=True):
                mean.copy_(mix_slowly(mean, weight, len(norms) - 1))
    update_bn(card["batches"], average)
    return net, average, max(norms)


def check_pytorch_card(card):
    """It trains as the study's full recipe does, and stores the average."""
    assert card["lr"] == 1e-4
    net, average, largest = train_again(card)
    assert largest > MAX_NORM, "no step of the card is clipped"
    close = partial(torch.testing.assert_close, atol=1e-7, rtol=1e-6)
    close(dict(card["net"].named_parameters()), dict(net.named_parameters()))
    close(card["ema"].state_dict(), average.state_dict())
    close(torch.load("fine_tuned.pt", weights_only=True), average.state_dict())
    assert not card["ema"].training
    decays = {p: x["weight_decay"] for x in card["optimizer"].param_groups for p in x["params"]}
    assert decays == {p: WEIGHT_DECAY * (p.ndim > 1) for p in card["net"].parameters()}


def check_lightning_card(card):
    """Loss, groups, schedule and average are those of the study's full recipe."""
    net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    lit = card["LitFineTuned"](net, lr=0.5)
    batch = torch.randn(9, 6), torch.arange(9) % 4
    torch.testing.assert_close(lit.training_step(batch, 0), SMOOTHED(net(batch[0]), batch[1]))
    logged = {}
    lit.log = lambda name, value, **options: logged.update({name: value} | options)
    lit.validation_step(batch, 0)
    accuracy = (net(batch[0]).argmax(1) == batch[1]).float().mean()
    assert logged == {"val_acc": accuracy, "sync_dist": True}
    for total_steps in (10, 30, 47):
        lit._trainer = SimpleNamespace(estimated_stepping_batches=total_steps)
        [adamw], [about] = lit.configure_optimizers()
        assert about["interval"] == "step"
        decays = {p: x["weight_decay"] for x in adamw.param_groups for p in x["params"]}
        assert decays == {p: WEIGHT_DECAY * (p.ndim > 1) for p in net.parameters()}
        other = AdamW(nn.Linear(6, 4).parameters(), lr=0.5)
        planned = warm_up_tenth(other, total_steps)
        for _ in range(total_steps):
            assert math.isclose(adamw.param_groups[0]["lr"], other.param_groups[0]["lr"])
            for optimizer, schedule in ((adamw, about["scheduler"]), (other, planned)):
                optimizer.step()
                schedule.step()
    means = [torch.zeros(3), torch.tensor(0)]
    for number in range(4):
        weights = [torch.randn(3), torch.tensor(7 + number)]
        expected = mix_slowly(means[0], weights[0], number)
        card["follow_all"](means, weights, torch.tensor(number))
        torch.testing.assert_close(means[0], expected)
        assert means[1] == 7 + number
    trainer = card["trainer"]
    assert trainer.precision == "bf16-mixed"
    assert trainer.gradient_clip_val == MAX_NORM
    assert card["ema"] in trainer.callbacks
    assert trainer.lightning_module.lr == 1e-4
    mean = card["ema"]._average_model.module
    torch.testing.assert_close(mean.state_dict(), card["lit_net"].state_dict())
