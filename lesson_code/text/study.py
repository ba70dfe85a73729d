"""What lesson 21 reads: the same techniques on texts and on photographs, ten paired seeds each."""

from functools import partial

import torch.nn.functional as F
from lightning.pytorch.callbacks import EMAWeightAveraging
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.optim import SGD, AdamW

from course_tools.study.declare import Regime, Study
from course_utils.config import load_config
from course_utils.models.freeze import freeze_before
from course_utils.training.schedules import warmup_cosine

CONFIG = load_config("quick", dataset="photos", first_seed=0).replace(
    num_train=1000, num_val=2000, epochs=5, batch_size=32, progress=False
)
TEXTS = CONFIG.replace(dataset="glosses", model="text_small")
EVERY_LINEAR = ["q", "k", "v", "o", "up", "down"]  # of each block
EVERY_CONV = r"layer\d\.0\.conv\d?"  # but the stem's, as in lesson 03
HALVINGS = (0.5, 1.0, 2.0)  # of the learning rate that is given: the trials of each variant


def add_lora(model: nn.Module, layers: list[str] | str) -> nn.Module:
    """Adapters of rank 4 in these layers and a trained head; everything else is frozen."""
    settings = {"r": 4, "lora_alpha": 8, "target_modules": layers, "modules_to_save": ["fc"]}
    return get_peft_model(freeze_before(model, "fc"), LoraConfig(**settings))


def warm_up_tenth(optimizer, total_steps: int):
    return warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 10)


def tune(lr: float, epochs: int, optimizer=AdamW, trainer=None, **options) -> dict[str, dict]:
    """Arguments of `fit` at three learning rates; validated once, at the end."""
    changed = {"pretrained": True, "make_schedule": warm_up_tenth} | options
    limits = {"check_val_every_n_epoch": epochs} | (trainer or {})
    return {
        f"lr {factor * lr:g}": {
            "make_optimizer": partial(optimizer, lr=factor * lr),
            "trainer": limits,
        }
        | changed
        for factor in HALVINGS
    }


def list_variants(epochs: int, lora_layers: list[str] | str, lr: dict[str, float]) -> dict:
    """Full fine-tuning, and what differs from it in one argument; ``lr`` by optimizer or part."""
    averaged = {"callbacks": EMAWeightAveraging(decay=0.98)}
    return {
        "full fine-tuning": tune(lr["AdamW"], epochs),
        "constant learning rate": tune(lr["AdamW"], epochs, make_schedule=None),
        "constant, averaged weights": tune(
            lr["AdamW"], epochs, make_schedule=None, trainer=averaged
        ),
        "label smoothing": tune(
            lr["AdamW"], epochs, loss=partial(F.cross_entropy, label_smoothing=0.1)
        ),
        "clipping": tune(lr["AdamW"], epochs, trainer={"gradient_clip_val": 1.0}),
        "SGD": tune(lr["SGD"], epochs, partial(SGD, momentum=0.9, nesterov=True)),
        "linear probe": tune(
            lr["probe"], epochs, model_transform=partial(freeze_before, first_trained="fc")
        ),
        "LoRA": tune(lr["LoRA"], epochs, model_transform=partial(add_lora, layers=lora_layers)),
        "from scratch": tune(lr["scratch"], epochs, pretrained=False),
    }


STUDY = Study(
    "Do the techniques of this course work for text, too?",
    {
        "photographs": Regime(
            "1,000 photographs for 5 epochs and a pretrained network: few labels, as in most "
            "fine-tuning today.",
            CONFIG,
            list_variants(
                CONFIG.epochs,
                EVERY_CONV,
                {"AdamW": 1e-3, "SGD": 0.02, "probe": 1e-2, "LoRA": 4e-3} | {"scratch": 2e-3},
            ),
        ),
        "texts": Regime(
            "1,000 definitions on the same terms: as many labels, epochs and batches, a "
            "pretrained network.",
            TEXTS,
            list_variants(
                TEXTS.epochs,
                EVERY_LINEAR,
                {"AdamW": 1e-3, "SGD": 0.01, "probe": 1e-2, "LoRA": 4e-3} | {"scratch": 2e-3},
            ),
        ),
    },
    search_seeds=(100,),
)
