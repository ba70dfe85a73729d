"""What lesson 14 reads: which accuracy the readings of a range test lead to, against a sweep.

1,000 photographs, 4 epochs with a cosine to zero, pretrained and from scratch, SGD and AdamW.
First, a sweep of six learning rates at a seed that is not reported. Then, at each of six other
seeds, a range test with the batches and the first weights of that seed, read in three ways, and
one training at each reading and at the learning rate of the sweep. Last, cyclical learning rates
whose mean is that of the sweep.

Each range test and each training is kept in ``build`` when it has ended. A second call goes on
from there. With two threads, about twelve minutes on two cores on which nothing else runs:

    .venv/bin/python lesson_code/finders/study.py --save
"""

import itertools
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
import typer
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from course_tools.study.jobs import run_missing
from course_tools.study.keep import keep, name_data
from course_utils.config import Config, load_config
from course_utils.data.image_data import ImageData
from course_utils.data.load import load_data
from course_utils.measure.provenance import read_commit
from course_utils.models.create import create_model
from course_utils.training.fit import fit
from course_utils.training.schedules import warmup_cosine

DONE = Path("build") / "finders.jsonl"
RANGE_TESTS = Path("build") / "finders_range_tests.jsonl"
EPOCHS = 4
RANGE_STEPS = 60
SKIPPED = 10  # steps that no reading looks at: their average is of a few losses only
SWEEP_SEED = 100
OPTIMIZERS = {"SGD": partial(SGD, momentum=0.9), "AdamW": AdamW}
RANGES = {"SGD": (1e-4, 1.0), "AdamW": (1e-5, 0.1)}  # of the range test
SWEPT = {
    "SGD": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    "AdamW": (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03),
}
STARTS = ("pretrained", "from scratch")
# Shapes of a cyclical learning rate, x from 0 to 1 over a cycle; the mean of each is 0.5.
SHAPES = {
    "constant": lambda x: 0.5,
    "triangular": lambda x: 1 - abs(2 * x - 1),
    "Hann": lambda x: math.sin(math.pi * x) ** 2,
    "Welch": lambda x: 0.75 * (1 - (2 * x - 1) ** 2),
    "one fall": lambda x: (1 + math.cos(math.pi * x)) / 2,  # of a cosine, in a single cycle
}
CYCLES = 2
READINGS = ("steepest slope", "a tenth of the lowest", "Lightning's suggestion")
SEEDS = range(6)


def find_losses(
    start: str, optimizer: str, seed: int, config: Config, data: ImageData
) -> tuple[np.ndarray, np.ndarray]:
    """The learning rate and the loss of each step of a range test."""
    learning_rates = np.geomspace(*RANGES[optimizer], RANGE_STEPS)
    torch.manual_seed(seed)
    model = create_model(config.model, data.num_classes, pretrained=start == "pretrained").train()
    steps = OPTIMIZERS[optimizer](model.parameters(), lr=learning_rates[0])
    loader = data.train_loader(seed)  # each epoch has its own order and augmentations
    batches = itertools.chain.from_iterable(loader for _ in itertools.count())
    losses: list[float] = []
    for learning_rate, (images, targets) in zip(learning_rates, batches, strict=False):
        steps.param_groups[0]["lr"] = learning_rate
        steps.zero_grad()
        loss = F.cross_entropy(model(images), targets)
        loss.backward()
        steps.step()
        losses.append(loss.item())
        if not losses[-1] <= 4 * losses[0]:  # NaN is not below any number
            break
    return learning_rates[: len(losses)], np.array(losses)


def average(losses: np.ndarray, beta: float) -> np.ndarray:
    """The exponential moving average that begins at 0, uncorrected."""
    averages, last = [], 0.0
    for loss in losses:
        last = beta * last + (1 - beta) * loss
        averages.append(last)
    return np.array(averages)


def read_learning_rates(learning_rates: np.ndarray, losses: np.ndarray) -> dict[str, float]:
    """The three readings, as in the lesson. Lightning's formulas are those of its 2.6.6."""
    count = 1 + np.arange(len(losses))
    smoothed = average(losses, 0.9) / (1 - 0.9**count)
    lowest = SKIPPED + smoothed[SKIPPED:].argmin()
    slopes = np.gradient(smoothed, np.log(learning_rates))[SKIPPED : lowest + 1]
    as_lightning = (average(losses, 0.98) / (1 - 0.98 ** (count + 1)))[10:-1]
    lightnings = np.gradient(as_lightning, learning_rates[10:-1])
    values = (
        learning_rates[SKIPPED + slopes.argmin()],
        learning_rates[lowest] / 10,
        learning_rates[10:-1][lightnings.argmin()],
    )
    return dict(zip(READINGS, map(float, values), strict=True))


