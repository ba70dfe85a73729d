"""Effective batches, learning rates and micro-batches for lesson 08, on photographs.

- ``map``: 1, 4 and 16 accumulation steps of 16 images at several learning rates, with SGD and
  with AdamW. All trainings see the same images in the same order;
- ``pair``: 16 accumulation steps against none, each at the best learning rate of the map, over
  five other seeds;
- ``micro-batch``: an effective batch of 64 images in micro-batches of several sizes; and once
  with BatchNorm that keeps its pretrained statistics, for which the size makes no difference.

One process with one thread. Each training is kept in ``build/accumulation_map.jsonl`` as soon as
it has ended, so an interrupted search goes on where it stopped. About half an hour on a slow core:

    .venv/bin/python lesson_code/gradient_accumulation/study_map.py --save
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer
from timm.layers import freeze_batch_norm_2d
from torch.optim import SGD, AdamW
from torch.utils.data import DataLoader

from course_tools.study.jobs import run_missing
from course_tools.study.keep import keep
from course_utils.config import Config, load_config
from course_utils.data.image_data import ImageData
from course_utils.data.load import load_data
from course_utils.training.fit import fit

DONE = Path("build") / "accumulation_map.jsonl"
POOL = 2000  # photographs; the trainings take the first of these
TRAIN = 512  # a multiple of all effective batches
EPOCHS = 6
MICRO_BATCH = 16  # of the map
EFFECTIVE_BATCH = 64  # of the part with several micro-batches
MICRO_LR = 5e-4  # of AdamW there
OPTIMIZERS = {"SGD": SGD, "AdamW": AdamW}
LEARNING_RATES = {  # for each number of accumulation steps
    "SGD": {
        1: (0.003125, 0.00625, 0.0125, 0.025, 0.05, 0.1),
        4: (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4),
        16: (0.05, 0.1, 0.2, 0.4, 0.8, 1.6),
    },
    "AdamW": {
        1: (0.0001, 0.0002, 0.0004, 0.0008, 0.0016),
        4: (0.0002, 0.0004, 0.0008, 0.0016, 0.0032),
        16: (0.0004, 0.0008, 0.0016, 0.0032, 0.0064),
    },
}
MICRO_BATCHES = {  # sizes to seeds, with BatchNorm as it is and frozen; small sizes take long
    "trained": {2: (100, 101), 4: (100,), 8: (100,), 16: (100,), 64: (100, 101)},
    "frozen": {64: (100,)},
}
SEEDS = (100, 101, 102)
PAIRS = {  # accumulation steps and learning rate, the best on the map
    "SGD": ((1, 0.025), (16, 0.2)),
    "AdamW": ((1, 0.0004), (16, 0.0016)),
}
PAIR_SEEDS = tuple(range(200, 205))


def list_map() -> Iterator[dict]:
    for seed in SEEDS:
        for optimizer, by_steps in LEARNING_RATES.items():
            for accumulated, learning_rates in by_steps.items():
                for lr in learning_rates:
                    about = {"part": "map", "optimizer": optimizer, "accumulated": accumulated}
                    yield about | {"lr": lr, "seed": seed}


def list_pairs() -> Iterator[dict]:
    for seed in PAIR_SEEDS:
        for optimizer, pair in PAIRS.items():
            for accumulated, lr in pair:
                about = {"part": "pair", "optimizer": optimizer, "accumulated": accumulated}
                yield about | {"lr": lr, "seed": seed}


def list_micro_batches() -> Iterator[dict]:
    for batch_norm, by_size in MICRO_BATCHES.items():
        for size, seeds in by_size.items():
            for seed in seeds:
                about = {"part": "micro-batch", "batch_norm": batch_norm, "micro_batch": size}
                yield about | {"seed": seed}


def make_loader(data: ImageData, seed: int, size: int) -> DataLoader:
    """Batches of ``size`` images."""
    return data.train_loader(seed, batch_size=size)


def plan(job: dict) -> dict:
    """The arguments of `fit` for one job."""
    options: dict = {"seed": job["seed"], "pretrained": True}
    if "optimizer" in job:
        size, accumulated = MICRO_BATCH, job["accumulated"]
        options["make_optimizer"] = partial(OPTIMIZERS[job["optimizer"]], lr=job["lr"])
    else:
        size = job["micro_batch"]
        accumulated = EFFECTIVE_BATCH // size
        options["make_optimizer"] = partial(AdamW, lr=MICRO_LR)
        if job["batch_norm"] == "frozen":
            options["model_transform"] = freeze_batch_norm_2d
    options["make_loader"] = partial(make_loader, size=size)
    trainer = {"accumulate_grad_batches": accumulated, "check_val_every_n_epoch": EPOCHS}
    return options | {"trainer": trainer}


def train(job: dict, config: Config, data: ImageData) -> dict:
    """The job with what it measured."""
    run = fit(config, data, save=False, **plan(job))
    measured = {"accuracy": round(run.metrics["val_accuracy"], 4), "time_s": round(run.time_s, 1)}
    return job | measured


def main(
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Train everything, and keep it with its provenance."""
    torch.set_num_threads(1)
    config = load_config("quick", dataset="photos")
    config = config.replace(num_train=POOL, epochs=EPOCHS, progress=False)
    data = load_data(config).take_train(TRAIN)
    jobs = [*list_map(), *list_pairs(), *list_micro_batches()]
    rows = run_missing(jobs, partial(train, config=config, data=data), DONE)
    if save:
        about = {"train": TRAIN, "epochs": EPOCHS, "micro_batch": MICRO_BATCH}
        more = {"effective_batch": EFFECTIVE_BATCH, "micro_batch_lr": MICRO_LR}
        keep(
            Path(__file__).with_suffix(".json"),
            "lesson_code/gradient_accumulation/study_map.py --save",
            settings=about | more,
            rows=rows,
        )


if __name__ == "__main__":
    typer.run(main)
