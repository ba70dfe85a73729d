"""What no profiler of operators names: memory that is given back and asked for anew in each step.

The C library returns large blocks to the system as soon as a tensor is freed. The next tensor of
this size gets new pages, and the first touch of each page is a *page fault*, in which the system
finds and clears it. Two processes train the same network in turn. One of them is told by
``GLIBC_TUNABLES`` to keep its memory. Linux with glibc only.

Source: the manual of glibc, "Memory Allocation Tunables"; getrusage(2) for the count.
"""

import multiprocessing
import os
import platform
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F

from course_utils.models.create import create_model

__all__ = ["TUNABLES", "describe_missing_glibc", "measure_page_faults"]

LARGE = 2**34  # bytes, more than there are
TUNABLES = f"glibc.malloc.mmap_threshold={LARGE}:glibc.malloc.trim_threshold={LARGE}"
LIMIT_S = 120  # a guard against a hang, not a measurement
WAYS = {"as usual": "", "memory is kept": TUNABLES}


def describe_missing_glibc() -> str:
    """One sentence where this system has no glibc; empty where it has."""
    if platform.libc_ver()[0] == "glibc":
        return ""
    return "This system has no glibc, whose setting this is: nothing is measured."


def train(link: Connection, batch_size: int, threads: int) -> None:
    """Take as many training steps as the link asks for; send processor ms and faults of each."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = create_model("convnet_small", 10).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    images = torch.randn(batch_size, 3, 32, 32).to(memory_format=torch.channels_last)
    targets = torch.arange(batch_size) % 10
    while steps := link.recv():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        start = time.process_time()
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(model(images), targets).backward()
            optimizer.step()
        ms = 1000 * (time.process_time() - start) / steps
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        link.send((round(ms, 3), round(faults / steps, 1)))


@contextmanager
def start_trainings(batch_size: int, threads: int) -> Iterator[dict[str, Connection]]:
    """A process for each of the `WAYS`, and the link to it; they end with the context."""
    context = multiprocessing.get_context("spawn")
    links, processes = {}, []
    for name, tunables in WAYS.items():
        links[name], other = context.Pipe()
        process = context.Process(target=train, args=(other, batch_size, threads), daemon=True)
        with mock.patch.dict(os.environ, {"GLIBC_TUNABLES": tunables}):
            process.start()
        processes.append(process)
    try:
        yield links
        for link in links.values():
            link.send(0)
    finally:
        for process in processes:
            process.join(5)
            process.kill()


def ask(link: Connection, steps: int) -> tuple[float, float]:
    """Milliseconds and page faults of a step.

    Raises:
        TimeoutError: the process does not answer.
    """
    link.send(steps)
    if not link.poll(LIMIT_S):
        raise TimeoutError(f"a training sent nothing for {LIMIT_S} s")
    return link.recv()


def measure_page_faults(
    rounds: int, batch_sizes: tuple[int, ...] = (64, 1024), steps: int = 2, threads: int = 1
) -> list[dict[str, Any]]:
    """For each batch size and both `WAYS`, ms and page faults of a step, one for each round."""
    rows = []
    for batch_size in batch_sizes:
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
        with start_trainings(batch_size, threads) as links:
            for link in links.values():
                ask(link, steps)  # warm-up
            for number in range(rounds):
                for name in np.roll(list(WAYS), number).tolist():
                    found[name].append(ask(links[name], steps))
        for name, values in found.items():
            ms, faults = (list(column) for column in zip(*values, strict=True))
            rows.append({"batch_size": batch_size, "way": name, "ms": ms, "faults": faults})
    return rows
