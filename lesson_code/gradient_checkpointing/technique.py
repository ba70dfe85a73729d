"""Gradient checkpointing: activations inside a block are recomputed in the backward pass."""

import copy
import itertools

import timm
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from course_utils.measure.memory import count_saved_bytes
from course_utils.models.freeze import freeze_before


def checkpoint_blocks(model):
    model.set_grad_checkpointing()
    return model


SEAM = {"model_transform": checkpoint_blocks}


def invariant(record):
    """A block runs twice for each micro-batch, and what is trained in it gets gradients."""
    assert record.forwards[True] == 2 * len(record.passes)
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


def make_layers():
    """Four blocks with BatchNorm and dropout, of the same shape in and out."""
    layers = (nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.3))
    return [nn.Sequential(*copy.deepcopy(layers)) for _ in range(4)]


def observe_step(network, images):
    """Gradients and saved bytes of one forward and backward pass from a fixed random state."""
    torch.manual_seed(3)
    with count_saved_bytes(network) as saved:
        loss = network(images).square().mean()
    loss.backward()
    return [p.grad for p in network.parameters()], saved.total


def check_pytorch_card(card):
    """Gradients and running statistics are those of a plain `Sequential`, with fewer bytes."""
    layers = make_layers()
    plain = nn.Sequential(*copy.deepcopy(layers))
    network = card["Checkpointed"](*layers)
    network.load_state_dict(plain.state_dict())  # the names are those of a `Sequential`
    images = torch.randn(6, 3, 8, 8)
    calls = []
    layers[0].register_forward_pre_hook(lambda *_: calls.append(1))
    expected, plain_bytes = observe_step(plain, images)
    found, fewer_bytes = observe_step(network, images)
    assert all(map(torch.equal, found, expected)), "its gradients are those without checkpointing"
    assert len(calls) == 2, "a block runs once in the forward pass, and once again"
    assert 2 * fewer_bytes < plain_bytes
    for one, other in zip(network.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(one, other)
    calls.clear()
    network.eval()(images).sum().backward()
    assert len(calls) == 1, "in evaluation nothing is recomputed"
    (group,) = card["adam"].param_groups
    assert len(group["params"]) == len(list(card["deep"].parameters()))
    assert all(p in card["adam"].state for p in group["params"]), "the card trains all of them"


def check_lightning_card(card):
    """Its training step has the plain loss and gradients, and saves fewer bytes."""
    plain = timm.create_model("test_vit", num_classes=4, drop_rate=0.2)
    lit = card["LitCheckpointed"](copy.deepcopy(plain), lr=0.25)
    images, targets = torch.randn(3, 3, 160, 160), torch.randint(4, (3,))
    torch.manual_seed(3)
    with count_saved_bytes(plain) as all_bytes:
        expected = F.cross_entropy(plain(images), targets)
    torch.manual_seed(3)
    with count_saved_bytes(lit) as fewer_bytes:
        loss = lit.training_step((images, targets), 0)
    assert torch.equal(loss, expected)
    assert 2 * fewer_bytes.total < all_bytes.total
    for one, other in ((plain, expected), (lit, loss)):
        other.backward()
        assert all(p.grad is not None for p in one.parameters())
    for one, other in zip(lit.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    (group,) = lit.configure_optimizers().param_groups
    assert group["lr"] == 0.25
    assert len(group["params"]) == len(list(plain.parameters()))
    assert card["LitCheckpointed"](plain).lr == 1e-3
    assert card["trainer"].global_step == 2, "the card trains two batches"
