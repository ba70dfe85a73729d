"""Seconds to the accuracy at which a published recipe ends, for it and for lesson 12's recipe.

The published one is that of a seminar: torchvision's ResNet-18 from scratch at 32 pixels, Adam at
0.05, batches of 32, albumentations with two workers, ten epochs. After every other epoch its clock
is stopped and ours trains once, with a seed of its own, so that what else the machine does hits
both alike. Images are in memory, and validated on 5,000 of them. Half an hour on two cores:

    .venv/bin/python benchmarks/time_to_accuracy.py --dataset <folder of CIFAR-10> --save NAME
"""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import lightning as L
import numpy as np
import torch
import typer

from course_utils.config import load_config
from course_utils.data.image_data import ImageData, load_data
from course_utils.tools.report.keep import keep, name_data, round_curve
from course_utils.training.fit import fit
from course_utils.training.recipes import from_scratch
from course_utils.training.run import Run, seconds_to

EPOCHS = 2  # of ours


class _TakeTurns(L.Callback):
    """Between the epochs of one training, with its clock stopped, train something else."""

    def __init__(self, train_other, every: int):
        self.train_other, self.every, self.paused_s = train_other, every, 0.0
        self.pauses: list[float] = []  # all pauses before the end of each epoch was noted

    def on_train_epoch_end(self, trainer, pl_module) -> None:
        """`fit` notes the end of the epoch after this: after the pause."""
        if (trainer.current_epoch + 1) % self.every == 0:
            start = time.perf_counter()
            with torch.random.fork_rng():
                self.train_other()
            self.paused_s += time.perf_counter() - start
        self.pauses.append(self.paused_s)

    def read_curve(self, run: Run) -> list[tuple[float, float]]:
        """That of the training itself, by a clock that stood during the pauses."""
        epochs = zip(run.curve, self.pauses, strict=True)
        return [(seconds - paused, accuracy) for (seconds, accuracy), paused in epochs]


def main(
    dataset: Annotated[str, typer.Option(help="cifar10 or a folder with its images")] = "cifar10",
    epochs: Annotated[int, typer.Option(help="of the published recipe")] = 10,
    save: Annotated[str, typer.Option(help="name of a file in data/results")] = "",
) -> None:
    """Print both recipes' seconds, and their ratio with its spread over our seeds."""
    config = load_config("quick", dataset=dataset).replace(num_train=None, num_val=5000)
    data = load_data(config)
    fit(config.replace(epochs=1), data.take_train(320))  # what is imported late is imported now
    ours: list[Run] = []

    def train_ours() -> None:
        ours.append(fit(data=data, seed=len(ours), arm="ours", **from_scratch(config, EPOCHS)))
        curve = round_curve(ours[-1].curve)
        print(f"ours, seed {len(ours) - 1}: {curve}", flush=True)

    published = fit(
        config.replace(model="resnet18", epochs=epochs),
        replace(data, batch_size=32, num_workers=2),
        make_optimizer=partial(torch.optim.Adam, lr=0.05),
        make_loader=ImageData.albumentations_loader,
        trainer={"callbacks": [_TakeTurns(train_ours, every=2)]},
        arm="published",
    )
    curves = {
        "published": [round_curve(published.callback(_TakeTurns).read_curve(published))],
        "ours": [round_curve(run.curve) for run in ours],
    }
    print(f"published: {curves['published'][0]}", flush=True)
    goal = curves["published"][0][-1][1]
    theirs_s = seconds_to(goal, curves["published"][0])
    ours_s = [seconds_to(goal, curve) for curve in curves["ours"]]
    ratios = [theirs_s / seconds for seconds in ours_s]
    print(
        f"{100 * goal:.1f} %: published {theirs_s:.0f} s, ours {np.median(ours_s):.1f} s "
        f"({min(ours_s):.1f} to {max(ours_s):.1f}, {len(ours)} seeds): × {np.median(ratios):.0f} "
        f"({min(ratios):.0f} to {max(ratios):.0f})"
    )
    if save:
        command = f"benchmarks/time_to_accuracy.py --dataset {Path(dataset).name}"
        keep(save, command, dataset=name_data(dataset), goal=goal, curves=curves)


if __name__ == "__main__":
    typer.run(main)