def list_sweep() -> Iterator[dict]:
    for start, optimizer in itertools.product(STARTS, OPTIMIZERS):
        for lr in SWEPT[optimizer]:
            job = {"start": start, "optimizer": optimizer, "reading": "in the sweep"}
            yield job | {"seed": SWEEP_SEED, "lr": lr}


def list_range_tests() -> Iterator[dict]:
    for seed, start, optimizer in itertools.product(SEEDS, STARTS, OPTIMIZERS):
        yield {"start": start, "optimizer": optimizer, "seed": seed}


def run_range_test(job: dict, config: Config, data: ImageData) -> dict:
    """The job with the three readings."""
    return job | {"read": read_learning_rates(*find_losses(**job, config=config, data=data))}


def choose_best(sweep: list[dict]) -> dict[tuple[str, str], float]:
    """``(start, optimizer)`` to the learning rate with the highest accuracy."""
    by_accuracy = sorted(sweep, key=lambda row: row["accuracy"])
    return {(row["start"], row["optimizer"]): row["lr"] for row in by_accuracy}


def list_trainings(sweep: list[dict], range_tests: list[dict]) -> Iterator[dict]:
    """At each seed: the sweep's most accurate learning rate, and the three readings."""
    best = choose_best(sweep)
    for found in range_tests:
        job = {name: found[name] for name in ("start", "optimizer", "seed")}
        chosen = {"sweep": best[job["start"], job["optimizer"]]} | found["read"]
        for reading, lr in chosen.items():
            yield job | {"reading": reading, "lr": lr}


def list_cycles(sweep: list[dict]) -> Iterator[dict]:
    """Pretrained, each shape with the sweep's learning rate as its mean."""
    best = choose_best(sweep)
    for seed, optimizer, shape in itertools.product(SEEDS, OPTIMIZERS, SHAPES):
        job = {"start": "pretrained", "optimizer": optimizer, "shape": shape}
        yield job | {"seed": seed, "lr": best["pretrained", optimizer]}


def make_cyclic(
    shape: str, optimizer: Optimizer, total_steps: int, low: float = 0.1, high: float = 1.9
) -> LambdaLR:
    """The shape between ``low`` and ``high``, multiples of the optimizer's learning rate."""
    cycles = 1 if shape == "one fall" else CYCLES

    def factor(step: int) -> float:
        return low + (high - low) * SHAPES[shape](cycles * step / total_steps % 1.0)

    return LambdaLR(optimizer, factor)


def train(job: dict, config: Config, data: ImageData) -> dict:
    """The job with the accuracy of its last weights, in [0, 1]."""
    shape = job.get("shape")
    run = fit(
        config,
        data,
        seed=job["seed"],
        pretrained=job["start"] == "pretrained",
        make_optimizer=partial(OPTIMIZERS[job["optimizer"]], lr=job["lr"]),
        make_schedule=partial(make_cyclic, shape) if shape else warmup_cosine,
        trainer={"check_val_every_n_epoch": EPOCHS},
        save=False,
    )
    accuracy = round(run.metrics["val_accuracy"], 4)
    return job | {"accuracy": accuracy, "commit": read_commit()}


def main(
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Train at every learning rate; print, and keep, the accuracies."""
    config = load_config("quick", dataset="photos").replace(epochs=EPOCHS, progress=False)
    data = load_data(config)
    fixed = {"config": config, "data": data}
    sweep = run_missing(list_sweep(), partial(train, **fixed), DONE)
    range_tests = run_missing(list_range_tests(), partial(run_range_test, **fixed), RANGE_TESTS)
    rows = run_missing(list_trainings(sweep, range_tests), partial(train, **fixed), DONE)
    cycles = run_missing(list_cycles(sweep), partial(train, **fixed), DONE)
    if save:
        keep(
            Path(__file__).with_suffix(".json"),
            "lesson_code/finders/study.py --save",
            dataset=name_data("photos"),
            num_train=len(data.train),
            num_val=len(data.val),
            epochs=EPOCHS,
            range_steps=RANGE_STEPS,
            sweep_seed=SWEEP_SEED,
            rows=sweep + rows,
            cycles=cycles,
        )


if __name__ == "__main__":
    typer.run(main)
