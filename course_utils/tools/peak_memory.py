"""How much memory the processes that were started from here held at their peak."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

__all__ = ["PeakMemory"]


def _read_resident(process: psutil.Process) -> int:
    """All memory of a process, with what it shares (RSS)."""
    return process.memory_info().rss


def _read_held(process: psutil.Process) -> int:
    """A process's own memory and its share of what it shares (PSS); elsewhere than on Linux, RSS.

    Pages that n processes share are counted as 1 / n in each: in their sum, once.
    """
    held = process.memory_full_info()
    return getattr(held, "pss", held.rss)


def _add_up(read: Callable[[psutil.Process], int], processes: Sequence[psutil.Process]) -> int:
    total = 0
    for process in processes:
        with suppress(psutil.Error):  # it ended meanwhile
            total += read(process)
    return total


class PeakMemory(threading.Thread):
    """Sample, for the time of a context, what this process's children and their children hold."""

    def __init__(self, interval_s: float = 0.5):
        super().__init__(daemon=True)
        self.interval_s, self.peak_bytes, self._ended = interval_s, 0, threading.Event()

    def run(self) -> None:
        this = psutil.Process()
        while not self._ended.wait(self.interval_s):
            children = this.children(recursive=True)
            # PSS is never more than RSS, and takes the kernel 20 ms for a process with PyTorch
            if _add_up(_read_resident, children) > self.peak_bytes:
                self.peak_bytes = max(self.peak_bytes, _add_up(_read_held, children))

    def __enter__(self) -> "PeakMemory":
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self._ended.set()
        self.join()
