"""Peak learning rates and schedules for lesson 04, on photographs.

- ``map``: four schedules at several peak learning rates, fine-tuning and from scratch;
- ``warm-up``: its length, its start, and a head that is trained first, in fine-tuning.

One process with one thread. Each training is kept in ``build/schedule_map.jsonl`` as soon as it
has ended, so an interrupted search goes on where it stopped. About ten minutes on a slow core:

    .venv/bin/python lesson_code/warmup_cosine/study_map.py --save
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import torch.nn.functional as F
import typer
from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim import lr_scheduler as schedulers

from course_tools.study.jobs import run_missing
from course_tools.study.keep import keep
from course_utils.config import load_config
from course_utils.data.image_data import ImageData
from course_utils.data.load import load_data
from course_utils.training.fit import fit
from course_utils.training.schedules import warmup_cosine

Schedule = schedulers.LRScheduler
MakeSchedule = Callable[[Optimizer, int], Schedule]

DONE = Path("build") / "schedule_map.jsonl"
POOL = 2000  # photographs; the few are the first of these, as in lesson 02
REGIMES = {  # images, epochs, whether the network is pretrained
    "fine-tuning": {"train": 500, "epochs": 6, "pretrained": True},
    "from scratch": {"train": 500, "epochs": 6, "pretrained": False},
}
PEAKS = {
    "fine-tuning": (5e-4, 2e-3, 8e-3, 3.2e-2),
    "from scratch": (2e-3, 1.6e-2),
}
SEEDS = (100, 101, 102)


def constant(optimizer: Optimizer, total_steps: int) -> Schedule:
    """The optimizer's own learning rate in every step."""
    return schedulers.ConstantLR(optimizer, factor=1.0, total_iters=1)


def one_cycle(optimizer: Optimizer, total_steps: int) -> Schedule:
    """PyTorch's one cycle with its defaults; the peak is the optimizer's learning rate."""
    peak_lr = optimizer.param_groups[0]["lr"]
    return schedulers.OneCycleLR(optimizer, max_lr=peak_lr, total_steps=total_steps)


def start_at(
    optimizer: Optimizer, total_steps: int, start_factor: float, warmup_steps: int
) -> Schedule:
    """Warm-up from ``start_factor`` of the peak, then a cosine."""
    rise = schedulers.LinearLR(optimizer, start_factor=start_factor, total_iters=warmup_steps)
    fall = schedulers.CosineAnnealingLR(optimizer, T_max=total_steps - 1 - warmup_steps)
    return schedulers.SequentialLR(optimizer, [rise, fall], milestones=[warmup_steps])


def train_head(model: nn.Module, data: ImageData, seed: int) -> nn.Module:
    """Train the head alone for one epoch, with the backbone in evaluation mode."""
    model.eval()
    optimizer = AdamW(model.get_submodule("fc").parameters(), lr=5e-3)
    for images, targets in data.train_loader(seed=seed):
        optimizer.zero_grad()
        F.cross_entropy(model(images), targets).backward()
        optimizer.step()
    model.zero_grad()
    return model.train()


SCHEDULES: dict[str, Callable[[int], MakeSchedule]] = {  # steps of an epoch to a schedule maker
    "constant": lambda epoch: constant,
    "cosine": lambda epoch: warmup_cosine,
    "warm-up and cosine": lambda epoch: partial(warmup_cosine, warmup_steps=epoch),
    "one cycle": lambda epoch: one_cycle,
}
LENGTHS = {"half an epoch": 0.5, "two epochs": 2}  # none and one epoch are on the map
HEAD_FIRST = "head first"
START_FACTORS = (0.0001, 0.5)  # the map has 1 / (warm-up steps + 1)


def list_map() -> Iterator[dict]:
    for regime, peaks in PEAKS.items():
        for seed in SEEDS:
            for peak_lr in peaks:
                for schedule in SCHEDULES:
                    about = {"part": "map", "regime": regime, "peak_lr": peak_lr}
                    yield about | {"schedule": schedule, "seed": seed}


def list_others() -> Iterator[dict]:
    fine = {"part": "warm-up", "regime": "fine-tuning", "peak_lr": PEAKS["fine-tuning"][2]}
    for seed in SEEDS:
        for length in (*LENGTHS, HEAD_FIRST):
            yield fine | {"length": length, "seed": seed}
        for factor in START_FACTORS:
            yield fine | {"start_factor": factor, "seed": seed}


def plan(job: dict, data: ImageData) -> dict:
    """The arguments of `fit` for one job."""
    epoch = len(data.train_loader(seed=0))
    epochs = REGIMES[job["regime"]]["epochs"]
    options: dict = {
        "seed": job["seed"],
        "pretrained": REGIMES[job["regime"]]["pretrained"],
        "make_optimizer": partial(AdamW, lr=job["peak_lr"]),
    }
    make: MakeSchedule
    if "start_factor" in job:
        make = partial(start_at, start_factor=job["start_factor"], warmup_steps=epoch)
    elif "length" in job:
        warmup_steps = round(LENGTHS.get(job["length"], 0) * epoch)
        make = partial(warmup_cosine, warmup_steps=warmup_steps)
    else:
        make = SCHEDULES[job["schedule"]](epoch)
    if job.get("length") == HEAD_FIRST:
        options["model_transform"] = partial(train_head, data=data, seed=job["seed"])
        epochs -= 1  # the head's own epoch
    trainer = {"max_epochs": epochs, "check_val_every_n_epoch": epochs}
    return options | {"make_schedule": make, "trainer": trainer}


def train(job: dict, data: dict[str, ImageData]) -> dict:
    """The job with what it measured."""
    config = load_config("quick", dataset="photos").replace(num_train=POOL, progress=False)
    few = data[job["regime"]]
    run = fit(config, few, save=False, **plan(job, few))
    measured = {"accuracy": round(run.metrics["val_accuracy"], 4), "time_s": round(run.time_s, 1)}
    return job | measured


def main(
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Train everything, and keep it with its provenance."""
    torch.set_num_threads(1)
    config = load_config("quick", dataset="photos").replace(num_train=POOL, progress=False)
    pool = load_data(config)
    data = {name: pool.take_train(about["train"]) for name, about in REGIMES.items()}
    rows = run_missing([*list_map(), *list_others()], partial(train, data=data), DONE)
    if save:
        keep(
            Path(__file__).with_suffix(".json"),
            "lesson_code/warmup_cosine/study_map.py --save",
            regimes=REGIMES,
            rows=rows,
        )


if __name__ == "__main__":
    typer.run(main)
