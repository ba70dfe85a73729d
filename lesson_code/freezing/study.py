"""What lesson 02 reads: how much of a pretrained network to train, by number of labels.

On three kinds of data. The photographs and the definitions are near to what their weights have
seen, because these come from other photographs and other definitions. The drawings are far from
it. Fewer labels are trained for more epochs. Only the photographs have 6,000 labels, because
trainings on so many definitions would take the study beyond its two hours of one core.
"""

from functools import partial

from torch.optim import AdamW

from course_tools.study.declare import Regime, Study
from course_utils.config import Config, load_config
from course_utils.models.freeze import freeze_before
from course_utils.training.parameter_groups import make_grouped
from course_utils.training.schedules import warmup_cosine

PHOTOGRAPHS = load_config("quick", dataset="photos", first_seed=0).replace(
    num_val=2000, batch_size=32, progress=False
)
TEXTS = PHOTOGRAPHS.replace(dataset="glosses", model="text_small")
DRAWINGS = PHOTOGRAPHS.replace(dataset="shapes")
EPOCHS = {125: 16, 500: 8, 2000: 4, 6000: 2}  # by number of labels
HALVINGS = (0.5, 1.0, 2.0)  # of the learning rate that is given: the trials of each variant
LAYER_WISE_AT = 500  # labels
HEAD_LR = 0.01  # of the layer-wise learning rates, whose trials are those of the layers


def warm_up_tenth(optimizer, total_steps: int):
    return warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 10)


def tune(lr: float, epochs: int, make=AdamW, **options) -> dict[str, dict]:
    """Arguments of `fit` at three learning rates; validated once, at the end."""
    changed = {"pretrained": True, "make_schedule": warm_up_tenth} | options
    return {
        f"lr {factor * lr:g}": {
            "make_optimizer": partial(make, lr=factor * lr),
            "trainer": {"check_val_every_n_epoch": epochs},
        }
        | changed
        for factor in HALVINGS
    }


def list_variants(labels: int, lr: dict[str, float]) -> dict[str, dict]:
    """Full fine-tuning, and how much less is trained; ``lr`` by variant."""
    epochs = EPOCHS[labels]
    cuts = {"linear probe": "fc", "last stage": "layer4"}
    variants = {"full fine-tuning": tune(lr["full fine-tuning"], epochs)}
    for name, first in cuts.items():
        cut = partial(freeze_before, first_trained=first)
        variants[name] = tune(lr[name], epochs, model_transform=cut)
    variants["from scratch"] = tune(lr["from scratch"], epochs, pretrained=False)
    if labels == LAYER_WISE_AT:
        by_layer = partial(make_grouped, AdamW, head_lr=HEAD_LR, layer_decay=0.5)
        variants["layer-wise learning rates"] = tune(lr["layer-wise"], epochs, by_layer)
    return variants


def make_regimes(
    name: str, base: Config, labels: tuple[int, ...], about: str, lr: dict[str, float]
) -> dict:
    """One regime for each number of labels."""
    return {
        f"{name}, {count:,}": Regime(
            f"{count:,} {name} for {EPOCHS[count]} epochs: {about}.",
            base.replace(num_train=count, epochs=EPOCHS[count]),
            list_variants(count, lr),
        )
        for count in labels
    }


LEARNING_RATES = {"full fine-tuning": 5e-4, "linear probe": 1e-2, "last stage": 1e-3}
LEARNING_RATES |= {"layer-wise": 2e-3, "from scratch": 1e-3}
ON_PHOTOGRAPHS = LEARNING_RATES | {"full fine-tuning": 1e-3}
ON_DRAWINGS = {"full fine-tuning": 8e-3, "linear probe": 4e-2, "last stage": 4e-3}
ON_DRAWINGS |= {"layer-wise": 8e-3, "from scratch": 2e-3}
NEAR = "near to what the weights have"
STUDY = Study(
    "How much of a pretrained network should we train?",
    make_regimes("definitions", TEXTS, (125, 500, 2000), f"{NEAR} read", LEARNING_RATES)
    | make_regimes("drawings", DRAWINGS, (125, 500), "far from the photographs", ON_DRAWINGS)
    | make_regimes("photographs", PHOTOGRAPHS, tuple(EPOCHS), f"{NEAR} seen", ON_PHOTOGRAPHS),
    search_seeds=(100,),
)
