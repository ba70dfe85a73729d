"""A whole recipe for `fit`, all seams but the batch filled, for short trainings on two cores."""

from functools import partial

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import OneCycleLR

from course_utils.config import Config
from course_utils.data.image_data import ImageData
from course_utils.models.airbench import whiten_stem

__all__ = ["WhitenStem", "channels_last", "from_scratch", "rise_and_fall"]


def channels_last(model: nn.Module) -> nn.Module:
    """The model seam: keep weights in memory as ``(H, W, C)``, which convolutions may prefer."""
    return model.to(memory_format=torch.channels_last)


def rise_and_fall(
    optimizer: Optimizer, total_steps: int, final_div_factor: float = 1e4
) -> OneCycleLR:
    """From a fifth of each group's learning rate up to it in 23 % of the steps, then to about zero.

    Both in a straight line. The last learning rate is the first one divided by
    ``final_div_factor``.

    Source: K. Jordan, 94 % on CIFAR-10 in 3.29 Seconds on a Single GPU, 2024 (there the last one
    is 7 % of the highest, for weights that are averaged).
    """
    peaks = [group["lr"] for group in optimizer.param_groups]
    return OneCycleLR(
        optimizer,
        peaks,
        total_steps=total_steps,
        pct_start=0.23,
        anneal_strategy="linear",
        cycle_momentum=False,
        div_factor=5,
        final_div_factor=final_div_factor,
    )


class WhitenStem(L.Callback):
    """Trainer seam: `whiten_stem` on the first batch, before the first training step."""

    def on_train_batch_start(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        batch: tuple[Tensor, Tensor],
        batch_idx: int,
    ) -> None:
        if trainer.current_epoch == 0 and batch_idx == 0:
            model = pl_module.model
            assert isinstance(model, nn.Sequential)  # for the type checker
            whiten_stem(model, batch[0])


def from_scratch(config: Config, epochs: int, batch_size: int = 512) -> dict[str, object]:
    """Arguments of `fit` that train `airbench94_half` from random weights in ``epochs`` epochs.

    Made for tens of thousands of images of 32 × 32 pixels and 3 to 20 epochs. A thousand images
    need smaller batches, or an epoch has two steps only: the learning rate follows ``batch_size``.
    """
    learning_rate = 0.75 * batch_size / 512
    sgd = partial(SGD, lr=learning_rate, momentum=0.85, nesterov=True, weight_decay=1.3e-3)
    return {
        "config": config.replace(model="airbench94_half", epochs=epochs),
        "make_loader": partial(ImageData.train_loader, batch_size=batch_size, max_shift=2),
        "model_transform": channels_last,
        "loss": partial(F.cross_entropy, label_smoothing=0.2),
        "make_optimizer": sgd,
        "make_schedule": rise_and_fall,
        "trainer": {"precision": "bf16-mixed", "callbacks": [WhitenStem()]},
    }
