"""Learning rates and variants for lesson 03: LoRA, and what else trains few parameters.

First, every variant is trained at several learning rates, on 500 photographs and on 500 drawn
shapes, on two seeds that the lesson does not report. Then each variant is trained at its best
learning rate on five other seeds, and what it costs is measured. In two processes with one thread
each. About twenty minutes on two slow cores:

    .venv/bin/python lesson_code/lora/study.py --save

With ``--batch-norm`` it does the same for variants that tell what freezing BatchNorm costs, in
about five minutes:

    .venv/bin/python lesson_code/lora/study.py --batch-norm --save
"""

import multiprocessing
import os
import statistics
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import torch.nn.functional as F
import typer
from peft import LoraConfig, get_peft_model
from timm.layers import FrozenBatchNormAct2d
from timm.utils.model import freeze_batch_norm_2d
from torch import Tensor, nn
from torchvision.ops import FrozenBatchNorm2d

from course_tools.study.keep import keep
from course_utils.config import load_config
from course_utils.data.image_data import ImageData
from course_utils.data.load import load_data
from course_utils.measure.memory import count_parameters
from course_utils.measure.timing import measure_step
from course_utils.models.create import create_model
from course_utils.models.freeze import freeze_before
from course_utils.training.compare import compare

SEARCH_SEEDS = (100, 101)
SEEDS = (0, 1, 2, 3, 4)  # at the best learning rate
PATTERN = r"layer\d\.0\.conv\d?"  # all convolutions but the stem's
ALPHA = 8
POOL = 2000  # the few photographs are the first of these, as in lesson 02
FEW, EPOCHS = 500, 6
ROUNDS = 7  # of the time measurement


def with_lora(model: nn.Module, rank: int, alpha: float = ALPHA, dora: bool = False) -> nn.Module:
    """Adapters in the stages, a trained head, everything else frozen."""
    settings = {"r": rank, "lora_alpha": alpha, "target_modules": PATTERN, "use_dora": dora}
    model = freeze_before(model, "fc")
    return get_peft_model(model, LoraConfig(**settings, modules_to_save=["fc"]))


def train_biases(model: nn.Module) -> nn.Module:
    """BitFit: train the biases, which belong to BatchNorm here, and the head."""
    model = freeze_before(model, "fc")
    for module in model.modules():
        if isinstance(module, FrozenBatchNorm2d | FrozenBatchNormAct2d):
            bias = module.bias  # frozen, it is a buffer
            del module.bias
            module.bias = nn.Parameter(bias)
    return model


class Bottleneck(nn.Module):
    """A stage followed by x + up(relu(down(x))), with 1 × 1 convolutions; up begins at zero."""

    def __init__(self, stage: nn.Module, channels: int, width: int):
        super().__init__()
        self.stage = stage
        self.down = nn.Conv2d(channels, width, kernel_size=1)
        self.up = nn.Conv2d(width, channels, kernel_size=1)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stage(x)
        return x + self.up(F.relu(self.down(x)))


def add_bottlenecks(model: nn.Module, width: int) -> nn.Module:
    """A bottleneck adapter after each of the four stages, and a trained head."""
    model = freeze_before(model, "fc")
    for name, channels in {"layer1": 64, "layer2": 128, "layer3": 256, "layer4": 256}.items():
        model.set_submodule(name, Bottleneck(model.get_submodule(name), channels, width))
    return model


def train_same_layers(model: nn.Module) -> nn.Module:
    """Train in full what gets adapters: the stages and the head, with frozen BatchNorm."""
    return freeze_batch_norm_2d(freeze_before(model, "layer1"))


def list_norms(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, nn.BatchNorm2d)]


def train_norms(model: nn.Module) -> nn.Module:
    """Train every BatchNorm, its running statistics too, and the head."""
    model.requires_grad_(False)
    for name in ("fc", *list_norms(model)):
        model.get_submodule(name).requires_grad_(True)
    return model


