"""`fit` trains once and returns a `Run`."""

import copy
import difflib
import inspect
import logging
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Checkpoint, ProgressBar
from torch import nn

from course_utils.config import Config
from course_utils.data.load import Data
from course_utils.errors import CourseError
from course_utils.measure.memory import count_parameters, reset_peak_memory
from course_utils.measure.provenance import describe_making, describe_value
from course_utils.measure.timing import Throughput
from course_utils.models.create import create_model
from course_utils.training.averaging import GuardAveraging
from course_utils.training.guards import (
    check_module,
    check_trainer,
    list_callbacks,
    prepare_loader,
)
from course_utils.training.lit_classifier import (
    BatchTransform,
    LitClassifier,
    Loss,
    MakeOptimizer,
    MakeSchedule,
)
from course_utils.training.run import Run

__all__ = ["MakeModel", "check_options", "fit", "quiet_trainer"]

MakeModel = Callable[[int], nn.Module]
MakeLoader = Callable[[Any, int], Iterable]  # of ImageData or TextData, and a seed

SEAMS = (
    "model",
    "pretrained",
    "make_loader",
    "model_transform",
    "batch_transform",
    "loss",
    "make_optimizer",
    "make_schedule",
    "trainer",
)
# A training seeds PyTorch's global generator, so two of them in one process must not overlap: an
# executor of threads runs them one after the other.
_ONE_AT_A_TIME = threading.RLock()


class _History(L.Callback):
    """Record the metrics after every epoch, and when that was.

    Those of validation are recorded if it saw the weights of the epoch's end: Lightning keeps the
    values of an earlier validation.
    """

    def __init__(self):
        self.epochs, self.ends = [], []
        self._validated_step: int | None = None  # of the last validation in the current epoch

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._validated_step = None

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._validated_step = trainer.global_step

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        is_current = self._validated_step == trainer.global_step
        metrics = {
            name: value.item()
            for name, value in trainer.callback_metrics.items()
            if is_current or not name.startswith("val_")
        }
        self.epochs.append({"epoch": trainer.current_epoch + 1, **metrics})
        self.ends.append(time.perf_counter())

    def validate_last_epoch(
        self, trainer: L.Trainer, lit: L.LightningModule, batches: Iterable
    ) -> None:
        """Measure the trained weights, if the last epoch ended without a validation."""
        if self.epochs and "val_accuracy" not in self.epochs[-1]:
            [found] = trainer.validate(lit, batches, verbose=False)
            self.epochs[-1] |= found
            self.ends[-1] = time.perf_counter()


def _describe_settings(config: Config, data: Data, seams: Mapping) -> dict[str, dict]:
    """What was trained, in words: the config, the data, and every seam that differs from empty."""
    defaults = inspect.signature(fit).parameters
    filled = {
        name: describe_value(value)
        for name, value in seams.items()
        if value is not defaults[name].default
    }
    return {"config": asdict(config), "data": data.summarize(), "seams": filled}


def _copy_trainer_options(options: Mapping | None) -> dict:
    """A deep copy, so that the state of callbacks and plugins belongs to one training.

    ``callbacks`` becomes a list; it may have been a list, one callback, or missing.
    """
    copied = copy.deepcopy(dict(options or {}))
    copied["callbacks"] = list_callbacks(copied)
    return copied


def _suggest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {near[0]!r}?" if near else f": choose from {', '.join(known)}"


def check_options(arm: str, options: Mapping) -> None:
    """Find what `fit` cannot do with its arguments before anything is trained.

    Raises:
        CourseError: an argument that `fit`, or the trainer in its ``trainer``, does not have; one
            that `check_trainer` refuses.
    """
    known = ["config", "data", *SEAMS]
    for name in options:
        if name not in known:
            raise CourseError(f"{arm!r}: fit has no option {name!r}{_suggest(name, known)}")
    trainer_options = list(inspect.signature(L.Trainer).parameters)
    for name in options.get("trainer") or {}:
        if name not in trainer_options:
            near = _suggest(name, trainer_options)
            raise CourseError(f"{arm!r}: lightning.Trainer has no argument {name!r}{near}")
    try:
        check_trainer(
            options.get("trainer") or {}, has_schedule=options.get("make_schedule") is not None
        )
    except CourseError as error:
        raise CourseError(f"{arm!r}: {error}") from None


def quiet_trainer(**options) -> L.Trainer:
    """A `lightning.Trainer` on one device that prints, logs and stores nothing.

    ``options`` are its keyword arguments and have the last word; a callback that saves checkpoints
    or shows progress turns that on. Warnings come through, but not
    these notices, which no reader of a lesson can act upon: which devices were found, a tip about
    another product, a deprecation inside Lightning, and the advice to load tiny images with more
    workers (slower, on two cores).
    """
    for part in ("pytorch", "fabric"):
        logging.getLogger(f"lightning.{part}").setLevel(logging.WARNING)
    for notice in (
        "does not have many workers",
        "LeafSpec",
        "have no `val_dataloader`",
        "GPU available but not used",
    ):
        warnings.filterwarnings("ignore", message=f".*{notice}.*")
    callbacks = list_callbacks(options)
    quiet = {
        "logger": False,
        "enable_checkpointing": any(isinstance(one, Checkpoint) for one in callbacks),
        "enable_progress_bar": any(isinstance(one, ProgressBar) for one in callbacks),
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "devices": 1,
    }
    return L.Trainer(**quiet | options)


