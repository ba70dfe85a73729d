"""The small network in Lightning: the weights that it ends with, and what it logs."""

from functools import partial
from typing import Any

import torch
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric

from course_utils.ranks import GPUS
from course_utils.training import LitClassifier, quiet_trainer, warmup_cosine
from lesson_code.ddp.small import build, make_batch, read_weights


def train_once(batch_size: int, precision: str, **where: Any) -> torch.Tensor:
    """The weights after four epochs of one step: two micro-batches in every process."""
    x, y = make_batch(96)
    kind = torch.float64 if precision == "64-true" else torch.float32
    schedule, optimizer = partial(warmup_cosine, warmup_steps=2), partial(SGD, lr=0.5)
    lit = LitClassifier(build().to(kind), 3, make_optimizer=optimizer, make_schedule=schedule)
    options = {"max_epochs": 4, "accumulate_grad_batches": 2, "precision": precision}
    trainer = quiet_trainer(accelerator="gpu" if GPUS else "cpu", **options, **where)
    trainer.fit(lit, DataLoader(TensorDataset(x.to(kind), y), batch_size))
    return read_weights(lit.cpu())


class Observed(LitClassifier):
    """Log steps, and an accuracy that differs by rank, in three ways."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.mean = MeanMetric()

    def on_train_epoch_end(self) -> None:
        counts = {"planned": self.trainer.estimated_stepping_batches}
        counts["taken"] = self.trainer.global_step
        self.log_dict({name: float(n) for name, n in counts.items()}, sync_dist=True)
        right, images = (2, 2) if self.global_rank else (3, 8)
        self.log("batch_size=1", right / images, batch_size=1, sync_dist=True)
        self.log("batch_size=images", right / images, batch_size=images, sync_dist=True)
        self.mean.update(right / images, weight=images)
        self.log("torchmetrics", self.mean)


def observe(k: int = 1, **options: Any) -> dict[str, float]:
    """What one epoch of 256 images in local batches of 16 logs."""
    x, y = make_batch(256)
    schedule = partial(warmup_cosine, warmup_steps=1)
    make = {"make_optimizer": partial(SGD, lr=0.1), "make_schedule": schedule}
    lit = Observed(build().cpu().float(), 3, **make)
    # on the CPU, as the processes of the lesson: a GPU may add in another order
    options |= {"max_epochs": 1, "accelerator": "cpu", "accumulate_grad_batches": k}
    trainer = quiet_trainer(**options)
    trainer.fit(lit, DataLoader(TensorDataset(x.cpu().float(), y.cpu()), 16))
    return {name: value.item() for name, value in trainer.callback_metrics.items()}
