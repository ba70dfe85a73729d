"""How many images a second DALI prepares on the CPU, against the albumentations loader.

Both read the same JPEG files of lesson 11 (`draw_scenes`), cut out the middle, resize it to what
the network reads, and augment as the baseline does, in batches of the profile's size.
The arms take turns (forth and back), so that what else the machine does hits all alike; a ratio
is taken within each round. Run it on an otherwise idle machine.
"""

import tempfile
from dataclasses import replace
from functools import partial
from typing import Annotated

import cv2
import numpy as np
import typer
from torch.utils.data import DataLoader

from course_utils.config import load_config
from course_utils.data.augment import train_transform
from course_utils.data.load import load_data
from course_utils.data.loaders import seed_worker
from course_utils.measure.provenance import describe_hardware
from course_utils.measure.timing import loading_rate
from lesson_code.dali.dali_loader import DaliLoader
from lesson_code.dali.jpegs import draw_scenes, read_jpeg, write_jpegs

SECONDS = 1.0  # of one measurement


def main(
    rounds: Annotated[int, typer.Option(help="of all arms; at least 5")] = 9,
    dataset: Annotated[str, typer.Option(help="photos, cifar10 or a folder")] = "photos",
) -> None:
    """Print every loader's images a second and its ratio to albumentations, with its spread."""
    import albumentations as A  # after course_utils has turned its look for updates off

    config = load_config("quick", dataset=dataset)
    data = load_data(config)
    with tempfile.TemporaryDirectory() as folder:
        files = write_jpegs(draw_scenes(data.train), folder)
        size = data.train.images.shape[1]
        crop = len(read_jpeg(files.paths[0])) // 2
        cut = [A.CenterCrop(crop, crop), A.Resize(size, size, interpolation=cv2.INTER_AREA)]
        augment = train_transform(data.mean, data.std).transforms
        augmented = replace(files, transform=A.Compose([*cut, *augment], seed=0))
        batches = partial(
            DaliLoader, files, data.mean, data.std, config.batch_size, crop=crop, size=size
        )
        loading = {"batch_size": config.batch_size, "shuffle": True, "drop_last": True}
        workers = {"num_workers": 2, "persistent_workers": True, "worker_init_fn": seed_worker}
        arms = {
            "albumentations": DataLoader(augmented, **loading),
            "albumentations, 2 workers": DataLoader(augmented, **loading, **workers),
            "DALI, 1 thread": batches(threads=1),
            "DALI, 2 threads": batches(threads=2),
        }
        rates: dict[str, list[float]] = {arm: [] for arm in arms}
        for number in range(rounds):
            for arm in list(arms)[:: 1 if number % 2 == 0 else -1]:
                rates[arm].append(loading_rate(arms[arm], SECONDS))
    hardware = describe_hardware()
    print(f"{data.describe()}, {len(files)} JPEG files, {rounds} rounds; {hardware}")
    first = np.array(rates["albumentations"])
    for arm, found in rates.items():
        ratio = np.array(found) / first
        print(
            f"{arm:26} {np.median(found):8,.0f} images/s (median) · × {np.median(ratio):.2f} "
            f"({ratio.min():.2f} to {ratio.max():.2f})"
        )


if __name__ == "__main__":
    typer.run(main)
