"""Train what a recipe returns, once, within a budget; and let the network answer.

This runs in the process of the recipe. Nothing that it measures decides the race: the process
that started it keeps the time, and alone has the classes of the hidden images.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from course_tools.race.budget import Budget
from course_tools.race.load import load_recipe
from course_utils.config import Config
from course_utils.data.image_data import ImageData, Images
from course_utils.errors import CourseError
from course_utils.training import fit, quiet_trainer
from course_utils.training.fit import check_options

__all__ = ["classify", "count_steps", "train_recipe"]

RETURNS = (
    "return a dictionary of arguments of fit, or a function from the number of classes to a "
    "LightningModule"
)


@dataclass
class Steps:
    """How many steps all optimizers of this process have taken."""

    taken: int = 0


@contextmanager
def count_steps() -> Iterator[Steps]:
    """Count the steps of every optimizer in this context."""
    steps = Steps()

    def note(*_: object) -> None:
        steps.taken += 1

    hook = register_optimizer_step_post_hook(note)
    try:
        yield steps
    finally:
        hook.remove()


def train_recipe(
    path: Path,
    config: Config,
    data: ImageData,
    seed: int,
    budget: Budget,
    started_s: float,
) -> nn.Module:
    """The network that the recipe trains: images ``(N, 3, H, W)`` to logits ``(N, C)``.

    Args:
        path: of a file with a function ``recipe``: ``config -> arguments of fit``, or
            ``config -> (num_classes -> LightningModule)``.
        started_s: of `time.monotonic`, when the budget began.

    Raises:
        CourseError: the file does not import; the function returns something else,
            gives an argument that the race decides, or takes more steps than the budget has.
    """
    L.seed_everything(seed, workers=True, verbose=False)
    with count_steps() as steps:  # those that it takes while it is imported, too
        planned = load_recipe(path)(config)
        if isinstance(planned, Mapping):
            model = _fit(dict(planned), config, data, seed, budget, started_s)
        elif callable(planned):
            model = _train_module(planned, config, data, seed, budget, started_s)
        else:
            raise CourseError(f"recipe returns a {type(planned).__name__}: {RETURNS}")
    if budget.steps is not None and steps.taken > budget.steps:
        raise CourseError(
            f"it took {steps.taken:,} steps, the budget is {budget.steps:,}: leave the loop to fit"
        )
    return model


def _limit_trainer(options: Mapping, budget: Budget, started_s: float) -> dict[str, Any]:
    """Arguments of the trainer that end it with the budget.

    Raises:
        CourseError: the recipe sets its own limit of time, or nothing is left of the budget.
    """
    if "max_time" in options:
        raise CourseError("its trainer has max_time, which the race decides: leave it out")
    limited = dict(options)
    if budget.steps is not None:
        asked = limited.get("max_steps", -1)
        limited["max_steps"] = budget.steps if asked < 0 else min(asked, budget.steps)
        return limited
    left_s = budget.seconds - (time.monotonic() - started_s)
    if left_s <= 0:
        raise CourseError(
            f"it takes longer than {budget.seconds:g} s before its training begins: work less in "
            "recipe(config)"
        )
    return limited | {"max_time": timedelta(seconds=left_s)}


def _fit(
    options: dict, config: Config, data: ImageData, seed: int, budget: Budget, started_s: float
) -> nn.Module:
    if "data" in options:
        raise CourseError("it gives data, which the race decides: leave it out")
    check_options("recipe", options)
    config = options.pop("config", config)
    trainer = _limit_trainer(options.pop("trainer", None) or {}, budget, started_s)
    run = fit(config, data, seed=seed, trainer=trainer, save=False, **options)
    assert run.model is not None
    return run.model


def _train_module(
    make_module: Callable[[int], Any],
    config: Config,
    data: ImageData,
    seed: int,
    budget: Budget,
    started_s: float,
) -> nn.Module:
    module = make_module(data.num_classes)
    if not isinstance(module, L.LightningModule):
        raise CourseError(f"recipe's function makes a {type(module).__name__}: {RETURNS}")
    options = _limit_trainer({"max_epochs": config.epochs}, budget, started_s)
    quiet_trainer(**options).fit(module, data.train_loader(seed), data.eval_loader())
    return module.cpu().eval()


def classify(model: nn.Module, data: ImageData, images: np.ndarray) -> np.ndarray:
    """The classes ``(N,)`` int64 that a network names for images ``(N, H, W, 3)`` uint8."""
    hidden = Images(images, np.zeros(len(images), dtype=np.int64))
    number = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    model.eval()
    with torch.no_grad():
        batches = [model(batch.to(number.dtype)) for batch, _ in data.eval_loader(hidden)]
    return torch.cat(batches).argmax(dim=1).numpy()
