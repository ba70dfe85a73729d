"""Seconds to 90 % on CIFAR-10, from scratch: lesson 12's recipe, a larger network, more epochs.

Images are in memory, and validated on 5,000 of them. Ten minutes a seed on two cores:

    .venv/bin/python benchmarks/time_to_90.py --dataset <folder of CIFAR-10> --save NAME
"""

from pathlib import Path
from typing import Annotated

import typer

from course_utils.config import load_config
from course_utils.data.image_data import load_data
from course_utils.tools.report.keep import keep, name_data, round_curve
from course_utils.training.fit import fit
from course_utils.training.recipes import from_scratch
from course_utils.training.run import seconds_to

GOAL = 0.9
MODEL = "vgg_small"


def main(
    dataset: Annotated[str, typer.Option(help="cifar10 or a folder with its images")] = "cifar10",
    epochs: Annotated[int, typer.Option(help="of every training", min=1)] = 16,
    seeds: Annotated[int, typer.Option(help="trainings", min=1)] = 1,
    save: Annotated[str, typer.Option(help="name of a file in data/results")] = "",
) -> None:
    """Print for each seed the accuracy after each epoch, and when it reached the goal."""
    config = load_config("quick", dataset=dataset).replace(num_train=None, num_val=5000)
    data = load_data(config)
    fit(config.replace(epochs=1), data.take_train(320))  # what is imported late is imported now
    curves = []
    for seed in range(seeds):
        run = fit(data=data, seed=seed, **from_scratch(config, epochs, MODEL))
        curves.append(round_curve(run.curve))
        print(f"seed {seed}: {curves[-1]}")
        print(f"{GOAL:.0%} after {seconds_to(GOAL, curves[-1]):.0f} s (inf: never)", flush=True)
    if save:
        command = f"benchmarks/time_to_90.py --dataset {Path(dataset).name}"
        command += f" --epochs {epochs} --seeds {seeds}"
        keep(save, command, dataset=name_data(dataset), goal=GOAL, model=MODEL, curves=curves)


if __name__ == "__main__":
    typer.run(main)
