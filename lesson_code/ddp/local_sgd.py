"""Local SGD: several steps on each rank, then the mean of the weights."""

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, AdamW, Optimizer

from lesson_code.ddp.small import build, make_batch, train

STEPS, BATCH_SIZE, HIDDEN = 64, 16, 64
Shard = tuple[Tensor, Tensor]  # features (N, D) and targets (N,) of one rank


def average_weights(model: nn.Module) -> None:
    """On every rank, the mean of all ranks' weights."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
        parameter.data /= dist.get_world_size()


def measure(rank: int, size: int) -> dict[str, Any]:
    """The weights of DDP, and of ranks that average their weights after each step."""
    x, y = (part[rank::size] for part in make_batch())
    found = {}
    kinds = {"SGD": SGD, "momentum": partial(SGD, momentum=0.9), "AdamW": AdamW}
    for name, kind in kinds.items():
        options: dict[str, Any] = {"make_optimizer": kind, "lr": 0.05}
        found[f"{name}, DDP"] = train(DistributedDataParallel(build()), x, y, **options)
        found[f"{name}, k = 1"] = train(build(), x, y, after_step=average_weights, **options)
    return found


# ---- One process plays all ranks: they meet only when the weights are averaged.


def average_heads(heads: Sequence[nn.Module]) -> None:
    """The mean of the heads' weights, in all heads."""
    for parameters in zip(*(head.parameters() for head in heads), strict=True):
        mean = torch.stack([p.data for p in parameters]).mean(dim=0)
        for parameter in parameters:
            parameter.data.copy_(mean)


def take_step(head: nn.Module, optimizer: Optimizer, shard: Shard, own: torch.Generator) -> None:
    """A step on a random batch of one rank's images."""
    features, targets = shard
    pick = torch.randint(len(targets), (BATCH_SIZE,), generator=own)
    optimizer.zero_grad()
    F.cross_entropy(head(features[pick]), targets[pick]).backward()
    optimizer.step()


def train_local(
    shards: Sequence[Shard], classes: int, period: int, seed: int, seeds: Sequence[int]
) -> nn.Module:
    """A head after local SGD that averages the weights every ``period`` steps.

    Args:
        seed: of the first weights, which all ranks share.
        seeds: of each rank's batches.
    """
    torch.manual_seed(seed)
    width = shards[0][0].shape[1]
    start = nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes))
    heads = [copy.deepcopy(start) for _ in shards]
    optimizers = [SGD(head.parameters(), lr=0.05, momentum=0.9) for head in heads]
    generators = [torch.Generator().manual_seed(own) for own in seeds]
    for step in range(1, STEPS + 1):
        for rank, shard in enumerate(shards):
            take_step(heads[rank], optimizers[rank], shard, generators[rank])
        if step % period == 0:
            average_heads(heads)
    return heads[0]
