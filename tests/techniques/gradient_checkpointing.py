"""Gradient checkpointing: activations inside a block are computed again in the backward pass."""

import itertools

import torch
from torch.utils.checkpoint import checkpoint

from course_utils.models.freeze import freeze_before
from tests.techniques.record import BATCHES


def checkpoint_blocks(model):
    model.set_grad_checkpointing()
    return model


SEAM = {"model_transform": checkpoint_blocks}


def invariant(record):
    """A block runs twice for each micro-batch, and what is trained in it gets gradients."""
    assert record.forwards[True] == 2 * BATCHES
    assert any(name.startswith("layer4") for name in record.moved)


def compare(record, without):
    """The parameters are the same without it, bit for bit (BatchNorm's statistics are not)."""
    pairs = zip(record.run.model.parameters(), without.run.model.parameters(), strict=True)
    assert all(torch.equal(mine, theirs) for mine, theirs in pairs)


def freeze_then_reenter(model):
    """Reentrant, a block behind frozen ones gets no gradient."""
    freeze_before(model, "layer4")
    [block] = model.layer4
    inner = block.forward
    block.forward = lambda x: checkpoint(inner, x, use_reentrant=True)
    return model


def checkpoint_nothing(model):
    model.grad_checkpointing = False
    return model


def change_the_second_pass(model):
    [block] = model.layer4
    inner, factors = block.forward, itertools.cycle((1.0, 1.01))
    run = lambda x: inner(next(factors) * x)  # noqa: E731
    block.forward = lambda x: checkpoint(run, x, use_reentrant=False)
    return model


FAULTS = [("model_transform", freeze_then_reenter), ("model_transform", checkpoint_nothing)]
COMPARED_FAULTS = [("model_transform", change_the_second_pass)]
