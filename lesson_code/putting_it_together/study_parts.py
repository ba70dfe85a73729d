"""What each step of lesson 12's full recipe is worth: the leave-one-out ablation that it reads.

The full recipe is trained, then the recipe without each of its steps, then the recipe with one
addition. All training photographs are used. The variants of one seed are trained in turns, each
seed in another order, so a slow minute of the machine does not always hit the same variant.

One process with as many threads as PyTorch takes. Each training is kept in
``build/recipe_parts.jsonl`` as soon as it has ended, so an interrupted run goes on where it
stopped. About 8 minutes on two cores, on which nothing else should run:

    .venv/bin/python lesson_code/putting_it_together/study_parts.py --save
"""

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import torch.nn.functional as F
import typer
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torchvision.transforms import v2

from course_tools.study.jobs import run_missing
from course_tools.study.keep import keep
from course_utils.config import Config, load_config
from course_utils.data.image_data import ImageData
from course_utils.data.load import load_data
from course_utils.training.fit import fit
from course_utils.training.schedules import warmup_cosine

DONE = Path("build") / "recipe_parts.jsonl"
FULL = "full recipe"
EPOCHS = 2  # of the baseline
MOST_TRAIN, MOST_VAL = 35_000, 15_000  # of fewer photographs, seven and three tenths
NUM_CLASSES = 10
WARM_UP_IMAGES = 640  # of a first training, which is not kept: it pays for imports


def warm_up(optimizer: Optimizer, total_steps: int) -> LRScheduler:
    return warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 10)


def make_steps(config: Config) -> dict[str, dict]:
    """The steps of lesson 12, each as arguments of `fit`; a test compares them with the lesson."""
    return {
        "half the epochs": {"trainer": {"max_epochs": math.ceil(EPOCHS / 2)}},
        "bf16": {"trainer": {"precision": "bf16-mixed"}},
        "pretrained start": {"pretrained": True},
        "warm-up and cosine": {"make_schedule": warm_up},
        "higher learning rate": {"make_optimizer": partial(AdamW, lr=2 * config.peak_lr)},
    }


def make_additions(config: Config) -> dict[str, dict]:
    """Techniques that the full recipe leaves out; an argument replaces that of the recipe."""
    sgd = partial(SGD, lr=0.05, momentum=0.9, nesterov=True)
    return {
        "label smoothing": {"loss": partial(F.cross_entropy, label_smoothing=0.1)},
        "mixup": {"batch_transform": v2.MixUp(alpha=0.2, num_classes=NUM_CLASSES)},
        "SGD in place of AdamW": {"make_optimizer": sgd},
        "batches of 128 in place of 64": {
            "make_loader": partial(ImageData.train_loader, batch_size=2 * config.batch_size)
        },
    }


def merge(steps: dict[str, dict]) -> dict:
    """The arguments of all steps; several steps may set arguments of the trainer."""
    merged: dict = {"trainer": {}}
    for arguments in steps.values():
        trainer = merged["trainer"] | arguments.get("trainer", {})
        merged |= arguments | {"trainer": trainer}
    return merged


def make_variants(config: Config) -> dict[str, dict]:
    """Arguments of `fit` of the full recipe, without each step, and with each addition."""
    steps = make_steps(config)
    variants = {FULL: merge(steps)}
    for left_out in steps:
        rest = {name: step for name, step in steps.items() if name != left_out}
        variants[f"without {left_out}"] = merge(rest)
    for name, arguments in make_additions(config).items():
        variants[f"with {name}"] = merge(steps) | arguments
    return variants


def list_jobs(names: list[str], seeds: int, num_train: int) -> Iterator[dict]:
    """Every variant at every seed; each seed begins with another variant."""
    for seed in range(seeds):
        start = seed % len(names)
        for variant in names[start:] + names[:start]:
            yield {"variant": variant, "seed": seed, "num_train": num_train}


def train(job: dict, config: Config, data: ImageData) -> dict:
    """The job with its seconds, validation included, and its accuracy."""
    run = fit(config, data, seed=job["seed"], save=False, **make_variants(config)[job["variant"]])
    return job | {
        "seconds": round(run.epoch_ends_s[-1], 3),
        "images_per_s": run.examples_per_s and round(run.examples_per_s, 1),
        "accuracy": round(run.metrics["val_accuracy"], 5),
    }


def main(
    seeds: Annotated[int, typer.Option(help="of every variant", min=2)] = 8,
    first: Annotated[int, typer.Option(help="images; 0: all. For a trial", min=0)] = 0,
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Train every variant at every seed, and keep the rows with their provenance."""
    config = load_config("quick", dataset="photos", first_seed=0)
    config = config.replace(num_train=MOST_TRAIN, num_val=MOST_VAL, epochs=EPOCHS, progress=False)
    data = load_data(config)
    data = data.take_train(first) if first else data
    variants = make_variants(config)
    fit(config, data.take_train(WARM_UP_IMAGES), save=False, **variants[FULL])
    jobs = list_jobs(list(variants), seeds, len(data.train))
    rows = run_missing(jobs, partial(train, config=config, data=data), DONE)
    if save:
        keep(
            Path(__file__).with_suffix(".json"),
            "lesson_code/putting_it_together/study_parts.py --save",
            dataset=config.dataset,
            num_train=len(data.train),
            num_val=len(data.val),
            model=config.model,
            steps=list(make_steps(config)),
            additions=list(make_additions(config)),
            rows=rows,
        )


if __name__ == "__main__":
    typer.run(main)
