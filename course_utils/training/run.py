"""`Run`: everything there is to know about one training."""

from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

import lightning as L
from torch import nn

from course_utils.errors import CourseError
from course_utils.results import append_record, seconds_to

__all__ = ["Run", "seconds_to"]

CallbackKind = TypeVar("CallbackKind", bound=L.Callback)


@dataclass(frozen=True)
class Run:
    """One training. Times are in seconds, accuracies and calibration errors in [0, 1]."""

    arm: str
    seed: int
    metrics: dict[str, float]  # after the last epoch
    history: list[dict[str, float]]  # after every epoch; without a validation, of training only
    time_s: float  # of the whole training, validation included
    examples_per_s: float | None  # of the training steps alone, warm-up excluded
    trainable_parameters: int
    parameters: int
    saved_bytes: int | None  # for the backward pass of one step
    peak_memory_bytes: int | None  # of the device; None on a CPU
    provenance: dict[str, object]  # hardware, versions, commit
    settings: dict[str, dict] = field(default_factory=dict)  # config, data, filled seams
    comparison: str = ""
    epoch_ends_s: list[float] = field(default_factory=list)  # from the start of the training
    model: nn.Module | None = field(default=None, repr=False, compare=False)
    callbacks: tuple[L.Callback, ...] = field(default=(), repr=False, compare=False)

    @property
    def curve(self) -> list[tuple[float, float]]:
        """``(seconds since the start, validation accuracy)`` at each epoch's end that has one."""
        ends = zip(self.epoch_ends_s, self.history, strict=True)
        return [(end_s, row["val_accuracy"]) for end_s, row in ends if "val_accuracy" in row]

    def seconds_to(self, goal: float) -> float:
        """When this training first reached the accuracy ``goal``; infinite if it never did."""
        return seconds_to(goal, self.curve)

    def callback(self, kind: type[CallbackKind]) -> CallbackKind:
        """The callback of class ``kind`` that observed this training.

        Raises:
            CourseError: there is none, or more than one.
        """
        found = [callback for callback in self.callbacks if isinstance(callback, kind)]
        if len(found) != 1:
            raise CourseError(
                f"{len(found)} callbacks of this run are a {kind.__name__}: give fit one in "
                "trainer={'callbacks': [...]}"
            )
        return found[0]

    def save(self) -> None:
        """Append the run to ``records.jsonl``, see `course_utils.results.append_record`."""
        row = asdict(replace(self, model=None, callbacks=()))
        del row["model"], row["callbacks"]
        append_record("run", row)
