"""What lesson 22 reads of few labels: experts against dense networks, ten paired seeds.

The regime where the technique is used, pretraining, is `study_pretraining`.
"""

from functools import partial

from torch import nn
from torch.optim import AdamW

from course_tools.study.declare import Regime, Study
from course_utils.config import load_config
from course_utils.models.text_small import TextSmall
from lesson_code.mixture_of_experts.experts import use_experts, widen
from lesson_code.mixture_of_experts.pretraining import warm_up_tenth

EPOCHS = 5
CONFIG = load_config("quick", dataset="glosses", first_seed=0).replace(
    num_train=2000, num_val=2000, epochs=EPOCHS, batch_size=32, model="text_small", progress=False
)
LEARNING_RATES = (1e-3, 2e-3, 4e-3, 8e-3)  # the trials of each variant
SMALL = partial(TextSmall, width=64, depth=2)  # the network of the study of pretraining


def tune(model_transform=None) -> dict[str, dict]:
    """Arguments of `fit` at four learning rates; validated once, at the end."""
    return {
        f"lr {lr:g}": {
            "model": SMALL,
            "model_transform": model_transform,
            "make_optimizer": partial(AdamW, lr=lr),
            "make_schedule": warm_up_tenth,
            "trainer": {"check_val_every_n_epoch": EPOCHS},
        }
        for lr in LEARNING_RATES
    }


def four_experts(model: TextSmall) -> nn.Module:
    return use_experts(model)


def four_times_as_wide(model: TextSmall) -> nn.Module:
    return widen(model)


STUDY = Study(
    "Are four experts in place of one MLP worth it?",
    {
        "few labels": Regime(
            "2,000 labelled definitions for 5 epochs, from random weights: small enough to be "
            "repeated live.",
            CONFIG,
            {
                "dense": tune(),
                "experts": tune(four_experts),
                "wide": tune(four_times_as_wide),
            },
        )
    },
    search_seeds=(100,),
)
