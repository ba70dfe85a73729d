"""Sharding: each process keeps a part of weights, gradients and optimizer state."""

import copy
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

NOT_COMBINED = "it trains in several processes, a combination in one"


def make_network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(48, 32), nn.Linear(32, 3))


def train_plainly(network: nn.Module, batches, lr: float) -> list[torch.Tensor]:
    """The weights after AdamW in one process, batch by batch."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=lr)
    for inputs, targets in batches:
        optimizer.zero_grad()
        F.cross_entropy(network(inputs), targets).backward()
        optimizer.step()
    return [parameter.detach() for parameter in network.parameters()]


def list_batches():
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(24, 48, generator=generator)
    return [(rows, torch.arange(8) % 3) for rows in inputs.split(8)]


def compare(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(getattr(one, "full_tensor", lambda one=one: one)(), other)


def check_pytorch_card(card):
    """Its sharded network makes AdamW's steps, and its checkpoint brings weights and state back."""
    assert not Path("checkpoint_000003.part").exists(), "the complete checkpoint was renamed"
    assert Path("checkpoint_000003/.metadata").is_file()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        check_sharded_training(card)
    finally:
        dist.destroy_process_group()


def check_sharded_training(card):
    batches = list_batches()
    expected = train_plainly(make_network(), batches, lr=1e-2)
    half = train_plainly(make_network(), batches[:2], lr=1e-2)
    network, optimizer = card["shard_model"](make_network(), torch.device("cpu"))
    for number, (inputs, targets) in enumerate(batches):
        if number == 2:
            compare((p.detach() for p in network.parameters()), half)
            card["save"](network, optimizer, "half")
            check_nothing_is_overwritten(card["save"], network, optimizer)
        optimizer.zero_grad()
        F.cross_entropy(network(inputs), targets).backward()
        optimizer.step()
    compare((p.detach() for p in network.parameters()), expected)
    other, again = card["shard_model"](make_network(), torch.device("cpu"))
    card["load"](other, again, "half")
    compare((p.detach() for p in other.parameters()), half)
    inputs, targets = batches[2]
    F.cross_entropy(other(inputs), targets).backward()
    again.step()
    compare((p.detach() for p in other.parameters()), expected)


def check_nothing_is_overwritten(save, network, optimizer):
    """A second save into the same folder is refused in a sentence."""
    said = ""
    try:
        save(network, optimizer, "half")
    except AssertionError as error:
        said = str(error)
    assert "half exists" in said, "a checkpoint is overwritten"


def check_lightning_card(card):
    """In one process it trains as usual; its step has the plain loss."""
    network = make_network()
    lit = card["LitSharded"](copy.deepcopy(network), lr=0.25)
    inputs, targets = list_batches()[0]
    expected = F.cross_entropy(network(inputs), targets)
    torch.testing.assert_close(lit.training_step((inputs, targets), 0), expected)
    optimizer = lit.configure_optimizers()
    assert isinstance(optimizer, torch.optim.AdamW)
    (group,) = optimizer.param_groups
    assert group["lr"] == 0.25
    assert len(group["params"]) == 4
    assert card["trainer"].world_size == 1
    assert card["trainer"].global_step == 6, "two epochs of three batches"
