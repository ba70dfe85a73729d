"""Time: of a call, of a training step, of loading, of a whole training; warm-up excluded."""

import copy
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn

from course_utils.measure.memory import count_saved_bytes, peak_memory_bytes

__all__ = [
    "StepCost",
    "Throughput",
    "ends_epoch",
    "loading_rate",
    "measure_step",
    "synchronize",
    "time_calls",
]


REPEATS = 5  # timed calls, after one to warm up


def time_calls(call: Callable[[], object], device: torch.device) -> float:
    """Median time of ``call()`` in milliseconds, warm-up excluded, the device waited for."""
    times = []
    for _ in range(REPEATS + 1):
        synchronize(device)
        start = time.perf_counter()
        call()
        synchronize(device)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def loading_rate(batches: Iterable, seconds: float = 0.5) -> float:
    """Images per second that ``batches`` of ``(images, targets)`` delivers, without a first epoch.

    Measured without training, so it is an upper bound. Whole epochs are counted, for ``seconds``
    at least, so that batches prepared before the clock started weigh little.
    """
    for images, _ in batches:
        synchronize(images.device)
    count, start = 0, time.perf_counter()
    while time.perf_counter() < start + seconds:
        for images, _ in batches:
            count += len(images)
        synchronize(images.device)
    return count / (time.perf_counter() - start)


@dataclass(frozen=True)
class StepCost:
    """What one training step takes: time in milliseconds, bytes saved for its backward pass."""

    time_ms: float
    saved_bytes: int


def measure_step(model: nn.Module, images: torch.Tensor, targets: torch.Tensor) -> StepCost:
    """Train a copy of ``model`` for a few steps on one batch: their median time, warm-up excluded.

    Forward, backward and a step of AdamW; loading is not part of it.
    """
    model = copy.deepcopy(model).train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])

    def step() -> None:
        F.cross_entropy(model(images), targets).backward()
        optimizer.step()
        optimizer.zero_grad()

    time_ms = time_calls(step, images.device)
    with count_saved_bytes(model) as saved:
        F.cross_entropy(model(images), targets)
    return StepCost(time_ms, saved.total)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that was asked of it: before any clock is read."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def ends_epoch(trainer: L.Trainer) -> bool:
    """Whether the current batch is the last of its epoch, by number or by ``max_steps``."""
    return trainer.is_last_batch or trainer.global_step == trainer.max_steps


class Throughput(L.Callback):
    """Observe training: ``examples_per_s`` over all steps but the first ``warmup_steps``.

    The clock runs from batch to batch, so loading and augmenting count, validation does not.
    """

    def __init__(self, warmup_steps: int = 3):
        self.warmup_steps = warmup_steps
        self.examples, self.time_s, self._start = 0, 0.0, 0.0
        self.peak_memory_bytes: int | None = None

    @property
    def examples_per_s(self) -> float | None:
        """None when every step was a warm-up step."""
        return self.examples / self.time_s if self.time_s else None

    def _read_clock(self, pl_module: L.LightningModule) -> float:
        synchronize(pl_module.device)
        return time.perf_counter()

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._start = self._read_clock(pl_module)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx: int) -> None:
        done = trainer.fit_loop.total_batch_idx + 1
        if done < self.warmup_steps:
            return
        if done == self.warmup_steps:
            self._start = self._read_clock(pl_module)
            return
        self.examples += len(batch[1]) * trainer.world_size
        if ends_epoch(trainer):  # reading the clock waits for the device: once an epoch is enough
            self.time_s += self._read_clock(pl_module) - self._start

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.peak_memory_bytes = peak_memory_bytes(pl_module.device)
