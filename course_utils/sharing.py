"""What worker processes hold in memory: pages of their own, and pages that they share."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

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

    def __init__(self, items: Sequence, read: Callable[[Sequence], object]):
        self.items = items
        self.read = read

    def __iter__(self) -> Iterator[WorkerMemory]:
        for start in range(0, len(self.items), PART):
            self.read(self.items[start : start + PART])
        found = psutil.Process().memory_full_info()
        yield WorkerMemory(found.rss, found.uss)


def measure_workers(
    items: Sequence, read: Callable[[Sequence], object], workers: int = 2
) -> list[WorkerMemory]:
    """The memory of each `DataLoader` worker after it has read all ``items``.

    Workers are forked where the system can: they begin as copies that share every page with the
    main process, until one of the two writes to it. Elsewhere each gets a pickled copy at once.

    Args:
        items: any sequence that can be sliced.
        read: looks at a slice of 1,000 of them.
    """
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    loader = DataLoader(
        _Reading(items, read), batch_size=None, num_workers=workers, multiprocessing_context=method
    )
    return list(loader)
