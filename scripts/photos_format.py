"""Does a training notice that `photos` are stored as sheets of JPEG? Two variants, paired seeds.

The same photographs are read twice: from the files that the sheets were made of, and from the
sheets. Each variant trains and validates on its own pixels. A few minutes on one thread:

    .venv/bin/python scripts/photos_format.py --dataset <folder of CIFAR-10> --save FILE
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from PIL import Image

from course_tools.study.keep import keep
from course_utils.config import load_config
from course_utils.data.image_data import ImageData, Images
from course_utils.data.load import load_data
from course_utils.data.photos import describe_photos
from course_utils.data.split import split_stratified
from course_utils.training.compare import Comparison, compare
from course_utils.training.recipes import channels_last

FILES, SHEETS = "files", "sheets"  # the variants
CONFIG = {"num_train": 2000, "num_val": 6000, "epochs": 5, "model": "vgg_tiny"}


def read_pool(folder: Path) -> Images:
    """The training pool from the files that `photos` were made of, in the order of `photos`."""
    about = describe_photos()
    classes, count = about["classes"], about["tiles"]["train"]
    images = np.empty((count, len(classes), 32, 32, 3), np.uint8)
    for label, name in enumerate(classes):
        for tile, stem in enumerate(about["sheets"][f"train_{name}"]["files"].split()):
            with Image.open(folder / "train" / name / f"{stem}.jpg") as image:
                images[tile, label] = np.asarray(image)
    return Images(images.reshape(-1, 32, 32, 3), np.tile(np.arange(len(classes)), count))


def with_pixels_of(data: ImageData, pool: Images) -> ImageData:
    """``data`` with the same photographs in the same order, their pixels taken from ``pool``."""
    index = split_stratified(pool.targets, len(data.train), len(data.val))
    train, val = (Images(pool.images[part], pool.targets[part]) for part in index)
    assert np.array_equal(train.targets, data.train.targets)
    difference = np.abs(train.images.astype(int) - data.train.images).mean()
    assert difference < 2, "these are other photographs"
    return replace(
        data,
        train=train,
        val=val,
        mean=tuple((train.images.mean((0, 1, 2)) / 255).tolist()),
        std=tuple((train.images.std((0, 1, 2)) / 255).tolist()),
    )


def summarize(comparison: Comparison) -> dict:
    """Accuracies in percent and their paired difference in points, as they are stored."""
    found = comparison.difference(SHEETS)
    return {
        "accuracy": {
            variant: [round(100 * x, 2) for x in comparison.values(variant)]
            for variant in comparison.arms
        },
        "difference_points": round(100 * found.mean, 2),
        "interval_points": [round(100 * found.low, 2), round(100 * found.high, 2)],
    }


def main(
    dataset: Annotated[Path, typer.Option(help="folder of CIFAR-10 that `photos` were made of")],
    seeds: Annotated[int, typer.Option(help="of both variants", min=2)] = 5,
    save: Annotated[Path | None, typer.Option(help="JSON file to write")] = None,
) -> None:
    """Print the accuracy of both variants and the 95 % interval of their paired difference."""
    config = load_config("quick", dataset="photos").replace(**CONFIG)
    data = load_data(config)
    arms = {FILES: {"data": with_pixels_of(data, read_pool(dataset))}, SHEETS: {"data": data}}
    arms = {
        variant: options | {"model_transform": channels_last} for variant, options in arms.items()
    }
    with tempfile.TemporaryDirectory() as runs:
        os.environ["COURSE_RUNS_DIR"] = runs
        comparison = compare(arms, config, data, seeds=range(seeds), name="format of photos")
    print(comparison.table().to_string())
    print(comparison.verdict(SHEETS))
    if save:
        command = f"scripts/photos_format.py --dataset {dataset.name} --seeds {seeds} --save {save}"
        sizes = CONFIG | {"batch_size": config.batch_size, "seeds": list(range(seeds))}
        keep(save, command, dataset="photos", training=sizes, **summarize(comparison))


if __name__ == "__main__":
    typer.run(main)
