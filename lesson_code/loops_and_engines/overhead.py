"""What each loop costs per batch beside the plain one, in microseconds.

The network has a single linear layer, so a batch is nearly all overhead. Processor time is
counted, in which other programs hardly count. `measure_overhead` has the loops in turn, round by
round; `Loops` reads what `study.py` stored.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from course_utils.measure.paired import PairedDifference, paired_difference
from lesson_code.loops_and_engines.job import Job, Loop
from lesson_code.loops_and_engines.loops import PLAIN

__all__ = ["TOLERANCE", "Loops", "Stamped", "make_tiny_job", "measure_overhead", "time_loop"]

TOLERANCE = 1e-6  # of a weight: two loops end with the same weights
WARM_BATCHES = 20  # not counted


class Stamped(nn.Module):
    """A linear layer that notes when each of its forward passes begins, in ``stamps`` (s)."""

    def __init__(self, inputs: int, classes: int):
        super().__init__()
        self.net = nn.Linear(inputs, classes)
        self.stamps: list[float] = []

    def forward(self, x: Tensor) -> Tensor:  # (N, inputs)
        self.stamps.append(time.process_time())
        return self.net(x)


def make_tiny_job(batches: int) -> Job:
    """A training of ``batches`` batches of one example each, in one epoch."""
    inputs, targets = torch.ones(batches, 2), torch.zeros(batches, dtype=torch.long)
    return Job(lambda: Stamped(2, 2), inputs, targets, batch_size=1, epochs=1)


def time_loop(loop: Loop, batches: int) -> float:
    """Microseconds of a batch, the mean of those after the warm-up.

    Raises:
        ValueError: too few batches.
    """
    if batches < WARM_BATCHES + 2:
        raise ValueError(f"{batches} batches: take {WARM_BATCHES + 2} or more")
    trained = loop(make_tiny_job(batches))
    assert isinstance(trained, Stamped)
    stamps = trained.stamps
    return 1e6 * (stamps[-1] - stamps[WARM_BATCHES]) / (len(stamps) - 1 - WARM_BATCHES)


def measure_overhead(
    loops: Mapping[str, Loop], rounds: int, batches: int
) -> dict[str, list[float]]:
    """For every loop microseconds of a batch, one value for each round.

    Each round has all loops, in an order of its own. One round more comes first and is not kept.
    """
    found: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(-1, rounds):
        for name in np.random.default_rng(number + 1).permutation(list(loops)).tolist():
            batch_us = time_loop(loops[name], batches)
            if number >= 0:
                found[name].append(round(batch_us, 2))
    return found


class Loops:
    """What `study.py` stored of all loops.

    Args:
        content: of its file.
    """

    def __init__(self, content: Mapping[str, Any]):
        self._content = content
        self._rows = {row["loop"]: row for row in content["rows"]}
        self.names = list(self._rows)
        self.real_batch_ms: float = content["real_batch_ms"]

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        return self._rows[name]

    def gap(self, name: str, job: str = "full groups") -> float:
        """The largest difference of a weight from the plain loop, in a job of the study."""
        return self._rows[name]["gaps"][job]

    def list_same(self, job: str = "full groups") -> list[str]:
        """The loops that end with the plain loop's weights, itself included."""
        return [name for name in self.names if self.gap(name, job) <= TOLERANCE]

    def batch_us(self, name: str) -> np.ndarray:
        """Microseconds of a batch ``(R,)``, one for each round."""
        return np.array(self._rows[name]["batch_us"])

    def added(self, name: str) -> PairedDifference:
        """Microseconds per batch more than the plain loop."""
        return paired_difference(self.batch_us(PLAIN), self.batch_us(name))

    def ratio(self, name: str) -> tuple[float, float, float]:
        """Times as long as the plain loop's batch: the mean of the logarithms, and its interval."""
        found = paired_difference(np.log(self.batch_us(PLAIN)), np.log(self.batch_us(name)))
        middle, low, high = np.exp([found.mean, found.low, found.high]).tolist()
        return middle, low, high

    def table(self, names: Iterable[str] = ()) -> pd.DataFrame:
        """One row for each loop: lines, µs per batch and times as long as the plain loop."""
        rows = {}
        for name in names or self.names:
            middle, low, high = self.ratio(name)
            rows[name] = {
                "lines": self._rows[name]["lines"],
                "µs per batch": f"{np.median(self.batch_us(name)):.0f}",
                "times the plain loop": f"{middle:.1f} ({low:.1f} to {high:.1f})",
                "version": self._rows[name]["version"],
            }
            if name == PLAIN:
                rows[name]["times the plain loop"] = "1"
        return pd.DataFrame(rows).T

    def describe_provenance(self) -> str:
        """How, where and when it was measured, in one line."""
        about = self._content
        hardware = about["hardware"]
        return (
            f"study of {about['made']}: {about['rounds']} paired rounds of {about['batches']} "
            f"batches, one thread of {hardware['cpu']}, PyTorch {about['versions']['torch']}"
        )
