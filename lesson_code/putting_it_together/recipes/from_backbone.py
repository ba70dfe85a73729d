"""The full recipe of lesson 12: all its steps together, from the pretrained network."""

from functools import partial

from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from course_utils.config import Config
from course_utils.training import warmup_cosine

__all__ = ["recipe"]


def _warm_up(optimizer: Optimizer, total_steps: int) -> LRScheduler:
    return warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 10)


def recipe(config: Config) -> dict[str, object]:
    return {
        "config": config.replace(epochs=max(1, config.epochs // 2)),
        "pretrained": True,
        "make_optimizer": partial(AdamW, lr=2 * config.peak_lr),
        "make_schedule": _warm_up,
        "trainer": {"precision": "bf16-mixed"},
    }
