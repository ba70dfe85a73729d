"""What `fit` cannot do, found before a training: each in one line that names the fix."""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sized
from types import CodeType

import lightning as L
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    BatchSizeFinder,
    DeviceStatsMonitor,
    GradientAccumulationScheduler,
    LearningRateFinder,
    LearningRateMonitor,
    ThroughputMonitor,
)
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader

from course_utils.errors import CourseError

__all__ = [
    "check_module",
    "check_optimizer",
    "check_schedule",
    "check_trainer",
    "list_callbacks",
    "plan_steps",
    "prepare_loader",
]

TRAINS_NOTHING = ("max_epochs", "max_steps", "limit_train_batches")  # where they are 0
FORKS = ("spawn", "fork", "notebook")  # in the name of a strategy: weights stay in the child
LOGGED = (LearningRateMonitor, DeviceStatsMonitor, ThroughputMonitor)
MISPLACED: dict[type[L.Callback], str] = {  # what they change lies outside of the LightningModule
    BackboneFinetuning: "freeze with model_transform, or write a BaseFinetuning for module.model",
    BatchSizeFinder: "choose the batch size first, and give it to make_loader or config",
    LearningRateFinder: "choose the learning rate first, and give it to make_optimizer",
}


def list_callbacks(options: Mapping) -> list[L.Callback]:
    """The callbacks among the arguments of a trainer: they may be a list, one, or missing."""
    callbacks = options.get("callbacks") or []
    return [callbacks] if isinstance(callbacks, L.Callback) else list(callbacks)


def check_trainer(options: Mapping, *, has_schedule: bool) -> None:
    """Refuse arguments of a trainer with which `fit` trains nothing, or measures nothing.

    Raises:
        CourseError: no step would be trained, or without end; no validation; a strategy that
            trains in other processes; a callback that needs what `fit` does not have.
    """
    for name in TRAINS_NOTHING:
        if options.get(name) == 0:
            raise CourseError(f"{name}=0 trains nothing: give the trainer 1 or more")
    if options.get("limit_val_batches") == 0:
        raise CourseError("fit reports validation: leave limit_val_batches=0 out")
    if options.get("barebones"):
        raise CourseError("fit reports metrics, and barebones=True records none: leave it out")
    if any(word in str(options.get("strategy") or "") for word in FORKS):
        raise CourseError(
            f"with strategy={options['strategy']!r} the trained weights stay in other processes: "
            "start several processes with torchrun"
        )
    callbacks = list_callbacks(options)
    limits = options.get("max_time"), options.get("max_steps", -1) != -1, callbacks
    if options.get("max_epochs") == -1 and not any(limits):
        raise CourseError("max_epochs=-1 trains without end: give max_steps or max_time too")
    for callback in callbacks:
        _check_callback(callback, bool(options.get("logger")), has_schedule)


def _check_callback(callback: L.Callback, has_logger: bool, has_schedule: bool) -> None:
    name = type(callback).__name__
    for kind, fix in MISPLACED.items():
        if isinstance(callback, kind):
            raise CourseError(f"{name} cannot work through fit: {fix}")
    if isinstance(callback, LOGGED) and not has_logger:
        raise CourseError(
            f"{name} writes to a logger, and fit has none: add "
            "'logger': lightning.pytorch.loggers.CSVLogger(folder) to trainer"
        )
    if isinstance(callback, GradientAccumulationScheduler) and has_schedule:
        raise CourseError(
            "a schedule is planned with one number of accumulation steps: give trainer "
            "accumulate_grad_batches in place of GradientAccumulationScheduler"
        )


def check_module(network: object, source: str) -> nn.Module:
    """The network, if ``source`` (an argument of `fit`) returned one that can be trained.

    Raises:
        CourseError: it returned something else; no parameter requires a gradient.
    """
    if not isinstance(network, nn.Module):
        raise CourseError(f"{source} returned {type(network).__name__}: return the model")
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise CourseError(f"{source} left no parameter to train: let the head require gradients")
    return network