def with_lora_and_norms(model: nn.Module, rank: int) -> nn.Module:
    """Adapters in the stages, and every BatchNorm and the head trained as a whole."""
    settings = {"r": rank, "lora_alpha": ALPHA, "target_modules": PATTERN}
    whole = ["fc", *list_norms(model)]
    return get_peft_model(model, LoraConfig(**settings, modules_to_save=whole))


CHANGES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "full fine-tuning": partial(freeze_before, first_trained="stem"),
    "linear probe": partial(freeze_before, first_trained="fc"),
    "LoRA, rank 1": partial(with_lora, rank=1),
    "LoRA, rank 4": partial(with_lora, rank=4),
    "LoRA, rank 16": partial(with_lora, rank=16),
    "LoRA, rank 16, α not divided": partial(with_lora, rank=16, alpha=16 * ALPHA),
    "DoRA, rank 4": partial(with_lora, rank=4, dora=True),
    "BitFit": train_biases,
    "bottleneck adapters": partial(add_bottlenecks, width=20),
    "same layers, BatchNorm frozen": train_same_layers,
    "BatchNorm and head": train_norms,
    "LoRA, rank 4, and BatchNorm": partial(with_lora_and_norms, rank=4),
}
RANKS = [f"LoRA, rank {rank}" for rank in (1, 4, 16)]
ON_PHOTOS = {
    "full fine-tuning": (2.5e-4, 5e-4, 1e-3, 2e-3),
    "linear probe": (2e-3, 5e-3, 1e-2, 2e-2),
    **dict.fromkeys(RANKS, (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)),
    "LoRA, rank 16, α not divided": (6.25e-5, 1.25e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3),
    "DoRA, rank 4": (5e-4, 1e-3, 2e-3, 4e-3),
    "BitFit": (2e-3, 5e-3, 1e-2, 2e-2),
    "bottleneck adapters": (1e-3, 2e-3, 4e-3, 8e-3),
}
ON_DRAWINGS = {
    "full fine-tuning": (1e-3, 2e-3, 4e-3, 8e-3),
    "linear probe": (1e-2, 2e-2, 4e-2, 8e-2),
    "LoRA, rank 1": (4e-3, 8e-3, 1.6e-2, 3.2e-2),
    "LoRA, rank 4": (2e-3, 4e-3, 8e-3, 1.6e-2),
    "LoRA, rank 16": (2e-3, 4e-3, 8e-3, 1.6e-2),
    "DoRA, rank 4": (2e-3, 4e-3, 8e-3, 1.6e-2),
    "BitFit": (1e-2, 2e-2, 4e-2, 8e-2),
    "bottleneck adapters": (4e-3, 8e-3, 1.6e-2, 3.2e-2),
}
SEARCHED = {"photos": ON_PHOTOS, "shapes": ON_DRAWINGS}
BATCH_NORM = {
    "photos": {
        "same layers, BatchNorm frozen": (2.5e-4, 5e-4, 1e-3, 2e-3),
        "BatchNorm and head": (1e-3, 2e-3, 5e-3, 1e-2),
        "LoRA, rank 4, and BatchNorm": (1e-3, 2e-3, 4e-3, 8e-3),
    },
    "shapes": {
        "same layers, BatchNorm frozen": (5e-4, 1e-3, 2e-3, 4e-3),
        "BatchNorm and head": (5e-3, 1e-2, 2e-2, 4e-2),
        "LoRA, rank 4, and BatchNorm": (2e-3, 4e-3, 8e-3, 1.6e-2),
    },
}


def plan(variant: str, lr: float) -> dict:
    """Arguments of `fit` for one variant at one learning rate, validated at the end only."""
    return {
        "pretrained": True,
        "model_transform": CHANGES[variant],
        "make_optimizer": partial(torch.optim.AdamW, lr=lr),
        "trainer": {"max_epochs": EPOCHS, "check_val_every_n_epoch": EPOCHS},
    }


