"""A training in Lightning whose throughput can be compared with this machine's peak."""

from collections.abc import Callable
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from lightning.fabric.utilities.throughput import measure_flops
from lightning.pytorch.callbacks import ThroughputMonitor
from torch import Tensor, nn

__all__ = ["LitTimed", "MeasuredThroughput"]


class LitTimed(L.LightningModule):
    """Trains a classifier by AdamW; ``flops_per_batch`` is what `ThroughputMonitor` asks for.

    Args:
        model: images ``(N, 3, H, W)`` to logits ``(N, C)``.
        images: of a batch as all are, ``(N, 3, H, W)``: its FLOP are counted, of both passes.
    """

    def __init__(self, model: nn.Module, images: Tensor):
        super().__init__()
        self.model = model
        self.flops_per_batch = measure_flops(model, lambda: model(images), torch.Tensor.sum)
        model.zero_grad()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return F.cross_entropy(self.model(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


class MeasuredThroughput(ThroughputMonitor):
    """`ThroughputMonitor` with a peak that was measured: it has a table of GPUs, and no CPU.

    Args:
        batch_size_fn: examples of a batch.
        peak_flops_per_s: of this device.
        options: of `lightning.fabric.utilities.throughput.Throughput`.
    """

    def __init__(
        self, batch_size_fn: Callable[[Any], int], peak_flops_per_s: float, **options: Any
    ):
        super().__init__(batch_size_fn, **options)
        self.peak_flops_per_s = peak_flops_per_s

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        for throughput in self._throughputs.values():
            throughput.available_flops = self.peak_flops_per_s
