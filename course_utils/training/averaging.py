"""A guard for Lightning's weight averaging, for averages that begin late or not at all."""

import copy
import math
from collections.abc import Iterator

import lightning as L
from lightning.pytorch.callbacks import StochasticWeightAveraging, WeightAveraging
from torch.optim.swa_utils import AveragedModel

from course_utils.errors import CourseError

__all__ = ["GuardAveraging"]


class GuardAveraging(L.Callback):
    """Validate the current weights until weight averaging has begun.

    Lightning's `WeightAveraging` puts its average into the module for each validation. Before the
    first update this is a copy of the initial weights (Lightning's issue 21724): validation, early
    stopping and the best checkpoint would see an untrained network. This callback makes the copy
    equal to the current weights. It has to stand before the callbacks that average.

    Raises:
        CourseError: an average that never begins, before the training where the plan shows it, or
            at its end; Lightning would return the initial weights. `StochasticWeightAveraging`
            that does not come to its end, where Lightning would return the last weights.
    """

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        steps, epochs = trainer.estimated_stepping_batches, trainer.max_epochs or 0
        is_planned = 0 < steps < math.inf and epochs > 0
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, StochasticWeightAveraging):
                _check_start(callback)
            elif isinstance(callback, WeightAveraging) and is_planned:
                _check_plan(callback, int(steps), epochs)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        for average in _find_averages_without_update(trainer):
            average.module.load_state_dict(pl_module.state_dict())

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if list(_find_averages_without_update(trainer)):
            raise CourseError(_never_began(trainer.global_step, trainer.current_epoch))
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, StochasticWeightAveraging) and callback.swa_end < math.inf:
                # the epoch after the last one measures the statistics of BatchNorm
                last = callback.swa_end + bool(callback._model_contains_batch_norm)
                if trainer.current_epoch - 1 < last:
                    raise CourseError(
                        "the training ended before StochasticWeightAveraging did: limit it by "
                        "max_epochs alone, without max_steps, max_time or early stopping"
                    )


def _check_start(callback: StochasticWeightAveraging) -> None:
    """Refuse an average that begins after the last epoch."""
    first, last = callback.swa_start + 1, callback.swa_end + 1
    if first > last:
        raise CourseError(
            f"StochasticWeightAveraging begins in epoch {first} of {last}: set swa_epoch_start to "
            f"{last} or less"
        )


def _check_plan(callback: WeightAveraging, steps: int, epochs: int) -> None:
    """Refuse an average that will not be updated in so many steps and epochs."""
    asked = copy.copy(callback)  # it may remember what it was asked
    in_steps = any(asked.should_update(step_idx=step) for step in range(steps))
    if not in_steps and not any(asked.should_update(epoch_idx=epoch) for epoch in range(epochs)):
        raise CourseError(_never_began(steps, epochs))


def _never_began(steps: int, epochs: int) -> str:
    length = f"{epochs} epoch" if epochs == 1 else f"{epochs} epochs"
    return (
        f"weight averaging never began: the training has {steps} steps in {length}, "
        "start earlier or give fit a new callback"
    )


def _find_averages_without_update(trainer: L.Trainer) -> Iterator[AveragedModel]:
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, WeightAveraging):
            average = callback._average_model  # Lightning has no public name for it
            if average is not None and average.n_averaged == 0:
                yield average