def train_all(
    dataset: str, cells: list[tuple[str, float]], seeds: tuple[int, ...], executor: Executor
) -> list[dict]:
    """One row per variant and learning rate, with one accuracy per seed."""
    photos = load_config("quick", dataset="photos")
    config = photos.replace(dataset=dataset, num_train=POOL, progress=False)
    data = load_data(config).take_train(FEW)
    arms = {f"{variant} {lr:g}": plan(variant, lr) for variant, lr in cells}
    found = compare(config, data, arms, seeds=seeds, name=dataset, executor=executor)
    rows = []
    for variant, lr in cells:
        values = found.values(f"{variant} {lr:g}")
        rows.append(
            {
                "dataset": dataset,
                "train": FEW,
                "epochs": EPOCHS,
                "variant": variant,
                "lr": lr,
                "val_accuracy": [round(value, 4) for value in values.tolist()],
            }
        )
    table = pd.DataFrame(rows).drop(columns=["train", "epochs"])
    table["mean (%)"] = [100 * statistics.mean(row["val_accuracy"]) for row in rows]
    print(table.to_string(index=False), flush=True)
    return rows


def choose_best(rows: list[dict]) -> list[tuple[str, float]]:
    """Each variant with the learning rate of its highest mean accuracy."""
    best: dict[str, dict] = {}
    for row in rows:
        known = best.setdefault(row["variant"], row)
        if statistics.mean(row["val_accuracy"]) > statistics.mean(known["val_accuracy"]):
            best[row["variant"]] = row
    return [(variant, row["lr"]) for variant, row in best.items()]


def measure_costs(data: ImageData, variants: Iterable[str]) -> list[dict]:
    """Parameters, bytes saved for the backward pass, and time of a step, for each variant.

    The time is a ratio to full fine-tuning's in the same round, and the median over the rounds.
    """
    images, targets = next(iter(data.train_loader(seed=0)))
    models = {
        variant: CHANGES[variant](create_model("convnet_small", data.num_classes, pretrained=True))
        for variant in dict.fromkeys(("full fine-tuning", *variants))
    }
    rounds = [
        {variant: measure_step(model, images, targets) for variant, model in models.items()}
        for _ in range(ROUNDS)
    ]
    rows = []
    for variant, model in models.items():
        ratios = [r[variant].time_ms / r["full fine-tuning"].time_ms for r in rounds]
        rows.append(
            {
                "variant": variant,
                "trained": count_parameters(model, trainable=True),
                "saved_bytes": rounds[0][variant].saved_bytes,
                "time_ratio": round(statistics.median(ratios), 2),
                "time_ratios": [round(ratio, 2) for ratio in ratios],
            }
        )
    return rows


def main(
    batch_norm: Annotated[bool, typer.Option(help="the variants about BatchNorm instead")] = False,
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Print accuracies at every learning rate, those at the best one, and what variants cost."""
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes below
    plans = BATCH_NORM if batch_norm else SEARCHED
    searched, reported = [], []
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        for dataset, learning_rates in plans.items():
            cells = [(variant, lr) for variant, rates in learning_rates.items() for lr in rates]
            found = train_all(dataset, cells, SEARCH_SEEDS, pool)
            searched += found
            reported += train_all(dataset, choose_best(found), SEEDS, pool)
    torch.set_num_threads(os.cpu_count() or 1)
    costs = measure_costs(load_data(load_config("quick", dataset="photos")), plans["photos"])
    print(pd.DataFrame(costs).to_string(index=False))
    if save:
        keep(
            Path(__file__).with_name(f"study{'_batch_norm' * batch_norm}.json"),
            "lesson_code/lora/study.py --save" + " --batch-norm" * batch_norm,
            search_seeds=list(SEARCH_SEEDS),
            rows=searched,
            seeds=list(SEEDS),
            variants=reported,
            costs=costs,
        )


if __name__ == "__main__":
    typer.run(main)
