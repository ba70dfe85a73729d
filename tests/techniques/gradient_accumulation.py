"""Gradient accumulation: one optimizer step for several micro-batches."""

import torch
from lightning.pytorch import Callback

from tests.techniques.record import BATCHES, CLASSES

ACCUMULATED = 2
OPTIONS = {"accumulate_grad_batches": ACCUMULATED}
SEAM = {"trainer": OPTIONS}


def differentiate(record, micro_batches):
    """The gradient of the head's bias that the mean of these losses has, from the logits."""
    total = torch.zeros(CLASSES)
    for logits, targets, _ in micro_batches:
        logits = logits.float().requires_grad_()
        (record.loss(logits, targets) / len(micro_batches)).backward()
        total += logits.grad.sum(dim=0)
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
