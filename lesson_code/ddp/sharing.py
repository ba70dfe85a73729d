"""Bytes (PSS) that a process holds after it has read all images, for each way to share them.

As a script it prints them in JSON. It reads ``images.npy`` in the folder where it is started.
"""

import json
import multiprocessing
import sys
from typing import Any

import numpy as np
import psutil

FILE = "images.npy"
LIMIT_S = 60


def read_pss() -> int:
    return psutil.Process().memory_full_info().pss


def hold(way: str, images: Any, barrier: Any, results: Any) -> None:
    """Run in each process: get the images, read them all, measure while the others hold them."""
    before = read_pss()
    if way == "own copy":
        images = np.load(FILE)
    elif way == "memory map":
        images = np.load(FILE, mmap_mode="r")
    if images is not None:
        np.asarray(images).sum()
    barrier.wait(LIMIT_S)
    results.put((before, read_pss()))
    barrier.wait(LIMIT_S)


def measure_way(way: str, method: str, images: Any = None, processes: int = 2) -> tuple[int, int]:
    """PSS of the first process, before it has the images and after."""
    context: Any = multiprocessing.get_context(method)
    barrier, results = context.Barrier(processes), context.Queue()
    arguments = (way, images, barrier, results)
    team = [context.Process(target=hold, args=arguments, daemon=True) for _ in range(processes)]
    for process in team:
        process.start()
    found = [results.get(timeout=2 * LIMIT_S) for _ in team]
    for process in team:
        process.join(LIMIT_S)
    return found[0]


def measure_all() -> dict[str, int]:
    empty = measure_way("nothing", "fork")[1]
    ways = {way: measure_way(way, "spawn") for way in ("own copy", "memory map")}
    images = np.load(FILE)
    ways["fork"] = empty, measure_way("fork", "fork", images)[1]
    import torch  # only now: what is imported would be shared, too

    tensor = torch.from_numpy(images).share_memory_()
    ways["shared tensor"] = measure_way("shared tensor", "spawn", tensor)
    return {way: after - before for way, (before, after) in ways.items()}


if __name__ == "__main__":
    json.dump(measure_all(), sys.stdout)
