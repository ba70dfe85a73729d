"""The one LightningModule of the course: a classifier with an argument for every seam."""

from collections.abc import Callable

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError

from course_utils.errors import CourseError
from course_utils.measure.memory import count_saved_bytes
from course_utils.measure.timing import ends_epoch
from course_utils.training.guards import check_optimizer, check_schedule, plan_steps

__all__ = [
    "BatchTransform",
    "LitClassifier",
    "Loss",
    "MakeOptimizer",
    "MakeSchedule",
    "NamedParameters",
]

Batch = tuple[torch.Tensor, torch.Tensor]
BatchTransform = Callable[[torch.Tensor, torch.Tensor], Batch]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
NamedParameters = list[tuple[str, nn.Parameter]]
MakeOptimizer = Callable[[NamedParameters], torch.optim.Optimizer]
MakeSchedule = Callable[[torch.optim.Optimizer, int], torch.optim.lr_scheduler.LRScheduler]


IGNORED = -100  # the target of a token that is not predicted, such as padding; PyTorch's default


def _list_predicted(logits: torch.Tensor, targets: torch.Tensor) -> Batch:
    """Logits ``(M, C)`` and targets ``(M,)`` of all tokens with a target; of others as they are."""
    if logits.ndim != 3:
        return logits, targets
    predicted = targets != IGNORED
    return logits[predicted], targets[predicted]


def _describe(value: object) -> str:
    """What a function returned, for a message: the type, and a tensor's shape."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"{len(value)} values" if isinstance(value, tuple | list) else type(value).__name__


class LitClassifier(L.LightningModule):
    """Train ``model`` as a classifier. With no seam filled it is the baseline.

    Three of the six seams are arguments here. The other three are outside: data and trainer are
    arguments of ``Trainer.fit`` and ``Trainer``, and a model is changed before it comes here.

    Args:
        model: inputs to logits ``(N, C)``: images ``(N, 3, H, W)``, tokens ``(N, T)``. Or tokens
            to logits ``(N, T, C)``, one prediction for each. Their targets are ``(N, T)``, and
            those that are -100 (PyTorch's ``ignore_index``) do not count; losses and metrics get
            the M others of a batch, as ``(M, C)`` and ``(M,)``.
        num_classes: C.
        make_optimizer: ``named parameters -> optimizer``, given ``(name, parameter)`` pairs of
            those that require gradients, in the order of the model. PyTorch's optimizers take
            such pairs as they are; names make groups possible (no decay on norms, a learning
            rate for the head).
        make_schedule: ``(optimizer, total_steps) -> schedule``, stepped after every optimizer
            step; None: the learning rate is constant.
        loss: ``(logits, targets) -> scalar`` for training. Validation always uses plain
            cross-entropy on hard targets, so that its values can be compared.
        batch_transform: ``(inputs, targets) -> (inputs, targets)``, called once for each training
            batch, after the batch is on the device; it may return soft targets ``(N, C)``.
            None: off.
    """

    def __init__(
        self,
        model: nn.Module,
        num_classes: int,
        *,
        make_optimizer: MakeOptimizer,
        make_schedule: MakeSchedule | None = None,
        loss: Loss = F.cross_entropy,
        batch_transform: BatchTransform | None = None,
    ):
        super().__init__()
        self.model = model
        self.make_optimizer = make_optimizer
        self.make_schedule = make_schedule
        self.loss = loss
        self.batch_transform = batch_transform
        self.val_accuracy = MulticlassAccuracy(num_classes, average="micro")
        self.val_calibration_error = MulticlassCalibrationError(num_classes)
        self.saved_bytes: int | None = None  # by the first training step; see count_saved_bytes
        self._is_counted = False  # whether the current batch is in the epoch's sums

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.model(inputs)

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        if self.saved_bytes is not None:
            return self._training_loss(batch)
        with count_saved_bytes(self.model) as saved:
            loss = self._training_loss(batch)
        self.saved_bytes = saved.total
        return loss

    def _training_loss(self, batch: Batch) -> torch.Tensor:
        inputs, targets = batch
        logits, targets = _list_predicted(self(inputs), targets)
        loss = self.loss(logits, targets)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise CourseError(f"loss returned {_describe(loss)}: return the mean over the batch")
        if not self._is_counted:
            self._count(loss.detach(), logits.detach(), targets)
        return loss

    def on_after_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """Fill the batch seam here and not in `training_step`.

        An optimizer may call its closure, and with it `training_step`, several times for one
        batch (SAM and LBFGS do). All calls must see the same batch.
        """
        if self.batch_transform is None or not self.trainer.training:
            return batch
        inputs, targets = batch
        changed = self.batch_transform(inputs, targets)
        if not isinstance(changed, tuple | list) or len(changed) != 2:
            found = _describe(changed)
            raise CourseError(f"batch_transform returned {found}: return inputs and targets")
        return changed[0], changed[1]

    def on_train_epoch_start(self) -> None:
        self._examples = 0
        self._loss_sum: torch.Tensor | float = 0.0
        self._right: torch.Tensor | int | None = 0

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        self._is_counted = False

    def on_train_batch_end(self, outputs, batch: Batch, batch_idx: int) -> None:
        """Log the epoch's means at its last batch: calling `log` at each step costs more."""
        if ends_epoch(self.trainer):
            means = {"train_loss": self._loss_sum / self._examples}
            if self._right is not None:
                means["train_accuracy"] = self._right / self._examples
            self.log_dict(means, on_step=False, on_epoch=True, batch_size=1, sync_dist=True)

    def _count(self, loss: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor) -> None:
        """Add one batch to the epoch's sums: its first forward pass, at the weights before."""
        self._is_counted = True
        self._examples += len(targets)
        self._loss_sum += loss.float() * len(targets)  # in bf16 a long sum stops growing
        if targets.ndim > 1:  # soft targets have no single right class to count
            self._right = None
        elif self._right is not None:
            self._right += (logits.argmax(dim=1) == targets).sum()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        inputs, targets = batch
        logits, targets = _list_predicted(self(inputs).float(), targets)
        loss = F.cross_entropy(logits, targets)
        self.val_accuracy.update(logits, targets)
        # probabilities, not logits: the metric takes logits inside [0, 1] for probabilities
        self.val_calibration_error.update(logits.softmax(dim=1), targets)
        # Not a MeanMetric: under "bf16-true" it sums in 16 bits, whatever it is given.
        self.log("val_loss", loss, batch_size=len(targets), sync_dist=True)
        self.log_dict(
            {
                "val_accuracy": self.val_accuracy,
                "val_calibration_error": self.val_calibration_error,
            },
            on_step=False,
            on_epoch=True,
        )

    def configure_optimizers(self):
        trained = [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]
        optimizer = check_optimizer(self.make_optimizer(trained), self.make_optimizer, trained)
        if self.make_schedule is None:
            return optimizer
        # one step of the schedule is one step of the optimizer, and how many there will be is
        # asked of the trainer: it knows epochs, accumulation and devices
        schedule = check_schedule(self.make_schedule(optimizer, plan_steps(self.trainer)))
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }
