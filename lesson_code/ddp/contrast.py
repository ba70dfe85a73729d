"""The gradient of a contrastive loss over the images of all ranks, gathered in several ways."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_gather_single
from torch.nn.parallel import DistributedDataParallel

from lesson_code.ddp.small import build, make_batch

TEMPERATURE = 0.5
PAIRS = 12  # of views, over all ranks
Gather = Callable[[Tensor], Tensor]  # (n, D) of this rank -> (N, D) of all ranks


def contrast(first: Tensor, second: Tensor, start: int = 0) -> Tensor:
    """InfoNCE: row i of ``first`` (n, D) has to find row start + i of ``second`` (N, D)."""
    logits = F.normalize(first) @ F.normalize(second).T / TEMPERATURE  # (n, N)
    return F.cross_entropy(logits, torch.arange(start, start + len(first), device=first.device))


def make_views() -> tuple[Tensor, Tensor]:
    """Two views (N, 8) of each example: the example with two kinds of noise."""
    x, _ = make_batch(PAIRS)
    noise = make_batch(2 * PAIRS, seed=1)[0].chunk(2)
    return x + 0.3 * noise[0], x + 0.3 * noise[1]


def gather_without_gradient(x: Tensor) -> Tensor:
    """``dist.all_gather`` as it is: what comes back has no gradient."""
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.detach().contiguous())
    return torch.cat(parts)


def gather_with_own(x: Tensor) -> Tensor:
    """The same, with this rank's own rows put back, which have their gradient."""
    parts = list(gather_without_gradient(x).chunk(dist.get_world_size()))
    parts[dist.get_rank()] = x
    return torch.cat(parts)


def gather_by_torch(x: Tensor) -> Tensor:
    everybody: Any = dist.group.WORLD
    return all_gather_single(x.contiguous(), 0, everybody)


def read_gradient(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def find_gradient(compute_loss: Callable[[Tensor, Tensor], Tensor], rank: int, size: int) -> tuple:
    """The mean loss of all ranks, and the gradient of DDP, if each rank sees its own pairs."""
    model = DistributedDataParallel(build())
    first, second = (view[_own(rank, size)] for view in make_views())
    outputs = model(torch.cat([first, second]))
    loss = compute_loss(*outputs.chunk(2))
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean.item() / size, read_gradient(model)


def _own(rank: int, size: int) -> slice:
    return slice(rank * PAIRS // size, (rank + 1) * PAIRS // size)


def measure(rank: int, size: int) -> dict[str, Any]:
    """For each way the loss, and by how much its gradient differs from one process's (a share)."""
    whole = build()
    loss = contrast(*whole(torch.cat(make_views())).chunk(2))
    loss.backward()
    right = read_gradient(whole)
    start = _own(rank, size).start
    gathered = import_module("gathered").gather  # a file of the notebook

    def own_rows(gather: Gather) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda a, b: contrast(a, gather(b), start)

    def all_rows(gather: Gather, factor: int = 1) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda a, b: factor * contrast(gather(a), gather(b))

    ways = {
        "own pairs only": lambda a, b: contrast(a, b),
        "all_gather as it is": own_rows(gather_without_gradient),
        "own rows put back": own_rows(gather_with_own),
        "own rows put back, loss of all rows": all_rows(gather_with_own),
        "the same, times the world size": all_rows(gather_with_own, size),
        "our gather": own_rows(gathered),
        "PyTorch's": own_rows(gather_by_torch),
    }
    found = {"one process": (loss.item(), 0.0, 1.0)}
    for name, compute_loss in ways.items():
        value, gradient = find_gradient(compute_loss, rank, size)
        off = ((gradient - right).norm() / right.norm()).item()
        found[name] = value, off, (gradient.norm() / right.norm()).item()
    return {"contrast": found}
