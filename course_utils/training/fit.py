"""`fit` trains once and returns a `Run`."""

import logging
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn

from course_utils.config import Config
from course_utils.data.image_data import ImageData
from course_utils.errors import CourseError
from course_utils.measure.memory import count_parameters, reset_peak_memory
from course_utils.measure.provenance import describe_hardware, read_commit, read_versions
from course_utils.measure.timing import Throughput
from course_utils.models.create import create_model
from course_utils.training.lit_classifier import (
    BatchTransform,
    LitClassifier,
    Loss,
    MakeOptimizer,
    MakeSchedule,
)
from course_utils.training.run import Run

__all__ = ["fit", "quiet_trainer"]

# Notices that no reader of a lesson can act upon: which devices were found, a tip about another
# product, a deprecation inside Lightning, and the advice to load tiny images with more workers
# (slower, on two cores). Warnings of any other kind come through.
for _part in ("pytorch", "fabric"):
    logging.getLogger(f"lightning.{_part}").setLevel(logging.WARNING)
for _notice in ("does not have many workers", "LeafSpec", "have no `val_dataloader`"):
    warnings.filterwarnings("ignore", message=f".*{_notice}.*")


class _History(L.Callback):
    """Observe the metrics after every epoch, and when that was."""

    def __init__(self):
        self.epochs, self.ends = [], []

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
        self.epochs.append({"epoch": trainer.current_epoch + 1, **metrics})
        self.ends.append(time.perf_counter())


def _describe_provenance(config: Config) -> dict[str, object]:
    return {
        "profile": config.profile,
        "dataset": config.dataset,
        "model": config.model,
        "hardware": describe_hardware(),
        "versions": read_versions(),
        "commit": read_commit(),
    }


def _with_observers(options: dict | None, *observers: L.Callback) -> dict:
    """Trainer options with our callbacks behind those that were given (a list, or one)."""
    given = (options or {}).get("callbacks") or []
    given = [given] if isinstance(given, L.Callback) else given
    return (options or {}) | {"callbacks": [*given, *observers]}


def quiet_trainer(**options) -> L.Trainer:
    """A `lightning.Trainer` on one device that prints, logs and stores nothing.

    ``options`` are its keyword arguments and have the last word.
    """
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "devices": 1,
    }
    return L.Trainer(**quiet | options)


def fit(
    config: Config,
    data: ImageData,
    *,
    seed: int = 0,
    pretrained: bool = False,
    train_loader: Callable[[ImageData, int], Iterable] = ImageData.train_loader,
    model_transform: Callable[[nn.Module], nn.Module] | None = None,
    batch_transform: BatchTransform | None = None,
    loss: Loss = F.cross_entropy,
    optimizer: MakeOptimizer | None = None,
    schedule: MakeSchedule | None = None,
    trainer: dict | None = None,
    arm: str = "baseline",
    comparison: str = "",
) -> Run:
    """Train ``config.model`` on ``data`` once; with no seam filled this is the baseline.

    ``seed`` decides the initial weights, the order of the images and their augmentations, each
    from a random stream of its own: two arms with one seed start from the same weights and see
    the same batches.

    Args:
        train_loader: data seam, ``(data, seed) -> batches``.
        model_transform: model seam, ``Module -> Module``, before training.
        batch_transform: batch seam; None: off.
        loss: loss seam, for training only.
        optimizer: optimizer seam; None: AdamW at ``config.peak_lr``.
        schedule: ``(optimizer, total_steps) -> schedule``; None: a constant learning rate.
        trainer: trainer seam, keyword arguments of `lightning.Trainer`.
        arm, comparison: names under which the run is stored, see `Run.save`.

    Raises:
        CourseError: no epoch ended in this process.
    """
    L.seed_everything(seed, workers=True, verbose=False)
    model = create_model(config.model, data.num_classes, pretrained)
    if model_transform is not None:
        model = model_transform(model)
    lit = LitClassifier(
        model,
        data.num_classes,
        optimizer=optimizer or partial(torch.optim.AdamW, lr=config.peak_lr),
        schedule=schedule,
        loss=loss,
        batch_transform=batch_transform,
    )
    history, throughput = _History(), Throughput()
    options = {"max_epochs": config.epochs} | _with_observers(trainer, history, throughput)
    start = time.perf_counter()
    lightning = quiet_trainer(**options)
    reset_peak_memory(lightning.strategy.root_device)
    lightning.fit(lit, train_loader(data, seed), data.eval_loader())
    if not history.epochs:
        raise CourseError(
            "no epoch was trained in this process: train one at least, and start several "
            "processes with torchrun, not by a strategy that forks"
        )
    run = Run(
        arm=arm,
        seed=seed,
        metrics=history.epochs[-1],
        history=history.epochs,
        time_s=time.perf_counter() - start,
        images_per_s=throughput.images_per_s,
        trainable_parameters=count_parameters(model, trainable=True),
        parameters=count_parameters(model),
        saved_bytes=lit.saved_bytes,
        peak_memory_bytes=throughput.peak_memory_bytes,
        provenance=_describe_provenance(config),
        comparison=comparison,
        epoch_ends_s=[end - start for end in history.ends],
        model=lit.model.cpu().eval(),
    )
    if lightning.is_global_zero:
        run.save()
    return run
