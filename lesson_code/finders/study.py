"""What lesson 14 reads: what the suggestions of learning-rate finders cost, against a search.

The search tries five learning rates with whole trainings on another seed. A finder tries none: at
each seed it runs a range test with the first weights and the batches of that seed, and one training
follows at its suggestion. Each finder has its library's defaults.
"""

from collections.abc import Callable
from functools import partial

from torch.optim import SGD, AdamW

from course_tools.study.declare import Regime, Study
from course_utils.config import Config, load_config
from course_utils.training.schedules import warmup_cosine
from lesson_code.finders.suggestions import FINDERS, TakeSuggestion

PHOTOGRAPHS = load_config("quick", dataset="photos", first_seed=0).replace(
    num_train=250, num_val=1000, batch_size=16, progress=False
)
DEFINITIONS = PHOTOGRAPHS.replace(dataset="glosses", model="text_small", epochs=4)
WITH_MOMENTUM = partial(SGD, momentum=0.9)
LRS_OF_SGD = (0.001, 0.003, 0.01, 0.03, 0.1)
LRS_OF_ADAMW = (0.0001, 0.0003, 0.001, 0.003, 0.01)  # around its default
IN_LIBRARIES = ("Lightning's suggestion", "valley")  # what they give without being asked
FASTER = {"precision": "bf16-mixed"}  # on photographs; lesson 07 finds no loss of accuracy


def warm_up_tenth(optimizer, total_steps: int):
    return warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 10)


def train(make: Callable, config: Config, options: dict, *callbacks) -> dict:
    """Arguments of `fit`, validated once, at the end."""
    return {
        "pretrained": True,
        "make_optimizer": make,
        "make_schedule": warm_up_tenth,
        "trainer": {"check_val_every_n_epoch": config.epochs, "callbacks": [*callbacks]} | options,
    }


def compare_finders(
    about: str,
    config: Config,
    make: Callable,
    lrs: tuple[float, ...],
    options: dict,
    finders: tuple[str, ...],
) -> Regime:
    """The best of all learning rates, and what each finder suggests."""
    searched = {f"lr {lr:g}": train(partial(make, lr=lr), config, options) for lr in lrs}
    suggested = {
        finder: {"as suggested": train(make, config, options, TakeSuggestion(finder, config))}
        for finder in finders
    }
    variants = {"searched": searched} | suggested
    return Regime(about, config, variants, untuned=frozenset(finders))


def on_photographs(epochs: int, why: str, finders: tuple[str, ...] = FINDERS) -> Regime:
    """SGD on 250 photographs."""
    return compare_finders(
        f"250 photographs for {epochs} epochs and a pretrained network, SGD with momentum: {why}.",
        PHOTOGRAPHS.replace(epochs=epochs),
        WITH_MOMENTUM,
        LRS_OF_SGD,
        FASTER,
        finders,
    )


STUDY = Study(
    "What does the suggestion of a learning-rate finder cost, against a search?",
    {
        "photographs, 2 epochs": on_photographs(
            2, "the training of the lesson, so short that a low learning rate costs most"
        ),
        "photographs, 8 epochs": on_photographs(
            8,
            "a usual fine-tuning; SGD has no learning rate that fits most networks, which is what "
            "finders are for",
        ),
        "photographs, 20 epochs": on_photographs(
            20, "a long one, in which a learning rate that is too low has time to catch up"
        ),
        "definitions": compare_finders(
            "250 definitions for 4 epochs and a pretrained transformer, AdamW: what most readers "
            "train, and where AdamW's own default of 0.001 needs no finder.",
            DEFINITIONS,
            AdamW,
            LRS_OF_ADAMW,
            {},
            IN_LIBRARIES,
        ),
    },
    search_seeds=(100,),
)
