"""`Run`: everything there is to know about one training."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace

from torch import nn

from course_utils.results import append_record

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
        """Append the run to ``records.jsonl`` in ``COURSE_RUNS_DIR`` (``runs/`` if not set)."""
        row = asdict(replace(self, model=None))
        del row["model"]
        append_record("run", row)


def accuracy_curve(run) -> list[tuple[float, float]]:
    """``(seconds since the start, validation accuracy)`` of a `Run`, for the end of each epoch."""
    accuracies = [row["val_accuracy"] for row in run.history]
    return list(zip(run.epoch_ends_s, accuracies, strict=True))


def seconds_to(goal: float, curve: Iterable[Sequence[float]]) -> float:
    """When a training first reached the accuracy ``goal``; infinite if it never did.

    ``curve``: as `accuracy_curve` returns it.
    """
    return next((seconds for seconds, accuracy in curve if accuracy >= goal), float("inf"))
