"""What lesson 03 reads: LoRA of several ranks beside a probe and full fine-tuning.

On definitions, where LoRA is used: a transformer, whose linear layers get the adapters. And on
photographs and drawings, where a convolutional network and its BatchNorm do.
"""

from functools import partial

from peft import LoraConfig, get_peft_model
from timm.utils.model import freeze_batch_norm_2d
from torch import nn
from torch.optim import AdamW

from course_tools.study.declare import Regime, Study
from course_utils.config import load_config
from course_utils.models.freeze import freeze_before
from course_utils.training.schedules import warmup_cosine

PHOTOGRAPHS = load_config("quick", dataset="photos", first_seed=0).replace(
    num_train=500, num_val=2000, epochs=8, batch_size=32, progress=False
)
DRAWINGS = PHOTOGRAPHS.replace(dataset="shapes")
TEXTS = PHOTOGRAPHS.replace(dataset="glosses", model="text_small")
RANKS = (1, 2, 4, 8, 16, 32)
ALPHA = 8  # the same for all ranks
QUERIES_AND_VALUES = ["q", "v"]  # of each block
EVERY_LINEAR = ["q", "k", "v", "o", "up", "down"]
EVERY_CONV = r"layer\d\.0\.conv\d?"  # but the stem's
HALVINGS = (0.5, 1.0, 2.0)  # of the learning rate that is given: the trials of each variant


def add_lora(
    model: nn.Module, layers: list[str] | str, rank: int, dora: bool = False, norms: bool = False
) -> nn.Module:
    """Adapters in these layers and a trained head; every BatchNorm too, or all of it frozen."""
    settings = {"r": rank, "lora_alpha": ALPHA, "target_modules": layers, "use_dora": dora}
    whole = ["fc", *list_norms(model)] if norms else ["fc"]
    if not norms:
        model = freeze_before(model, "fc")
    return get_peft_model(model, LoraConfig(**settings, modules_to_save=whole))


def list_norms(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, nn.BatchNorm2d)]


def train_biases(model: nn.Module) -> nn.Module:
    """BitFit: the biases and the head."""
    model = freeze_before(model, "fc")
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.requires_grad_(True)
    return model


def train_norms(model: nn.Module) -> nn.Module:
    """Every BatchNorm, its running statistics too, and the head."""
    names = list_norms(model)
    model.requires_grad_(False)
    for name in ("fc", *names):
        model.get_submodule(name).requires_grad_(True)
    return model


def train_same_layers(model: nn.Module) -> nn.Module:
    """In full what gets adapters, the stages and the head; BatchNorm is frozen."""
    return freeze_batch_norm_2d(freeze_before(model, "layer1"))


def warm_up_tenth(optimizer, total_steps: int):
    return warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 10)


def tune(lr: float, change=None) -> dict[str, dict]:
    """Arguments of `fit` at three learning rates; validated once, at the end."""
    return {
        f"lr {factor * lr:g}": {
            "pretrained": True,
            "model_transform": change,
            "make_optimizer": partial(AdamW, lr=factor * lr),
            "make_schedule": warm_up_tenth,
            "trainer": {"check_val_every_n_epoch": PHOTOGRAPHS.epochs},
        }
        for factor in HALVINGS
    }


def adapt(layers: list[str] | str, ranks: tuple[int, ...], lr: float, where: str = "") -> dict:
    """LoRA of each rank in these layers."""
    return {
        f"LoRA{where}, rank {rank}": tune(lr, partial(add_lora, layers=layers, rank=rank))
        for rank in ranks
    }


probe = partial(freeze_before, first_trained="fc")
STUDY = Study(
    "Can we fine-tune with a few percent of the parameters and lose nothing?",
    {
        "definitions": Regime(
            "500 definitions for 8 epochs: a pretrained transformer and few labels, for which "
            "LoRA was made.",
            TEXTS,
            {
                "full fine-tuning": tune(5e-4),
                "linear probe": tune(1e-2, probe),
                **adapt(QUERIES_AND_VALUES, RANKS, 8e-3, " on q and v"),
                **adapt(EVERY_LINEAR, RANKS, 8e-3, " on all"),
                "DoRA on all, rank 4": tune(
                    8e-3, partial(add_lora, layers=EVERY_LINEAR, rank=4, dora=True)
                ),
                "BitFit": tune(1e-2, train_biases),
            },
        ),
        "photographs": Regime(
            "500 photographs for 8 epochs: the same terms, and a convolutional network.",
            PHOTOGRAPHS,
            {
                "full fine-tuning": tune(1e-3),
                "linear probe": tune(1e-2, probe),
                **adapt(EVERY_CONV, (1, 4, 16), 4e-3),
            },
        ),
        "drawings": Regime(
            "500 drawings for 8 epochs: images that are far from those of the pretraining, so that "
            "the statistics of BatchNorm no longer fit.",
            DRAWINGS,
            {
                "full fine-tuning": tune(4e-3),
                "linear probe": tune(2e-2, probe),
                **adapt(EVERY_CONV, (4, 16), 8e-3),
                "LoRA and BatchNorm, rank 4": tune(
                    8e-3, partial(add_lora, layers=EVERY_CONV, rank=4, norms=True)
                ),
                "BatchNorm and head": tune(2e-2, train_norms),
                "same layers in full": tune(2e-3, train_same_layers),
            },
        ),
    },
    search_seeds=(100,),
)
