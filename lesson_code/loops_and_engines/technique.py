"""Other loops and engines: they train what Lightning's Trainer trains, and change nothing of it."""

import copy
import math
from unittest import mock

import lightning as L
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from lesson_code.loops_and_engines.job import find_gap, make_images, make_network

NOT_COMBINED = "another loop takes the place of the trainer, so there is nothing to plug into it"


def check_pytorch_card(card):
    """One step per group, of the mean over its examples, clipped; all of it is in the file."""
    optimizer, schedule, model = card["optimizer"], card["schedule"], card["model"]
    groups = math.ceil(len(card["loader"]) / card["accumulate"])
    assert groups * card["accumulate"] > len(card["loader"]), "the last group is incomplete"
    steps = card["epochs"] * groups
    assert schedule.last_epoch == steps, "the schedule is stepped once per optimizer step"
    assert {int(state["step"]) for state in optimizer.state.values()} == {steps}
    factors = [card["factor"](step) for step in range(steps + 1)]
    peak = card["warm_up"]
    assert factors[peak] == 1 == max(factors), "the peak comes after the warm-up"
    assert factors[:peak] == [(step + 1) / (peak + 1) for step in range(peak)]
    assert abs(factors[-1]) < 1e-9, "and the cosine ends at zero"
    saved = torch.load(card["file"])
    assert saved.pop("epoch") == card["epochs"]
    assert set(saved) == {"model", "optimizer", "schedule"}
    group = [(10 * torch.randn(n, 3, 2, 2), torch.arange(n) % 3) for n in (16, 4)]
    inputs, targets = (torch.cat(parts) for parts in zip(*group, strict=True))
    whole = copy.deepcopy(model).float()
    with torch.autocast("cpu", torch.bfloat16):
        loss = cross_entropy(whole(inputs.to(card["device"])), targets.to(card["device"]))
    loss.backward()
    norm = clip_grad_norm_(whole.parameters(), card["max_norm"])
    assert norm > card["max_norm"], "this group is clipped"
    found = []

    def keep(*_):
        found.extend(p.grad.clone() for p in model.parameters())

    with mock.patch.object(optimizer, "step", keep):
        card["train_group"](group)
    for ours, theirs in zip(found, whole.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs.grad, atol=0.02, rtol=0.02)
    assert all(p.grad is None for p in model.parameters()), "gradients are cleared"


def check_lightning_card(card):
    """The weights of a plain loop with the same schedule, groups and clipping."""
    images, targets = make_images(28)
    batches = [(images[n : n + 8], targets[n : n + 8]) for n in range(0, 24, 8)]
    lit = card["LitManual"](make_network(), accumulate=2, max_norm=0.5, lr=0.01)
    off = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False)
    off |= {"enable_model_summary": False, "accelerator": "cpu", "max_epochs": 3}
    L.Trainer(**off).fit(lit, torch.utils.data.DataLoader(batches, batch_size=None))
    model = make_network().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=6)
    for _ in range(3):
        for group in (batches[:2], batches[2:]):
            for inputs, labels in group:
                (cross_entropy(model(inputs), labels) / len(group)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    assert find_gap(lit.model, model) <= 1e-6, "the weights of a plain loop"
