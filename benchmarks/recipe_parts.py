"""What each part of lesson 12's recipe from scratch is worth: the recipe without it, two epochs.

.venv/bin/python benchmarks/recipe_parts.py --dataset <folder of CIFAR-10> --save NAME
"""

from functools import partial
from pathlib import Path
from typing import Annotated

import torch.nn.functional as F
import typer

from course_utils.config import load_config
from course_utils.data.image_data import ImageData, batched_loader, load_data
from course_utils.tools.report.keep import keep, name_data
from course_utils.training.fit import fit
from course_utils.training.recipes import from_scratch

EPOCHS = 2


def main(
    dataset: Annotated[str, typer.Option(help="cifar10 or a folder with its images")] = "cifar10",
    seeds: Annotated[int, typer.Option(help="of every part", min=1)] = 1,
    save: Annotated[str, typer.Option(help="name of a file in data/results")] = "",
) -> None:
    """Print seconds and accuracy of the recipe, and of the recipe without each of its parts."""
    config = load_config("quick", dataset=dataset).replace(num_train=None, num_val=5000)
    data = load_data(config)
    recipe = from_scratch(config, EPOCHS)

    def image_by_image(data: ImageData, seed: int):
        return data.train_loader(seed, batch_size=128)

    changes = {
        "the recipe": {},
        "resnet_tiny for vgg_tiny": {"config": recipe["config"].replace(model="resnet_tiny")},
        "ResNet-18 for vgg_tiny": {"config": recipe["config"].replace(model="resnet18")},
        "AdamW at 0.001 for SGD at 0.1": {"optimizer": None},
        "a constant rate for the schedule": {"schedule": None},
        "batches of 32 for 128": {"train_loader": partial(batched_loader, batch_size=32)},
        "albumentations for batches at once": {"train_loader": image_by_image},
        "fp32 for bf16": {"trainer": {"precision": "32-true"}},
        "no channels-last": {"model_transform": None},
        "no label smoothing": {"loss": F.cross_entropy},
    }
    fit(config.replace(epochs=1), data.take_train(320))  # what is imported late is imported now
    parts: dict[str, list[dict]] = {part: [] for part in changes}
    for seed in range(seeds):
        for part, change in changes.items():
            run = fit(data=data, seed=seed, arm=part, **recipe | change)
            measured = {"seconds": run.epoch_ends_s[-1], "accuracy": run.metrics["val_accuracy"]}
            parts[part].append({"seed": seed} | {k: round(x, 4) for k, x in measured.items()})
            print(f"{part}: {measured}", flush=True)
    if save:
        command = f"benchmarks/recipe_parts.py --dataset {Path(dataset).name} --seeds {seeds}"
        keep(save, command, dataset=name_data(dataset), parts=parts)


if __name__ == "__main__":
    typer.run(main)