def _create(
    config: Config,
    data: Data,
    model: str | MakeModel | None,
    pretrained: bool,
    model_transform: Callable[[nn.Module], nn.Module] | None,
) -> nn.Module:
    if not callable(model):
        network = create_model(model or config.model, data.num_classes, pretrained)
    elif pretrained:
        raise CourseError("pretrained=True needs a model by name: load the weights in the factory")
    else:
        network = model(data.num_classes)
    if model_transform is None:
        return check_module(network, "model")
    return check_module(model_transform(network), "model_transform")


def _train(trainer: L.Trainer, lit: LitClassifier, batches: Iterable, data: Data) -> None:
    """Train; an interruption stays one.

    To Ctrl-C, and to a notebook's stop button, Lightning answers with `SystemExit`, and it ignores
    all later ones.

    Raises:
        KeyboardInterrupt: the training was interrupted.
    """
    heeded = signal.getsignal(signal.SIGINT)
    try:
        trainer.fit(lit, batches, data.eval_loader())
    except SystemExit as end:
        if not isinstance(end.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, heeded)  # it was this thread that was interrupted
        raise KeyboardInterrupt(
            f"stopped in epoch {trainer.current_epoch + 1}; trainings that ended are kept in "
            "records.jsonl"
        ) from None


def fit(
    config: Config,
    data: Data,
    *,
    seed: int = 0,
    model: str | MakeModel | None = None,
    pretrained: bool = False,
    make_loader: MakeLoader | None = None,
    model_transform: Callable[[nn.Module], nn.Module] | None = None,
    batch_transform: BatchTransform | None = None,
    loss: Loss = F.cross_entropy,
    make_optimizer: MakeOptimizer | None = None,
    make_schedule: MakeSchedule | None = None,
    trainer: dict | None = None,
    arm: str = "baseline",
    comparison: str = "",
    save: bool = True,
) -> Run:
    """Train once; with no seam filled this is the baseline.

    ``seed`` decides the initial weights, the order of the examples and their augmentations, each
    from a random stream of its own: two variants with one seed start from the same weights and
    see the same batches.

    Args:
        model: a name that `create_model` knows, or ``num_classes -> Module``;
            None: ``config.model``.
        pretrained: start from pretrained weights; only for a model by name.
        make_loader: data seam, ``(data, seed) -> batches``; None: ``data.train_loader(seed)``.
        model_transform: model seam, ``Module -> Module``, before training.
        batch_transform: batch seam, once per training batch; None: off.
        loss: loss seam, for training only.
        make_optimizer: optimizer seam, ``named parameters -> optimizer``; None: AdamW at
            ``config.peak_lr``.
        make_schedule: ``(optimizer, total_steps) -> schedule`` of `torch.optim.lr_scheduler`, which
            counts steps; None: a constant learning rate.
        trainer: trainer seam, keyword arguments of `lightning.Trainer`. They are copied for every
            training, callbacks included: the ones that trained are in `Run.callbacks`. Until weight
            averaging begins, the current weights are validated (`GuardAveraging`). The weights at
            the end are always validated, whatever ``check_val_every_n_epoch`` says.
        arm, comparison: names of the run in ``records.jsonl``.
        save: append the run to ``records.jsonl``.

    Raises:
        CourseError: a misspelt argument of the trainer; pretrained weights for a factory; what
            `course_utils.training.guards` refuses before a training; no epoch was trained; weight
            averaging that never began.
    """
    seams = {name: value for name, value in locals().items() if name in SEAMS}
    check_options(arm, seams)
    options = {"max_epochs": config.epochs} | _copy_trainer_options(trainer)
    history, throughput = _History(), Throughput()
    watching = [GuardAveraging(), *options["callbacks"], history, throughput]
    observed = options | {"callbacks": watching}
    with _ONE_AT_A_TIME:
        L.seed_everything(seed, workers=True, verbose=False)
        network = _create(config, data, model, pretrained, model_transform)
        lit = LitClassifier(
            network,
            data.num_classes,
            make_optimizer=make_optimizer or partial(torch.optim.AdamW, lr=config.peak_lr),
            make_schedule=make_schedule,
            loss=loss,
            batch_transform=batch_transform,
        )
        start = time.perf_counter()
        lightning = quiet_trainer(**observed)
        reset_peak_memory(lightning.strategy.root_device)
        batches = make_loader(data, seed) if make_loader else data.train_loader(seed)
        _train(lightning, lit, prepare_loader(batches), data)
        history.validate_last_epoch(lightning, lit, data.eval_loader())
        time_s = time.perf_counter() - start
    if not history.epochs:
        raise CourseError(
            "no epoch was trained: give the trainer the time and the batches of one at least"
        )
    run = Run(
        arm=arm,
        seed=seed,
        metrics=history.epochs[-1],
        history=history.epochs,
        time_s=time_s,
        examples_per_s=throughput.examples_per_s,
        trainable_parameters=count_parameters(network, trainable=True),
        parameters=count_parameters(network),
        saved_bytes=lit.saved_bytes,
        peak_memory_bytes=throughput.peak_memory_bytes,
        provenance=describe_making(),
        settings=_describe_settings(config, data, seams),
        comparison=comparison,
        epoch_ends_s=[end - start for end in history.ends],
        model=lit.model.cpu().eval(),
        callbacks=tuple(options["callbacks"]),
    )
    if save and lightning.is_global_zero:
        run.save()
    return run
