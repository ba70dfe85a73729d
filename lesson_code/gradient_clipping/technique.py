"""Gradient clipping: the complete gradient of a step gets a norm of at most a threshold."""

import math

import torch
import torch.nn.functional as F
from lightning.pytorch import Callback
from torch import nn
from torch.nn.utils import clip_grad_norm_, parameters_to_vector
from torch.utils.data import DataLoader

MAX_NORM = 0.5


OPTIONS = {"gradient_clip_val": MAX_NORM}


SEAM = {"trainer": OPTIONS}


def invariant(record):
    """The optimizer uses each step's gradient times one factor, that of its whole norm."""
    assert len(record.used) == record.steps
    for gradient, norm, used in zip(record.gradients, record.norms, record.used, strict=True):
        factor = min(1.0, MAX_NORM / (norm + 1e-6))
        torch.testing.assert_close(used, factor * gradient)
    assert max(record.norms) > MAX_NORM, "no step has a long gradient: nothing was clipped"


class PerMicroBatch(Callback):
    """Clipped after each backward pass, whether the gradient is complete or not."""

    def on_after_backward(self, trainer, pl_module):
        clip_grad_norm_(pl_module.parameters(), MAX_NORM)


class HeadOnly(Callback):
    """Only the head is clipped."""

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        head = [p for name, p in pl_module.named_parameters() if "fc." in name]
        clip_grad_norm_(head, MAX_NORM / 10)


FAULTS = [
    ("trainer", {}),
    ("trainer", OPTIONS | {"gradient_clip_algorithm": "value"}),
    ("trainer", {"gradient_clip_val": 2 * MAX_NORM}),
    ("trainer", {"callbacks": PerMicroBatch()}),
    ("trainer", {"callbacks": HeadOnly()}),
]


def train_by_hand(net, batches):
    """Clipped steps of AdamW at 1e-2, without those whose gradient is not finite; the norms."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    norms = []
    for inputs, targets in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), targets).backward()
        norm = math.sqrt(sum(parameter.grad.norm().item() ** 2 for parameter in net.parameters()))
        norms.append(norm)
        if math.isfinite(norm):
            for parameter in net.parameters():
                parameter.grad *= min(1.0, 1 / (norm + 1e-6))
            optimizer.step()
        yield norm, optimizer


def check_pytorch_card(card):
    """Clipped steps; the bad one is left out, and its step of the schedule, too."""
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    batches = [(torch.randn(8, 3), torch.randint(2, (8,))) for _ in range(5)]
    batches[2][0][0, 0] = math.inf
    learning_rates = iter(1e-2 * (1 - 0.9 * step / 5) for step in range(5))
    norms = []
    learning_rate = next(learning_rates)
    for norm, optimizer in train_by_hand(net, batches):
        norms.append(norm)
        if math.isfinite(norm):
            learning_rate = next(learning_rates)
        optimizer.param_groups[0]["lr"] = learning_rate
    found = card["net"]
    torch.testing.assert_close(
        parameters_to_vector(found.parameters()).cpu(), parameters_to_vector(net.parameters())
    )
    assert card["schedule"].last_epoch == 4
    for one, other in zip(card["norms"], norms, strict=True):
        assert math.isfinite(one) == math.isfinite(other)
        if math.isfinite(other):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def check_lightning_card(card):
    """Clipped steps of AdamW; the step of the bad example is left out."""
    torch.manual_seed(0)
    pairs = [(torch.randn(3), i % 2) for i in range(40)]
    pairs[20][0][0] = math.inf
    net = card["LitNet"]().model
    for _ in train_by_hand(net, list(DataLoader(pairs, 8))):
        pass
    found = card["lit_net"].model
    torch.testing.assert_close(
        parameters_to_vector(found.parameters()).cpu(), parameters_to_vector(net.parameters())
    )
