"""How long networks take for an answer: how it is measured, and what the stored study found."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["PERCENTILES", "Latencies", "list_latencies"]

PERCENTILES = (50, 95, 99)
ALIKE = 0.1  # a difference up to this part of a latency is not called one
WARM_UP = 5  # calls that do not count


@torch.inference_mode()
def list_latencies(
    networks: Mapping[str, Callable[[Tensor], Tensor]],
    inputs: Mapping[str, Tensor],
    calls: int,
    threads: int,
) -> dict[str, np.ndarray]:
    """Milliseconds ``(calls,)`` of each network by its name; the first calls do not count.

    The networks take turns in a random order, so that another program on the machine disturbs all
    of them alike.

    Args:
        networks: by name; they run on the CPU.
        inputs: of each network, by the same names.
        calls: of each network.
        threads: of PyTorch, meanwhile.
    """
    before, rng = torch.get_num_threads(), np.random.default_rng(0)
    torch.set_num_threads(threads)
    times: dict[str, list[float]] = {name: [] for name in networks}
    try:
        for number in range(-WARM_UP, calls):
            for name in rng.permutation(list(networks)):
                start = time.perf_counter()
                networks[name](inputs[name])
                if number >= 0:
                    times[name].append(1000 * (time.perf_counter() - start))
    finally:
        torch.set_num_threads(before)
    return {name: np.array(ms) for name, ms in times.items()}


class Latencies:
    """What ``study_latency.json`` has, for a reader.

    Args:
        study: the content of the file.
    """

    def __init__(self, study: Mapping[str, Any]):
        self.study = study

    def read(
        self, kind: str, form: str, percentile: int = 50, threads: int = 1, batch: int = 1
    ) -> float:
        """Milliseconds of one call.

        Args:
            kind: ``"photographs"`` or ``"texts"``.
            form: ``"fp32"`` or ``"int8"``.
            percentile: one of `PERCENTILES`.
            batch: examples of one call.
        """
        (row,) = (
            row
            for row in self.study["rows"]
            if (row["kind"], row["form"], row["threads"], row["batch"])
            == (kind, form, threads, batch)
        )
        return float(row["ms"][str(percentile)])

    def find_speed_up(self, kind: str, percentile: int = 50, threads: int = 1) -> float:
        """How many times as fast int8 answers as fp32; below 1: it is slower."""
        fp32, int8 = (self.read(kind, form, percentile, threads) for form in ("fp32", "int8"))
        return fp32 / int8

    def describe(self, kind: str, percentile: int = 50, threads: int = 1) -> str:
        """One sentence about int8 against fp32, for one photograph or one text."""
        fp32, int8 = (self.read(kind, form, percentile, threads) for form in ("fp32", "int8"))
        if abs(fp32 - int8) < ALIKE * fp32:
            word = "about as fast"
        elif fp32 > int8:
            word = f"{fp32 / int8:.1f} times as fast"
        else:
            word = f"slower, {int8 / fp32:.1f} times as long"
        several = "1 thread" if threads == 1 else f"{threads} threads"
        return (
            f"{kind}, {several}, p{percentile}: {fp32:.2f} ms in fp32, {int8:.2f} in int8, {word}"
        )

    def list_batches(self, kind: str, form: str) -> tuple[list[int], list[float]]:
        """Sizes of the batches, and the median of the milliseconds for each, with one thread."""
        sizes = sorted({row["batch"] for row in self.study["rows"] if row["kind"] == kind})
        return sizes, [self.read(kind, form, batch=size) for size in sizes]

    def describe_provenance(self) -> str:
        """One line: calls, machine, date, and whether other programs ran beside it."""
        about = self.study
        busy = f"; other programs used {about['load']:.1f} cores beside it" if about["busy"] else ""
        calls = f"{about['calls']:,} calls of each network"
        return f"{calls}; {about['hardware']['cpu']}; {about['made']}{busy}"
