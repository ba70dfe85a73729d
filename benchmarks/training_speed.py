"""How fast is a training of 2,000 photographs for 8 epochs, validation included?

Three variants take turns (forth and back): the first edition's (resnet_tiny, albumentations,
batches of 32), the same network with today's loader and batches, and today's default
(convnet_small). The share of loading is measured too: the loader alone against the training.
Run it on an otherwise idle machine:

    .venv/bin/python benchmarks/training_speed.py --save training_speed_2cores
"""

import os
import tempfile
from dataclasses import replace
from typing import Annotated

import numpy as np
import typer

from course_utils.config import load_config
from course_utils.data.image_data import load_data
from course_utils.measure.timing import loading_rate
from course_utils.tools.report.keep import keep
from course_utils.training.fit import fit

IMAGES, EPOCHS = 2000, 8


def main(
    rounds: Annotated[int, typer.Option(help="of all variants; at least 3")] = 5,
    save: Annotated[str, typer.Option(help="name of a file in data/results")] = "",
) -> None:
    """Print images per second of whole trainings, their ratios, and the share of loading."""
    today = load_config("quick", dataset="photos").replace(
        num_train=IMAGES, epochs=EPOCHS, progress=False
    )
    first = today.replace(model="resnet_tiny", batch_size=32, augmentation="albumentations")
    configs = {
        "first edition": first,
        "its network, today's loader": today.replace(model="resnet_tiny"),
        "today": today,
    }
    data = load_data(today)
    speeds: dict[str, list[float]] = {name: [] for name in configs}
    shares = []
    with tempfile.TemporaryDirectory() as runs:
        os.environ["COURSE_RUNS_DIR"] = runs
        fit(today.replace(epochs=1), data.take_train(320))  # pays for late imports
        for number in range(rounds):
            for name in list(configs)[:: 1 if number % 2 == 0 else -1]:
                config = configs[name]
                own = replace(data, batch_size=config.batch_size, augmentation=config.augmentation)
                run = fit(config, own, seed=number)
                speeds[name].append(IMAGES * EPOCHS / run.time_s)
                if name == "today" and run.images_per_s:
                    shares.append(run.images_per_s / loading_rate(own.train_loader(number)))
            print({name: round(found[-1]) for name, found in speeds.items()}, flush=True)
    reference = np.array(speeds["first edition"])
    for name, found in speeds.items():
        ratio = np.array(found) / reference
        print(
            f"{name:28} {np.median(found):7,.0f} images/s · × {np.median(ratio):.2f} "
            f"({ratio.min():.2f} to {ratio.max():.2f})"
        )
    print(f"loading is {np.median(shares):.1%} of a step ({min(shares):.1%} to {max(shares):.1%})")
    if save:
        measured = {"images_per_s": speeds, "loading_share": shares}
        keep(save, "benchmarks/training_speed.py", images=IMAGES, epochs=EPOCHS, **measured)


if __name__ == "__main__":
    typer.run(main)
