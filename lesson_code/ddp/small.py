"""A small network in double precision, its batches, and how a rank of lesson 09 begins and ends."""

import os
import sys
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

LOCAL = int(os.environ.get("LOCAL_WORLD_SIZE", 0))  # processes on this machine, by torchrun
GPUS = 0 < LOCAL <= torch.cuda.device_count() and "COURSE_CPU" not in os.environ
DEVICE = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if GPUS else torch.device("cpu")


def build(norm: Callable[[int], nn.Module] = nn.Identity, seed: int = 0) -> nn.Sequential:
    """Inputs (N, 8) to logits (N, 3)."""
    torch.manual_seed(seed)
    layers = nn.Linear(8, 16), norm(16), nn.ReLU(), nn.Linear(16, 3)
    return nn.Sequential(*layers).to(DEVICE, torch.float64)


def make_batch(count: int = 12, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs (N, 8) and targets (N,), the same on all ranks."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=generator, dtype=torch.float64)
    return x.to(DEVICE), torch.randint(3, (count,), generator=generator).to(DEVICE)


def train(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    steps: int = 3,
    after_step: Callable[[nn.Module], object] = lambda model: None,
    make_optimizer: Callable[..., torch.optim.Optimizer] = SGD,
    lr: float = 0.5,
) -> Tensor:
    """The weights after a few steps, as one vector."""
    optimizer = make_optimizer(model.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        after_step(model)
    return read_weights(model)


def read_weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def join(seconds: float = 60) -> tuple[int, int]:
    """Enter the group that torchrun has started; this process's rank, and the world size."""
    if GPUS:
        torch.cuda.set_device(DEVICE)
    limit = timedelta(seconds=seconds)
    device = DEVICE if GPUS else None
    dist.init_process_group("nccl" if GPUS else "gloo", timeout=limit, device_id=device)
    return dist.get_rank(), dist.get_world_size()


def leave() -> None:
    """The end of every script: all ranks are here before one leaves.

    With gloo, `dist.destroy_process_group` aborted about once in 24 ends of such short scripts,
    and torchrun would count that as a failed rank.
    """
    dist.barrier()
    if GPUS:
        dist.destroy_process_group()  # NCCL needs it
    sys.stdout.flush()
    os._exit(0)