def prepare_loader(loader: object) -> Iterable:
    """Training batches as Lightning takes them: it reads a list as several loaders.

    Raises:
        CourseError: there is no batch.
    """
    if isinstance(loader, Sized) and len(loader) == 0:
        raise CourseError(
            "make_loader returned no batch: take more images, or a batch size below their number"
        )
    if isinstance(loader, list | tuple):
        return DataLoader(loader, batch_size=None)  # type: ignore[arg-type]
    if not isinstance(loader, Iterable):
        raise CourseError(f"make_loader returned {type(loader).__name__}: return batches")
    return loader


def check_optimizer(
    optimizer: object,
    make_optimizer: Callable,
    trained: Iterable[tuple[str, nn.Parameter]],
) -> Optimizer:
    """The optimizer, if ``make_optimizer`` returned one over the model's trained parameters.

    Raises:
        CourseError: it returned something else, as a pair or None; it holds the parameters of
            another model; timm was asked for a layer decay that nothing would apply.
    """
    if not isinstance(optimizer, Optimizer):
        kind = type(optimizer).__name__
        raise CourseError(f"make_optimizer returned {kind}: return one torch optimizer")
    own = {id(parameter) for _, parameter in trained}
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if not held <= own:
        raise CourseError(
            f"make_optimizer took {len(held - own)} parameters that are not those to train here: "
            "build the optimizer from the (name, parameter) pairs that it is given"
        )
    scales = {group.get("lr_scale", 1.0) for group in optimizer.param_groups}
    rates = {group["lr"] for group in optimizer.param_groups}
    ignored = len(rates) == 1 if len(scales) > 1 else asks_timm_for_layer_decay(make_optimizer)
    if ignored:
        raise CourseError(
            "timm's layer_decay has no effect here (it needs a model and timm's schedulers): take "
            "course_utils.training.parameter_groups.make_grouped with layer_decay"
        )
    return optimizer


def asks_timm_for_layer_decay(make_optimizer: Callable) -> bool:
    """Whether a partial or a function gives ``layer_decay`` to timm's `create_optimizer_v2`."""
    options: dict = {}
    while isinstance(make_optimizer, functools.partial):
        options = make_optimizer.keywords | options
        make_optimizer = make_optimizer.func
    if make_optimizer.__module__.startswith("timm."):
        return options.get("layer_decay") is not None
    code = getattr(make_optimizer, "__code__", None)
    if not isinstance(code, CodeType):
        return False
    keywords = {name for names in code.co_consts if isinstance(names, tuple) for name in names}
    return "layer_decay" in keywords and any("create_optimizer" in name for name in code.co_names)


def check_schedule(schedule: object) -> LRScheduler:
    """The schedule, if it is one of PyTorch's that counts steps.

    Raises:
        CourseError: it is none, as a scheduler of timm, or follows a metric.
    """
    if isinstance(schedule, ReduceLROnPlateau):
        raise CourseError(
            "fit counts steps, and ReduceLROnPlateau follows a metric: use it in a LightningModule "
            "of your own, or take a schedule that counts, such as warmup_cosine"
        )
    if not isinstance(schedule, LRScheduler):
        kind = f"{type(schedule).__module__}.{type(schedule).__name__}"
        raise CourseError(
            f"make_schedule returned {kind.removeprefix('builtins.')}: return a schedule of "
            "torch.optim.lr_scheduler, such as warmup_cosine"
        )
    return schedule


def plan_steps(trainer: L.Trainer) -> int:
    """How many optimizer steps a trainer will take: epochs, accumulation and devices count.

    Raises:
        CourseError: it does not know, because neither epochs nor steps are limited, or the loader
            has no length.
    """
    steps = trainer.estimated_stepping_batches
    if not 0 < steps < math.inf:
        raise CourseError(
            "a schedule has to know how many steps there will be: give the trainer max_steps"
        )
    return int(steps)
