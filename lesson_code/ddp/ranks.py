"""Run `measure(rank, size)` of several modules in every rank of one start."""

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

if __name__ == "__main__":  # a rank: import what a notebook wrote into its own folder
    sys.path[0] = os.getcwd()

import torch

from course_utils.training.torchrun import torchrun
from lesson_code.ddp.small import join, leave

FOUND = "found.pt"


def run_ranks(*parts: ModuleType | str, **options: Any) -> dict[str, Any]:
    """Start the ranks, show what they print, and return what rank 0 has found.

    Args:
        parts: modules with a function ``measure(rank, size) -> dict``, or the names of files that
            stand in this folder; all of them in one start, in this order.
        options: of `torchrun`.
    """
    names = [part if isinstance(part, str) else part.__name__ for part in parts]
    torchrun(Path(__file__), *names, **{"time_limit_s": 240} | options).show()
    return torch.load(FOUND, map_location="cpu")


if __name__ == "__main__":
    rank, size = join()
    found: dict[str, Any] = {}
    for name in sys.argv[1:]:
        found |= import_module(name).measure(rank, size)
    if rank == 0:
        torch.save(found, FOUND)
    leave()
