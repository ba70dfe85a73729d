"""A guard for Lightning's weight averaging, for averages that begin late."""

from collections.abc import Iterator

import lightning as L
from lightning.pytorch.callbacks import WeightAveraging
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
        CourseError: at the end of a training in which an average never began. Lightning would
            return the initial weights.
    """

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        for average in _find_averages_without_update(trainer):
            average.module.load_state_dict(pl_module.state_dict())

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if list(_find_averages_without_update(trainer)):
            raise CourseError(
                f"weight averaging never began: the training has {trainer.global_step} steps in "
                f"{trainer.current_epoch} epochs, start earlier or give fit a new callback"
            )


def _find_averages_without_update(trainer: L.Trainer) -> Iterator[AveragedModel]:
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, WeightAveraging):
            average = callback._average_model  # Lightning has no public name for it
            if average is not None and average.n_averaged == 0:
                yield average
