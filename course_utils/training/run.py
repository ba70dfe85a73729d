"""`Run`: everything there is to know about one training."""

import json
import os
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from torch import nn

from course_utils.files import write_atomically

__all__ = ["Run", "accuracy_curve", "seconds_to"]


@dataclass(frozen=True)
class Run:
    """One training. Times are in seconds, accuracies and calibration errors in [0, 1]."""

    arm: str
    seed: int
    metrics: dict[str, float]  # after the last epoch
    history: list[dict[str, float]]  # the same, after every epoch
    time_s: float  # of the whole training, validation included
    images_per_s: float | None  # of the training steps alone, warm-up excluded
    trainable_parameters: int
    parameters: int
    saved_bytes: int | None  # for the backward pass of one step
    peak_memory_bytes: int | None  # of the device; None on a CPU
    provenance: dict[str, object]
    comparison: str = ""
    epoch_ends_s: list[float] = field(default_factory=list)  # from the start of the training
    model: nn.Module | None = field(default=None, repr=False, compare=False)

    def save(self) -> None:
        """Write the run as one JSON file into ``COURSE_RUNS_DIR`` (``runs/`` here if not set)."""
        row = asdict(replace(self, model=None))
        del row["model"]
        title = f"{self.comparison}-{self.arm}-seed{self.seed}".strip("-")
        name = re.sub(r"[^\w.-]+", "_", title)
        if name != title:  # lr<1 and lr>1 must not become one file
            name = f"{name}-{zlib.crc32(title.encode()):08x}"
        folder = Path(os.environ.get("COURSE_RUNS_DIR") or "runs")
        write_atomically(folder / f"{name}.json", json.dumps(row, indent=1))


def accuracy_curve(run) -> list[tuple[float, float]]:
    """``(seconds since the start, validation accuracy)`` of a `Run`, for the end of each epoch."""
    accuracies = [row["val_accuracy"] for row in run.history]
    return list(zip(run.epoch_ends_s, accuracies, strict=True))


def seconds_to(goal: float, curve: Iterable[Sequence[float]]) -> float:
    """When a training first reached the accuracy ``goal``; infinite if it never did.

    ``curve``: as `accuracy_curve` returns it.
    """
    return next((seconds for seconds, accuracy in curve if accuracy >= goal), float("inf"))
