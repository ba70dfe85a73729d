"""How much memory a recipe's processes hold together.

The system's limit is one of each process, and knows nothing of memory that processes share: a
recipe that forks, or shares a tensor, would have as much as it likes.
"""

from contextlib import suppress

import psutil

__all__ = ["measure_memory"]


def measure_memory(pid: int) -> int:
    """Bytes of a process and all that it started, what they share counted once (Linux, else 0).

    This is the sum of proportional set sizes: a page that two processes share is half a page in
    each. Memory that is written by a file descriptor only, and never mapped, is in none.
    """
    if not psutil.LINUX:
        return 0
    held = 0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):  # it ended meanwhile
                held += _measure(one)
    return held


def _measure(process: psutil.Process) -> int:
    try:
        return process.memory_full_info().pss
    except psutil.AccessDenied:  # a process can forbid it, and then its pages count as its own
        return process.memory_info().rss
