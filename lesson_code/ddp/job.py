"""Twenty steps with checkpoints, in which rank 1 can be told to die: DIE_AT, in the environment."""

import os
import signal
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from lesson_code.ddp.small import build, make_batch, read_weights

STEPS = 20


def make_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def run_undisturbed() -> torch.Tensor:
    """The weights of one process that takes the same steps on whole batches."""
    model = build()
    optimizer = make_optimizer(model)
    for step in range(STEPS):
        x, y = make_batch(seed=step)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return read_weights(model).cpu()


def measure(rank: int, size: int) -> dict[str, Any]:
    saving = import_module("saving")  # a file of the notebook
    die_at, restarts = (
        int(os.environ.get(name, -1)) for name in ("DIE_AT", "TORCHELASTIC_RESTART_COUNT")
    )
    model = DistributedDataParallel(build())
    optimizer = make_optimizer(model)
    first = saving.load(model, optimizer)
    for step in range(first, STEPS):
        if restarts == 0 and (rank, step) == (1, die_at):
            os.kill(os.getpid(), signal.SIGKILL)
        x, y = make_batch(seed=step)
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        optimizer.step()
        if rank == 0 and step % 5 == 4:
            saving.save(step + 1, model, optimizer)
        dist.barrier()  # no process goes on, or dies, while it is written
    return {"job": read_weights(model), "begun at": first, "restarts": restarts}
