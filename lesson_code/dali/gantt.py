"""Who prepares and who trains, and when: the measured bars of a Gantt chart."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info

__all__ = ["Span", "TracedDataset", "trace_training"]

MAIN = "training process"


@dataclass(frozen=True)
class Span:
    """One bar: ``who`` did ``what`` for batch ``number``, from ``start`` to ``end`` in seconds."""

    who: str  # `MAIN`, or "worker 0" and so on
    what: str  # "prepare", "wait" or "step"
    number: int
    start: float
    end: float


class TracedDataset(Dataset):
    """The batches of a data set, each with the time at which it was prepared, and by whom.

    Clocks of processes on one machine agree: all of them read the machine's own clock.
    """

    def __init__(self, dataset: Any):
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, index: list[int]) -> tuple[Any, tuple[str, float, float]]:
        """The batch of these items, and ``(who, start, end)``."""
        start = time.perf_counter()
        batch = default_collate([self.dataset[i] for i in index])
        worker = get_worker_info()
        who = f"worker {worker.id}" if worker else MAIN
        return batch, (who, start, time.perf_counter())

    def loader(self, batch_size: int, **options) -> DataLoader:
        """Batches of ``batch_size`` items; ``options`` go to the `DataLoader`."""
        return DataLoader(self, batch_size, collate_fn=tuple, **options)


def trace_training(batches: Iterable, step: Callable[[Any], object]) -> list[Span]:
    """Call ``step(batch)`` for each batch of a `TracedDataset`, and note who did what when.

    The training process waits for a batch unless it prepares this batch itself. All times are
    counted from the moment at which the first step begins, so what comes before is negative.
    """
    spans: list[tuple[str, str, int, float, float]] = []
    waiting = time.perf_counter()
    for number, (batch, (who, start, end)) in enumerate(batches):
        began = time.perf_counter()
        spans.append((who, "prepare", number, start, end))
        if who != MAIN:
            spans.append((MAIN, "wait", number, waiting, began))
        step(batch)
        waiting = time.perf_counter()
        spans.append((MAIN, "step", number, began, waiting))
    first = next((start for _, what, _, start, _ in spans if what == "step"), 0.0)
    return [
        Span(who, what, number, start - first, end - first)
        for who, what, number, start, end in spans
    ]
