"""How much memory the processes that were started from here held at their peak."""

import threading

import psutil

__all__ = ["PeakMemory"]


def _held_bytes(process: psutil.Process) -> int:
    """A process's own memory and its share of what it shares (PSS); elsewhere than on Linux, RSS.

    Pages that n processes share are counted as 1 / n in each: in their sum, once.
    """
    held = process.memory_full_info()
    return getattr(held, "pss", held.rss)


class PeakMemory(threading.Thread):
    """Sample, for the time of a context, what this process's children and their children hold."""

    def __init__(self, interval_s: float = 1.0):
        super().__init__(daemon=True)
        self.interval_s = interval_s
        self.peak_bytes = 0
        self._ended = threading.Event()

    def run(self) -> None:
        this = psutil.Process()
        while not self._ended.wait(self.interval_s):
            held = 0
            for child in this.children(recursive=True):
                try:
                    held += _held_bytes(child)
                except psutil.Error:  # it ended meanwhile
                    continue
            self.peak_bytes = max(self.peak_bytes, held)

    def __enter__(self) -> "PeakMemory":
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self._ended.set()
        self.join()
