"""The norm of a gradient whose parts lie in several processes; `torchrun` starts this file.

The lesson's test runs it: it is why the PyTorch card calls `full_tensor`.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.utils import clip_grad_norm_, get_total_norm

__all__ = ["MAX_NORM", "measure_whole"]

MAX_NORM = 0.1


def make_tiny() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A network, inputs (N, 8) and targets (N,), the same in all processes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    return model, torch.randn(12, 8), torch.randint(3, (12,))


def measure_whole() -> float:
    """The norm of the gradient in one process that holds the whole network."""
    model, inputs, targets = make_tiny()
    F.cross_entropy(model(inputs), targets).backward()
    return get_total_norm([p.grad for p in model.parameters() if p.grad is not None]).item()


def measure_parts(rank: int, size: int) -> list[str]:
    """What each process finds before and after it clips, in words."""
    model, inputs, targets = make_tiny()
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    F.cross_entropy(model(inputs), targets).backward()
    parts = [p.grad.to_local() for p in model.parameters()]  # type: ignore[union-attr]
    own = get_total_norm(parts).item()
    norm = clip_grad_norm_(model.parameters(), MAX_NORM)
    kind = type(norm).__name__
    whole = norm.full_tensor().item()  # type: ignore[attr-defined]
    clipped = get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    return [
        f"norm of my parts {own:.6f}, clip_grad_norm_ returns a {kind}",
        f"its full_tensor() {whole:.6f}, norm after clipping to {MAX_NORM}: "
        f"{clipped.full_tensor().item():.6f}",  # type: ignore[attr-defined]
    ]


if __name__ == "__main__":
    dist.init_process_group("gloo")
    print(*measure_parts(dist.get_rank(), dist.get_world_size()), sep="\n")
    dist.barrier()  # with gloo, destroy_process_group aborts now and then after so short a script
    sys.stdout.flush()
    os._exit(0)
