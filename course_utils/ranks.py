"""How a rank begins and ends, and `run_ranks`: functions of several modules in every rank."""

import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

if __name__ == "__main__":  # a rank: import what a notebook wrote into its own folder
    sys.path[0] = os.getcwd()

import torch
import torch.distributed as dist

__all__ = ["DEVICE", "GPUS", "ON_CPU", "join", "leave", "run_ranks"]

LOCAL = int(os.environ.get("LOCAL_WORLD_SIZE", 0))  # processes on this machine, by torchrun
GPUS = 0 < LOCAL <= torch.cuda.device_count() and "COURSE_CPU" not in os.environ
DEVICE = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if GPUS else torch.device("cpu")
ON_CPU = {"COURSE_CPU": "1"}  # an environment in which the ranks take no GPU
ARGUMENTS, FOUND = "arguments.pt", "found.pt"  # files in a folder of each start


def join(seconds: float = 60) -> tuple[int, int]:
    """Enter the group that torchrun has started; this process's rank, and the world size.

    Args:
        seconds: after so long a wait for another rank, a collective raises an error.
    """
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
    sys.stderr.flush()
    os._exit(0)


def run_ranks(
    *parts: ModuleType | str, arguments: Mapping[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    """Start the ranks, show what they print, and return what rank 0 has found.

    One start serves several parts, because a start takes seconds: every rank imports PyTorch.

    Args:
        parts: modules with a function ``measure(rank, size) -> dict``, or the names of files that
            stand in this folder; all of them in one start, in this order.
        arguments: for every ``measure``, by name, such as ``{"steps": 3}``.
        options: of `torchrun`.

    Raises:
        CourseError: of `torchrun`, in one sentence.
    """
    from course_utils.training.torchrun import torchrun  # no rank needs it, nor what it imports

    names = [part if isinstance(part, str) else part.__name__ for part in parts]
    with TemporaryDirectory() as folder:
        torch.save(dict(arguments or {}), Path(folder, ARGUMENTS))
        torchrun(Path(__file__), folder, *names, **{"time_limit_s": 240} | options).show()
        return torch.load(Path(folder, FOUND), map_location="cpu")


def _be_a_rank(folder: str, *names: str) -> None:
    rank, size = join()
    arguments = torch.load(Path(folder, ARGUMENTS))
    found: dict[str, Any] = {}
    for name in names:
        found |= import_module(name).measure(rank, size, **arguments)
    if rank == 0:
        torch.save(found, Path(folder, FOUND))
    leave()


if __name__ == "__main__":
    _be_a_rank(*sys.argv[1:])
