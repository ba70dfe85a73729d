"""Gradient accumulation: one optimizer step for several micro-batches."""

import copy

import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch import Callback
from torch import nn
from torch.nn.utils import parameters_to_vector
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from course_utils.training import quiet_trainer
from tests.combinations.record import BATCHES, CLASSES

ACCUMULATED = 2


OPTIONS = {"accumulate_grad_batches": ACCUMULATED}


SEAM = {"trainer": OPTIONS}


def differentiate(record, micro_batches):
    """The gradient of the head's bias that the mean of these losses has, from the logits."""
    total = torch.zeros(CLASSES)
    for logits, targets, _ in micro_batches:
        logits = logits.detach().float().requires_grad_()
        loss = record.loss(logits, targets) / len(micro_batches)
        (gradient,) = torch.autograd.grad(loss, logits)  # the record stays as it is
        total += gradient.sum(dim=0)
    return total


def invariant(record):
    """A step's gradient is the mean over its micro-batches of their gradients."""
    assert len(record.gradients) == BATCHES // ACCUMULATED
    for number, gradient in enumerate(record.gradients):
        taken = record.losses[number * ACCUMULATED : (number + 1) * ACCUMULATED]
        torch.testing.assert_close(gradient, differentiate(record, taken), atol=2e-3, rtol=0.02)


class ZeroInside(Callback):
    """Gradients zeroed before each micro-batch, as if it were a step of its own."""

    def on_before_backward(self, trainer, pl_module, loss):
        pl_module.zero_grad()


class NoMean(Callback):
    """The losses of a step's micro-batches added, not averaged."""

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        for parameter in pl_module.parameters():
            parameter.grad = None if parameter.grad is None else ACCUMULATED * parameter.grad


FAULTS = [
    ("trainer", OPTIONS | {"callbacks": ZeroInside()}),
    ("trainer", OPTIONS | {"callbacks": NoMean()}),
    ("trainer", {"accumulate_grad_batches": ACCUMULATED + 1}),
]


def step_at_once(model, batches, max_norm):
    """The weights after one clipped step of SGD on all batches together."""
    model = copy.deepcopy(model)
    inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    F.cross_entropy(model(inputs), targets).backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    SGD(model.parameters(), lr=0.5).step()
    return parameters_to_vector(model.parameters())


def check_pytorch_card(card):
    """Micro-batches of any size give the large batch's step, clipped once, short ones too."""
    batches = [(torch.randn(size, 3), torch.randint(2, (size,))) for size in (4, 4, 1)]
    for max_norm in (1e6, 0.01):
        model = nn.Linear(3, 2)
        expected = step_at_once(model, batches, max_norm)
        model.weight.grad = torch.ones_like(model.weight)  # left over from before
        card["accumulate"](model, SGD(model.parameters(), lr=0.5), batches, max_norm)
        torch.testing.assert_close(parameters_to_vector(model.parameters()), expected)
    state = card["optimizer"].state[card["model"].weight]
    assert state["step"] == card["total_steps"] == 4, "two steps per epoch, the short one too"
    assert card["schedule"].last_epoch == 4
    assert card["schedule"].get_last_lr()[0] == pytest.approx(0)


def check_lightning_card(card):
    """Accumulated, its module takes the steps of large batches; its trainer takes whole steps."""
    data = TensorDataset(torch.randn(64, 3), torch.randint(2, (64,)))
    start, weights = nn.Linear(3, 2), []
    for size, accumulated in ((8, 4), (32, 1)):
        model = copy.deepcopy(start)
        trainer = quiet_trainer(
            max_epochs=2, accelerator="cpu", accumulate_grad_batches=accumulated
        )
        trainer.fit(card["Accumulated"](model, lr=0.1), DataLoader(data, size))
        assert trainer.global_step == 4
        assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0, abs=1e-9)
        weights.append(parameters_to_vector(model.parameters()))
    torch.testing.assert_close(*weights)
    with pytest.raises(AssertionError, match="give it max_steps"):
        quiet_trainer(max_epochs=-1, max_time="00:00:00:05", accelerator="cpu").fit(
            card["Accumulated"](start), DataLoader(data, 8)
        )
    trainer = card["trainer"]
    assert trainer.accumulate_grad_batches == card["k"] == 4
    assert trainer.gradient_clip_val == 1.0
    assert trainer.limit_train_batches == 8, "of nine batches"
    assert trainer.global_step == 4
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0, abs=1e-9)
