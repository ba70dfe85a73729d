"""What lesson 18 reads of photographs: when a training stops, how long it should be, and folds.

1,000 photographs, the small pretrained network, AdamW, batches of 64.

- *curve*: trainings with a constant learning rate, with an exponential moving average of its
  weights, and with a cosine to zero over 4, 8 and 16 epochs, at eight seeds. For its last weights
  that constant learning rate is too high, so there is a lower one as well.
- *more images*: the cosine over 8 epochs, with 200 validation photographs as training images.
- *fold*: two variants on each of five folds at each of five seeds.

A curve keeps, for each epoch, which validation photographs were right: one bit for each, packed
and written as hexadecimal digits. So the lesson can choose validation photographs among them after
the training, as often as it likes. A curve has one such result: *restored* is the accuracy of the
epoch that a patience of 3 restores, by 200 of them and on the others.

Each training is kept in ``build/stopping.jsonl`` when it has ended. A second call goes on from
there. Two processes with one thread each take about ten minutes on two cores on which nothing else
runs:

    .venv/bin/python lesson_code/when_to_stop/study_curves.py --save
"""

import itertools
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch.optim import AdamW

from course_tools.study.jobs import run_missing
from course_tools.study.keep import keep, name_data
from course_tools.study.lesson_code import read_definitions
from course_utils.config import Config, load_config
from course_utils.data.image_data import ImageData, Images
from course_utils.data.load import load_data
from course_utils.measure.provenance import read_commit
from course_utils.training.fit import fit
from course_utils.training.schedules import warmup_cosine

LESSON = read_definitions("18_when_to_stop")
DONE = Path("build") / "stopping.jsonl"
LR = 0.002  # chosen in lesson 13 at seed 100, for averaged weights
LOWER_LR = 0.0005  # the best there for the last weights of a constant learning rate
DECAY = 0.9  # of the moving average, per step
CURVES = {  # epochs of the trainings
    "constant": (16,),
    "constant, lower": (16,),
    "EMA": (16,),
    "cosine": (4, 8, 16),
}
CURVE_SEEDS = range(8)
CHOOSING, PATIENCE = 200, 3  # validation photographs that choose the epoch that is restored
ADDED = 200  # validation photographs that *more images* trains on: the first ones
SEEDS = range(5)
FOLDS = 5
FOLD_EPOCHS = 3


def list_jobs() -> Iterator[dict]:
    for seed, variant in itertools.product(CURVE_SEEDS, CURVES):
        for epochs in CURVES[variant]:
            yield {"kind": "curve", "variant": variant, "epochs": epochs, "seed": seed}
    for seed in CURVE_SEEDS:
        yield {"kind": "more images", "epochs": 8, "seed": seed}
    for seed, fold, variant in itertools.product(SEEDS, range(FOLDS), ("constant", "cosine")):
        job = {"kind": "fold", "variant": variant, "fold": fold, "epochs": FOLD_EPOCHS}
        yield job | {"seed": seed}


def join_images(one: Images, other: Images) -> Images:
    return Images(
        np.concatenate([one.images, other.images]), np.concatenate([one.targets, other.targets])
    )


def prepare(job: dict, data: ImageData) -> ImageData:
    """The data that a job trains on and is judged on."""
    if job["kind"] == "more images":
        added, judged = (
            LESSON["choose_images"](data.val, chosen)
            for chosen in (np.arange(ADDED), np.arange(ADDED, len(data.val)))
        )
        return replace(data, train=join_images(data.train, added), val=judged)
    if job["kind"] == "fold":
        fold_of = LESSON["assign_folds"](data.train.targets, FOLDS)
        return LESSON["split_fold"](data, fold_of, job["fold"])
    return data


def judge_restored(hits: np.ndarray) -> float:
    """Accuracy of the epoch that early stopping restores, a mean over choices; hits (epochs, N)."""
    masks = LESSON["choose_validation"](hits.shape[1], CHOOSING)
    return round(float(LESSON["judge_patience"](hits, masks, PATIENCE)[0]) / 100, 6)


def train(job: dict, config: Config, data: ImageData) -> dict:
    """The job with its accuracy at the end and, but for folds, the hits of each epoch."""
    variant, callbacks = job.get("variant", "cosine"), [LESSON["ReadValidation"]()]
    if variant == "EMA":
        callbacks.append(EMAWeightAveraging(decay=DECAY))
    run = fit(
        config,
        prepare(job, data),
        seed=job["seed"],
        pretrained=True,
        make_optimizer=partial(AdamW, lr=LOWER_LR if variant == "constant, lower" else LR),
        make_schedule=warmup_cosine if variant == "cosine" else None,
        trainer={"max_epochs": job["epochs"], "callbacks": callbacks},
        save=False,
    )
    row = job | {"accuracy": round(run.metrics["val_accuracy"], 4), "commit": read_commit()}
    if job["kind"] != "fold":
        hits = run.callback(LESSON["ReadValidation"]).hits
        row["hits"] = [np.packbits(epoch).tobytes().hex() for epoch in hits]
    if job["kind"] == "curve":
        row["restored"] = judge_restored(np.array(hits))
    return row


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
            "lesson_code/when_to_stop/study_curves.py --save",
            dataset=name_data("photos"),
            num_train=len(data.train),
            num_val=len(data.val),
            threads_per_training=1,
            lr=LR,
            lower_lr=LOWER_LR,
            ema_decay=DECAY,
            added=ADDED,
            rows=sorted(rows, key=lambda row: list(map(str, row.values()))),
        )


if __name__ == "__main__":
    typer.run(main)
