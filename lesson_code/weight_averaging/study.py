"""What lesson 13 reads: the mean weights of the second half of a training against the last weights.

1,000 photographs, 6 epochs. First, four learning rates for each optimizer at a seed that is not
reported. Then, at the learning rates of the lesson, pretrained and from scratch, AdamW and SGD,
constant, with a cosine to zero and with three of them, over eight seeds. One training gives both
networks of a pair.

Each training is kept in ``build/averaging.jsonl`` when it has ended. A second call goes on from
there. With two threads, about ten minutes on two cores on which nothing else runs:

    .venv/bin/python lesson_code/weight_averaging/study.py --save
"""

import copy
import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import lightning as L
import torch
import typer
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts, LRScheduler
from torch.optim.swa_utils import AveragedModel, update_bn

from course_tools.study.jobs import run_missing
from course_tools.study.keep import keep, name_data
from course_utils.config import Config, load_config
from course_utils.data.image_data import ImageData
from course_utils.data.load import load_data
from course_utils.measure.provenance import read_commit
from course_utils.training.fit import fit
from course_utils.training.lit_classifier import MakeSchedule
from course_utils.training.schedules import warmup_cosine


def restart_cosine(optimizer: Optimizer, total_steps: int) -> LRScheduler:
    """Three cosines, one after the other."""
    return CosineAnnealingWarmRestarts(optimizer, T_0=total_steps // 3)


DONE = Path("build") / "averaging.jsonl"
EPOCHS = 6
SEARCH_SEED = 100
SEARCHED = {"AdamW": (0.0005, 0.001, 0.002, 0.004), "SGD": (0.005, 0.01, 0.02, 0.04)}
CHOSEN = {"AdamW": 0.002, "SGD": 0.02}  # in the lesson too
OPTIMIZERS = {"AdamW": AdamW, "SGD": partial(SGD, momentum=0.9)}
SCHEDULES: dict[str, MakeSchedule | None] = {
    "constant": None,
    "cosine": warmup_cosine,
    "cyclic": restart_cosine,
}
SEARCHED_SCHEDULES = ("constant", "cosine")
STARTS = ("pretrained", "from scratch")
SEEDS = range(8)


class SecondHalf(L.Callback):
    """The running mean of the weights after each step of the second half, and the last weights."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.mean = AveragedModel(pl_module.get_submodule("model"))

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_) -> None:
        if trainer.global_step > int(trainer.estimated_stepping_batches) // 2:
            self.mean.update_parameters(pl_module.get_submodule("model"))

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.last = copy.deepcopy(pl_module.get_submodule("model"))


def measure_accuracy(model: nn.Module, data: ImageData) -> float:
    """Of the validation images, in [0, 1]."""
    model.eval()
    with torch.no_grad():
        right = [(model(images).argmax(dim=1) == targets) for images, targets in data.eval_loader()]
    return round(torch.cat(right).float().mean().item(), 4)


def list_jobs() -> Iterator[dict]:
    for optimizer, schedule in itertools.product(OPTIMIZERS, SEARCHED_SCHEDULES):
        for lr in SEARCHED[optimizer]:
            yield {
                "start": "pretrained",
                "optimizer": optimizer,
                "schedule": schedule,
                "lr": lr,
                "seed": SEARCH_SEED,
            }
    for seed, start in itertools.product(SEEDS, STARTS):
        for optimizer, schedule in itertools.product(OPTIMIZERS, SCHEDULES):
            yield {
                "start": start,
                "optimizer": optimizer,
                "schedule": schedule,
                "lr": CHOSEN[optimizer],
                "seed": seed,
            }


def train(job: dict, config: Config, data: ImageData) -> dict:
    """The job with the accuracies of its last weights and of their mean."""
    run = fit(
        config,
        data,
        seed=job["seed"],
        pretrained=job["start"] == "pretrained",
        make_optimizer=partial(OPTIMIZERS[job["optimizer"]], lr=job["lr"]),
        make_schedule=SCHEDULES[job["schedule"]],
        trainer={"callbacks": SecondHalf(), "check_val_every_n_epoch": EPOCHS},
        save=False,
    )
    found = run.callback(SecondHalf)
    update_bn(data.train_loader(), found.mean)
    return job | {
        "last": measure_accuracy(found.last, data),
        "mean": measure_accuracy(found.mean, data),
        "commit": read_commit(),
    }


def main(
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Train every variant; print, and keep, the two accuracies of each training."""
    config = load_config("quick", dataset="photos").replace(epochs=EPOCHS, progress=False)
    data = load_data(config)
    rows = run_missing(list_jobs(), partial(train, config=config, data=data), DONE)
    if save:
        keep(
            Path(__file__).with_suffix(".json"),
            "lesson_code/weight_averaging/study.py --save",
            dataset=name_data("photos"),
            num_train=len(data.train),
            num_val=len(data.val),
            epochs=EPOCHS,
            search_seed=SEARCH_SEED,
            rows=rows,
        )


if __name__ == "__main__":
    typer.run(main)
