"""A whole recipe for `fit`, all seams but the batch filled, for short trainings on two cores."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from course_utils.config import Config
from course_utils.data.image_data import ImageData
from course_utils.training.schedules import warmup_cosine

__all__ = ["channels_last", "from_scratch"]


def channels_last(model: nn.Module) -> nn.Module:
    """The model seam: keep weights in memory as ``(H, W, C)``, which convolutions may prefer."""
    return model.to(memory_format=torch.channels_last)


def _rise_and_fall(optimizer: Optimizer, total_steps: int) -> LRScheduler:
    return warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 4)


def from_scratch(config: Config, epochs: int, model: str = "vgg_tiny") -> dict[str, object]:
    """Arguments of `fit` that train ``model`` from random weights in ``epochs`` epochs.

    Made for tens of thousands of images of 32 × 32 pixels and a few epochs; lesson 12 says what
    each part is for, and measures it.
    """
    sgd = partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    return {
        "config": config.replace(model=model, epochs=epochs),
        "make_loader": partial(ImageData.batched_loader, batch_size=128),
        "model_transform": channels_last,
        "loss": partial(F.cross_entropy, label_smoothing=0.1),
        "make_optimizer": sgd,
        "make_schedule": _rise_and_fall,
        "trainer": {"precision": "bf16-mixed"},
    }
