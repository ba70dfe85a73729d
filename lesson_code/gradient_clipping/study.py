"""What lesson 15 reads: clipping where nothing goes wrong, and where a fault is planted.

Each optimizer is trained without and with clipping, and each of them at its own best of four
learning rates, so that clipping is compared with a lower learning rate, too.
"""

from functools import partial

from lightning.pytorch import Callback
from torch.optim import SGD, AdamW

from course_tools.study.declare import Regime, Study
from course_utils.config import load_config
from course_utils.training.schedules import warmup_cosine
from lesson_code.gradient_clipping.planted import (
    OneSpike,
    RecordNorms,
    heavy_tailed_cross_entropy,
)

DEFINITIONS = load_config("quick", dataset="glosses", first_seed=0).replace(
    model="text_small", num_train=500, num_val=2000, epochs=5, batch_size=32, progress=False
)
MAX_NORM = 1.0  # the default of recipes for transformers since GPT-3
SPIKE_STEP = 20  # of 75, when the warm-up is over
ADAMW = (3e-4, 1e-3, 3e-3, 1e-2)  # learning rates that are tried
MOMENTUM = (1e-3, 3e-3, 1e-2, 3e-2)  # the same for SGD
MOMENTUM_FROM_SCRATCH = (0.03, 0.1, 0.3, 1.0)
SHORT_MEMORY = partial(AdamW, betas=(0.9, 0.95))  # as large language models have it
WITH_MOMENTUM = partial(SGD, momentum=0.9, nesterov=True)


def warm_up_tenth(optimizer, total_steps: int):
    return warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 10)


def tune(
    lrs: tuple[float, ...],
    optimizer,
    max_norm: float | None,
    planted: tuple[Callback, ...] = (),
    **options,
) -> dict[str, dict]:
    """Arguments of `fit` at each learning rate; validated once, at the end."""
    changed = {"pretrained": True, "make_schedule": warm_up_tenth} | options
    changed["trainer"] = {
        "check_val_every_n_epoch": DEFINITIONS.epochs,
        "gradient_clip_val": max_norm,
        "callbacks": [*planted, RecordNorms()],  # in this order: it measures what is planted
    }
    return {f"lr {lr:g}": changed | {"make_optimizer": partial(optimizer, lr=lr)} for lr in lrs}


def list_variants(momentum: tuple[float, ...] = MOMENTUM, **options) -> dict[str, dict]:
    """AdamW and SGD, each without and with clipping."""
    return {
        "AdamW": tune(ADAMW, AdamW, None, **options),
        "AdamW, clipped": tune(ADAMW, AdamW, MAX_NORM, **options),
        "SGD": tune(momentum, WITH_MOMENTUM, None, **options),
        "SGD, clipped": tune(momentum, WITH_MOMENTUM, MAX_NORM, **options),
    }


SPIKE = (OneSpike(SPIKE_STEP),)
STUDY = Study(
    "Where does clipping the norm of the gradient help?",
    {
        "one spike, planted": Regime(
            "500 definitions for 5 epochs, where the gradient of step 20 of 75 is planted to be "
            "1,000 times too large: clipping is meant for such a step, and here it is known where "
            "it is.",
            DEFINITIONS,
            list_variants(planted=SPIKE)
            | {"AdamW, β2 0.95": tune(ADAMW, SHORT_MEMORY, None, planted=SPIKE)},
        ),
        "nothing planted": Regime(
            "The same without any planted fault: a usual fine-tuning of a transformer, which "
            "recipes clip, too.",
            DEFINITIONS,
            list_variants(),
        ),
        "heavy tails, planted": Regime(
            "The same with a random, heavy-tailed weight for the loss of each example: such noise "
            "was found in the gradients of transformers, and is said to be why SGD needs clipping.",
            DEFINITIONS,
            list_variants(loss=heavy_tailed_cross_entropy),
        ),
        "from scratch": Regime(
            "The same from random weights, without any planted fault: where the recipes of "
            "transformers always clip.",
            DEFINITIONS,
            list_variants(MOMENTUM_FROM_SCRATCH, pretrained=False),
        ),
    },
    search_seeds=(100,),
)
