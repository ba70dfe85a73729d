"""What lesson 25 reads: which of twelve settings wins, and two variants at eight seeds.

1,000 photographs, the small pretrained network, AdamW, batches of 64.

- *trial*: twelve random settings of learning rate, weight decay and label smoothing, each with a
  cosine to zero over six epochs, at the same five seeds.
- *pair*: a constant learning rate over 16 epochs, and a cosine to zero over 4 and 16 epochs, at
  eight seeds.

A trial keeps, for each epoch, which validation photographs were right, and a pair keeps this of its
last epoch: one bit for each photograph, packed and written as hexadecimal digits. So the lesson can
choose validation photographs among them after the training, as often as it likes.

Each training is kept in ``build/choosing.jsonl`` when it has ended. A second call goes on from
there. Two processes with one thread each take about ten minutes on two cores on which nothing else
runs:

    .venv/bin/python lesson_code/choose_and_judge/study.py --save
"""

import itertools
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated

import lightning as L
import numpy as np
import torch.nn.functional as F
import typer
from torch.optim import AdamW

from course_tools.study.jobs import run_missing
from course_tools.study.keep import keep, name_data
from course_utils.config import Config, load_config
from course_utils.data.image_data import ImageData
from course_utils.data.load import load_data
from course_utils.measure.provenance import read_commit
from course_utils.training.fit import fit
from course_utils.training.schedules import warmup_cosine

DONE = Path("build") / "choosing.jsonl"
LR = 0.002  # of the cosine, chosen in lesson 13 at seed 100, for averaged weights
LOWER_LR = 0.0005  # the best there for the last weights of a constant learning rate
PAIRS = {"constant, lower": (16,), "cosine": (4, 16)}  # epochs
PAIR_SEEDS = range(8)
TRIALS = 12
TRIAL_EPOCHS = 6
SPACE_SEED = 100  # of the random settings
SPACE = {"lr": (0.0003, 0.01), "weight_decay": (0.001, 1.0)}  # log-uniform
SMOOTHING = (0.0, 0.3)  # uniform
SEEDS = range(5)


class KeepHits(L.Callback):
    """Which validation images are classified right after each epoch."""

    def __init__(self) -> None:
        self.hits: list[np.ndarray] = []  # (epochs, N)

    def on_validation_epoch_start(self, trainer, pl_module) -> None:
        self.parts: list[np.ndarray] = []

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, *others) -> None:
        images, targets = batch
        right = pl_module(images).argmax(dim=1) == targets
        self.parts.append(right.cpu().numpy())

    def on_validation_epoch_end(self, trainer, pl_module) -> None:
        self.hits.append(np.concatenate(self.parts))


def draw_settings() -> list[dict[str, float]]:
    """Twelve settings from the space, to three digits."""
    rng = np.random.default_rng(SPACE_SEED)
    settings = []
    for _ in range(TRIALS):
        setting = {name: np.exp(rng.uniform(*np.log(edges))) for name, edges in SPACE.items()}
        setting["smoothing"] = rng.uniform(*SMOOTHING)
        settings.append({name: float(f"{value:.3g}") for name, value in setting.items()})
    return settings


def list_jobs() -> Iterator[dict]:
    for seed, variant in itertools.product(PAIR_SEEDS, PAIRS):
        for epochs in PAIRS[variant]:
            yield {"kind": "pair", "variant": variant, "epochs": epochs, "seed": seed}
    for seed, (number, setting) in itertools.product(SEEDS, enumerate(draw_settings())):
        yield {"kind": "trial", "setting": number, "seed": seed, "epochs": TRIAL_EPOCHS} | setting


def train(job: dict, config: Config, data: ImageData) -> dict:
    """The job with its accuracy at the end, and the hits of each epoch or of the last one."""
    is_constant = job.get("variant") == "constant, lower"
    lr = job.get("lr", LOWER_LR if is_constant else LR)
    run = fit(
        config,
        data,
        seed=job["seed"],
        pretrained=True,
        loss=partial(F.cross_entropy, label_smoothing=job.get("smoothing", 0.0)),
        make_optimizer=partial(AdamW, lr=lr, weight_decay=job.get("weight_decay", 0.01)),
        make_schedule=None if is_constant else warmup_cosine,
        trainer={"max_epochs": job["epochs"], "callbacks": KeepHits()},
        save=False,
    )
    hits = run.callback(KeepHits).hits[-1 if job["kind"] == "pair" else 0 :]
    row = job | {"accuracy": round(run.metrics["val_accuracy"], 4), "commit": read_commit()}
    return row | {"hits": [np.packbits(epoch).tobytes().hex() for epoch in hits]}


def main(
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Run every training; print, and keep, what was right."""
    config = load_config("quick", dataset="photos").replace(progress=False)
    data = load_data(config)
    run = partial(train, config=config, data=data)
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes below
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        rows = run_missing(list_jobs(), run, DONE, pool)
    if save:
        keep(
            Path(__file__).with_suffix(".json"),
            "lesson_code/choose_and_judge/study.py --save",
            dataset=name_data("photos"),
            num_train=len(data.train),
            num_val=len(data.val),
            threads_per_training=1,
            lr=LR,
            lower_lr=LOWER_LR,
            space=SPACE | {"smoothing": SMOOTHING},
            rows=sorted(rows, key=lambda row: list(map(str, row.values()))),
        )


if __name__ == "__main__":
    typer.run(main)
