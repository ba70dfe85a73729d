"""What lesson 12 reads: a recipe of fine-tuning, and the recipe without each of its parts.

Every variant has four learning rates of its own, around what earlier studies found: a constant
learning rate has to be lower than the peak of a cosine. The fourth one was added when the search
had chosen several at an edge of three, before any seed that is reported was trained. The baseline
is plain fine-tuning, and has as many trials as the rest. The photographs are trained in bfloat16
mixed precision, which takes less time there, and the definitions in float32, because bfloat16
takes longer there. Lesson 07 found equal accuracies, so precision is no part of the recipe here.
"""

from collections.abc import Mapping
from functools import partial

import torch.nn.functional as F
from lightning.pytorch.callbacks import WeightAveraging
from torch import Tensor
from torch.optim import AdamW

from course_tools.study.declare import Regime, Study
from course_utils.config import load_config
from course_utils.data.image_data import ImageData
from course_utils.training.parameter_groups import make_grouped
from course_utils.training.schedules import warmup_cosine

PHOTOGRAPHS = load_config("quick", dataset="photos", first_seed=0).replace(
    model="convnet_small", num_train=1000, num_val=2000, epochs=4, batch_size=32, progress=False
)
DEFINITIONS = PHOTOGRAPHS.replace(dataset="glosses", model="text_small", num_train=500)
WEIGHT_DECAY = 0.05  # of the recipe; AdamW's own is 0.01
FULL, PLAIN = "full recipe", "plain fine-tuning"


def mix_slowly(average: Tensor, weights: Tensor, num_averaged: Tensor | int) -> Tensor:
    """One step of an average whose decay rises as in timm, 1 - step^(-2/3), up to 0.9999."""
    share = max(1e-4, (1 + int(num_averaged)) ** (-2 / 3))
    return average + share * (weights - average)


class RisingEMA(WeightAveraging):
    """An average of the weights and of BatchNorm's statistics, which is validated at the end."""

    def __init__(self) -> None:
        super().__init__(avg_fn=mix_slowly)


def warm_up_tenth(optimizer, total_steps: int):
    return warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 10)


# Arguments of `fit`, by part; those in "optimizer" become one `make_optimizer`.
PARTS: dict[str, dict] = {
    "pretrained start": {"pretrained": True},
    "flips and shifts": {"make_loader": ImageData.train_loader},
    "warm-up and cosine": {"make_schedule": warm_up_tenth},
    "label smoothing": {"loss": partial(F.cross_entropy, label_smoothing=0.1)},
    "clipping": {"trainer": {"gradient_clip_val": 1.0}},
    "decay groups": {"optimizer": {"decay_norms": False}},
    "weight averaging": {"trainer": {"callbacks": RisingEMA()}},
}
INSTEAD = {"flips and shifts": {"make_loader": ImageData.plain_loader}}  # the course's default
SCHEDULE, AVERAGING = "warm-up and cosine", "weight averaging"


def merge(base: Mapping, parts: Mapping[str, dict]) -> dict:
    """The arguments of all parts together."""
    merged: dict = {"trainer": dict(base), "optimizer": {}}
    for arguments in parts.values():
        for name, value in arguments.items():
            merged[name] = merged.get(name, {}) | value if isinstance(value, dict) else value
    return merged


def tune(lrs: tuple[float, ...], arguments: dict, weight_decay: float) -> dict[str, dict]:
    """Arguments of `fit` at each learning rate."""
    options = dict(arguments)
    groups = {"weight_decay": weight_decay} | options.pop("optimizer")
    return {
        f"lr {lr:g}": options | {"make_optimizer": partial(make_grouped, AdamW, lr=lr, **groups)}
        for lr in lrs
    }


def list_variants(names: list[str], base: dict, lrs: dict[str, tuple[float, ...]]) -> dict:
    """The recipe, the recipe without each part and without two that may do the same, the baseline.

    Args:
        names: of its parts.
        base: arguments of the trainer that all variants have.
        lrs: learning rates of ``cosine``, ``constant and averaged``, ``constant``, ``scratch``.
    """

    def leave_out(lrs: tuple[float, ...], *left_out: str, decay: float = WEIGHT_DECAY) -> dict:
        kept = {name: PARTS[name] for name in names if name not in left_out}
        kept |= {name: INSTEAD[name] for name in left_out if name in INSTEAD}
        return tune(lrs, merge(base, kept), decay)

    own = {SCHEDULE: lrs["constant and averaged"], "pretrained start": lrs["scratch"]}
    variants = {FULL: leave_out(lrs["cosine"])}
    for name in names:
        variants[f"without {name}"] = leave_out(own.get(name, lrs["cosine"]), name)
    both = leave_out(lrs["constant"], SCHEDULE, AVERAGING)
    variants[f"without {SCHEDULE}, {AVERAGING}"] = both
    others = [name for name in names if name != "pretrained start"]
    variants[PLAIN] = leave_out(lrs["constant"], *others, decay=0.01)
    return variants


LOW = (0.00025, 0.0005, 0.001, 0.002)
MIDDLE = (0.0005, 0.001, 0.002, 0.004)
HIGH = (0.001, 0.002, 0.004, 0.008)
STUDY = Study(
    "How many of its parts does a recipe of fine-tuning need?",
    {
        "photographs": Regime(
            "1,000 photographs for 4 epochs: a hundred labels for each class, little time and a "
            "network that has seen other photographs, for which recipes of fine-tuning are made.",
            PHOTOGRAPHS,
            list_variants(
                list(PARTS),
                {"check_val_every_n_epoch": PHOTOGRAPHS.epochs, "precision": "bf16-mixed"},
                {
                    "cosine": MIDDLE,
                    "constant and averaged": MIDDLE,
                    "constant": LOW,
                    "scratch": HIGH,
                },
            ),
        ),
        "definitions": Regime(
            "500 definitions for 4 epochs: fine-tuning a transformer, where warm-up, clipping and "
            "no decay for biases and norms have been usual since BERT. Texts are not flipped.",
            DEFINITIONS,
            list_variants(
                [name for name in PARTS if name != "flips and shifts"],
                {"check_val_every_n_epoch": DEFINITIONS.epochs},
                {
                    "cosine": LOW,
                    "constant and averaged": LOW,
                    "constant": LOW,
                    "scratch": HIGH,
                },
            ),
        ),
    },
)
