"""Loggers of a training that ask no server: TensorBoard's, and W&B's in its offline mode."""

import logging
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from course_utils.training.fit import quiet_trainer

__all__ = ["has_wandb", "log_with_tensorboard", "log_with_wandb"]

STEPS = 4


def has_wandb() -> bool:
    return find_spec("wandb") is not None


class LitLogged(L.LightningModule):
    """A network of one weight that logs its loss at each step."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(1, 1, bias=False)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        loss = self.net(batch[0]).square().mean()
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train_logged(logger: Logger) -> None:
    """A few steps, each of which is logged."""
    loader = DataLoader(TensorDataset(torch.ones(STEPS, 1)), batch_size=1)
    trainer = quiet_trainer(accelerator="cpu", max_epochs=1, logger=logger, log_every_n_steps=1)
    trainer.fit(LitLogged(), loader)


def log_with_tensorboard() -> list[float]:
    """The losses of each step, as TensorBoard reads them from its file."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tempfile.TemporaryDirectory() as folder:
        logger = TensorBoardLogger(folder)
        train_logged(logger)
        events = EventAccumulator(logger.log_dir)
        events.Reload()
        return [event.value for event in events.Scalars("train_loss")]


def log_with_wandb() -> dict[str, Any]:
    """What W&B leaves in a folder without a network; empty without wandb.

    ``wandb sync FOLDER`` sends it later.
    """
    if not has_wandb():
        return {}
    from lightning.pytorch.loggers import WandbLogger

    os.environ |= {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}
    logging.getLogger("wandb").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        logger = WandbLogger(save_dir=folder, offline=True, project="course")
        train_logged(logger)
        kept = dict(logger.experiment.summary)
        logger.experiment.finish()
        files = sorted(path.suffix for path in Path(folder).rglob("*.wandb"))
    return {
        "files": files,
        "steps": kept["trainer/global_step"] + 1,
        "logged": "train_loss" in kept,
    }
