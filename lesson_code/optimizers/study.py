"""What lesson 16 reads of a second workload: four optimizers fine-tune the text network.

The photographs of ``study_trials.py`` are trained from random weights. Here the weights are
pretrained, the network is a transformer without BatchNorm, and the trainings are short, because
this is how most readers meet an optimizer: in fine-tuning. Does the order change?
"""

from functools import partial

import lightning as L
import timm.optim
from schedulefree import AdamWScheduleFree
from torch.optim import SGD, AdamW

from course_tools.study.declare import Regime, Study
from course_utils.config import load_config
from course_utils.training.schedules import warmup_cosine

TEXTS = load_config("quick", dataset="glosses", first_seed=0).replace(
    model="text_small", num_train=500, num_val=1000, epochs=5, batch_size=32, progress=False
)
STEPS = TEXTS.epochs * (500 // TEXTS.batch_size)
WARMUP_STEPS = STEPS // 10
ADAPTIVE = (0.0005, 0.002, 0.008)  # learning rates, around AdamW's default of 0.001
BY_GRADIENT = (0.005, 0.02, 0.08)  # SGD's step depends on the size of the gradient


class AtTheAverage(L.Callback):
    """Schedule-free: train at y; validate and end at x. No BatchNorm, so no new statistics."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        trainer.optimizers[0].train()

    def on_validation_start(self, trainer, pl_module):
        trainer.optimizers[0].eval()

    def on_train_end(self, trainer, pl_module):
        trainer.optimizers[0].eval()


def tune(make, learning_rates: tuple[float, ...], **options) -> dict[str, dict]:
    """Arguments of `fit` at each learning rate; validated once, at the end."""
    schedule = partial(warmup_cosine, warmup_steps=WARMUP_STEPS)
    once = {"check_val_every_n_epoch": TEXTS.epochs}
    changed = {"pretrained": True, "make_schedule": schedule, "trainer": once} | options
    return {
        f"lr {lr:g}": {"make_optimizer": partial(make, lr=lr)} | changed for lr in learning_rates
    }


STUDY = Study(
    "Is another optimizer than AdamW better in fine-tuning, if each has its learning rate?",
    {
        "definitions": Regime(
            "500 definitions for 5 epochs and a pretrained transformer: few labels and few steps, "
            "as in most fine-tuning today.",
            TEXTS,
            {
                "AdamW": tune(AdamW, ADAPTIVE),
                "schedule-free": tune(
                    partial(AdamWScheduleFree, warmup_steps=WARMUP_STEPS),
                    ADAPTIVE,
                    make_schedule=None,
                    trainer={
                        "check_val_every_n_epoch": TEXTS.epochs,
                        "callbacks": AtTheAverage(),
                    },
                ),
                "Muon": tune(timm.optim.Muon, ADAPTIVE),
                "SGD": tune(partial(SGD, momentum=0.9, nesterov=True), BY_GRADIENT),
            },
        ),
    },
)
