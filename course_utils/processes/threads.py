"""How many threads PyTorch should take on this machine, at this moment.

PyTorch takes one thread for each core that it sees. In a container with a quota of 2 of 16 CPUs
that is 16, and all of them wait for each other. Beside another busy process two threads on two
cores are slower than one.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

import psutil

__all__ = ["Threads", "choose_threads", "find_quota", "measure_threads", "use_threads"]

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # of a person who has chosen a number
CGROUPS = "/sys/fs/cgroup"
SAMPLES, SAMPLE_S = 2, 0.25  # the least of the samples counts: a short burst is no load

Read = Callable[[str], str | None]  # a file's path to its text; None: there is no such file


@dataclass(frozen=True)
class Threads:
    """A number of threads, and why it is this one."""

    number: int
    reason: str
    is_reduced: bool = False  # PyTorch would take more

    def describe(self) -> str:
        """One line for the reader."""
        return f"{self.number} {'thread' if self.number == 1 else 'threads'}: {self.reason}"


def _parse_share(quota: str | None, period: str | None) -> float | None:
    """CPUs from a quota and a period in microseconds; None where there is no limit."""
    try:
        share = int(quota or "") / int(period or "")
    except (ValueError, ZeroDivisionError):  # "max", or damaged
        return None
    return share if share > 0 else None  # -1: no limit


def _list_folders(path: str) -> list[str]:
    """A control group and all above it, since each of them may have a quota."""
    inner = PurePosixPath("/", path)
    return [str(folder).rstrip("/") for folder in (inner, *inner.parents)]


def find_quota(read: Read) -> float | None:
    """How many CPUs the control groups of this process may use; None: as many as there are.

    Both versions of cgroups are read. In a container ``/proc/self/cgroup`` may name folders that
    only the host can see. Those are skipped, and the top folder is the container's own.

    Args:
        read: gives the text of a file.
    """
    shares = []
    for line in (read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        for folder in _list_folders(path):
            if not controllers:  # version 2
                words = (read(f"{CGROUPS}{folder}/cpu.max") or "").split()
                shares.append(_parse_share(*words) if len(words) == 2 else None)
            elif "cpu" in controllers.split(","):
                place = f"{CGROUPS}/cpu{folder}/cpu.cfs"
                shares.append(_parse_share(read(f"{place}_quota_us"), read(f"{place}_period_us")))
    return min((share for share in shares if share is not None), default=None)


def choose_threads(
    cores: int, quota: float | None, busy: float, most: int, variables: Mapping[str, str]
) -> Threads:
    """The number of threads for a training that begins now, at least 1.

    Args:
        cores: that this process may run on.
        quota: CPUs that it may use, see `find_quota`.
        busy: cores that are busy with other work; half a core or less is nothing.
        most: threads that PyTorch would take by itself.
        variables: the environment. A number that a person has set there is left as it is.
    """
    for name in VARIABLES:
        if variables.get(name):
            return Threads(most, f"{name} is set")
    allowed = cores if quota is None else min(cores, max(1, int(quota)))
    number = max(1, min(most, allowed, cores - int(busy + 0.5)))
    if number == most:
        return Threads(number, f"as many as PyTorch takes on {cores} cores by itself")
    if number == allowed:
        return Threads(number, f"a quota of {quota:g} of {cores} CPUs", is_reduced=True)
    return Threads(number, f"other work keeps {busy:.1f} of {cores} cores busy", is_reduced=True)


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _list_cores() -> list[int]:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _measure_busy(cores: list[int]) -> float:
    """How many of the cores other processes keep busy, while this one waits."""
    samples = []
    for _ in range(SAMPLES):
        percent = psutil.cpu_percent(SAMPLE_S, percpu=True)
        samples.append(sum(percent[core] for core in cores if core < len(percent)) / 100)
    return min(samples)


def measure_threads() -> Threads:
    """What `choose_threads` says of this machine now; nothing is changed."""
    import torch

    most = torch.get_num_threads()
    cores = _list_cores()
    is_chosen = any(os.environ.get(name) for name in VARIABLES)
    busy = 0.0 if is_chosen else _measure_busy(cores)
    return choose_threads(len(cores), find_quota(_read), busy, most, os.environ)


@cache
def use_threads() -> Threads:
    """Choose PyTorch's number of threads, once in a process, and tell PyTorch and child processes.

    A number below PyTorch's own is printed. It holds for the whole process, because one and two
    threads sum in different orders: a comparison must not mix them. A process that is forked from
    this one takes one thread.
    """
    import torch

    threads = measure_threads()
    if threads.is_reduced:
        torch.set_num_threads(threads.number)
        os.environ["OMP_NUM_THREADS"] = str(threads.number)  # for the processes started from here
        print(threads.describe())
    if hasattr(os, "register_at_fork"):
        # The other threads are not in a forked process, and what waits for them waits for ever.
        # Lightning's ``ddp_notebook`` sees to that only where OMP_NUM_THREADS is not set.
        os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))
    return threads
