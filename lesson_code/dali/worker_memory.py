"""What worker processes hold in memory: pages of their own, and pages that they share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import psutil
from torch.utils.data import DataLoader, IterableDataset

__all__ = ["WorkerMemory", "measure_workers"]

PART = 1000  # items read at once


@dataclass(frozen=True)
class WorkerMemory:
    """Bytes of one worker process: ``rss`` in memory, of which ``private`` in no other process."""

    rss: int
    private: int

    @property
    def shared(self) -> int:
        return self.rss - self.private


class _Reading(IterableDataset):
    """Reads all items in the worker, then yields the memory that the worker holds."""

    def __init__(self, items: Sequence):
        self.items = items

    def __iter__(self) -> Iterator[WorkerMemory]:
        for start in range(0, len(self.items), PART):
            np.array(self.items[start : start + PART])  # a copy: it has to read each item
        found = psutil.Process().memory_full_info()
        yield WorkerMemory(found.rss, found.uss)


def measure_workers(items: Sequence, workers: int = 2) -> list[WorkerMemory]:
    """The memory of each `DataLoader` worker after it has read all ``items``.

    Where Python forks its workers they begin as copies that share every page with the main
    process, until one of the two writes to it; elsewhere each unpickles a copy of its own.

    Args:
        items: a list, an array or a tensor: what can be sliced and turned into an array.
    """
    return list(DataLoader(_Reading(items), batch_size=None, num_workers=workers))
