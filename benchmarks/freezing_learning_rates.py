"""Learning rates for lesson 02: each scheme on seeds that the lesson does not report.

Every scheme is trained at several learning rates on 500 photographs and on 500 drawn shapes, two
seeds each, in two processes with one thread each. About ten minutes on two cores:

    .venv/bin/python benchmarks/freezing_learning_rates.py --save freezing_learning_rates_2cores
"""

import multiprocessing
import os
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from typing import Annotated

import pandas as pd
import torch
import typer

from course_utils.config import load_config
from course_utils.data.image_data import load_data
from course_utils.models.freeze import freeze_before
from course_utils.tools.report.keep import keep
from course_utils.training.compare import compare

SEEDS = (100, 101)  # the lesson reports 0, 1, 2
SCHEMES = {  # first child that is trained; None: from scratch
    "from scratch": None,
    "linear probe": "fc",
    "last stage": "layer4",
    "last two stages": "layer3",
    "full fine-tuning": "stem",
}
LEARNING_RATES = {
    "from scratch": (5e-4, 1e-3, 2e-3, 4e-3),
    "linear probe": (2e-3, 5e-3, 1e-2, 2e-2),
    "last stage": (5e-4, 1e-3, 2e-3, 5e-3),
    "last two stages": (3e-4, 5e-4, 1e-3, 2e-3),
    "full fine-tuning": (3e-4, 5e-4, 1e-3, 2e-3),
}
POOL, IMAGES = 2000, 500  # the lesson's few images are the first of its many
EPOCHS = 8


def plan_scheme(scheme: str, lr: float) -> dict:
    """Arguments of `fit` for one scheme at one learning rate, validated at the end only."""
    options = {
        "make_optimizer": partial(torch.optim.AdamW, lr=lr),
        "trainer": {"max_epochs": EPOCHS, "check_val_every_n_epoch": EPOCHS},
    }
    first = SCHEMES[scheme]
    if first is not None:
        cut = partial(freeze_before, first_trained=first)
        options |= {"pretrained": True, "model_transform": cut}
    return options


def search(dataset: str, executor: Executor) -> list[dict[str, object]]:
    """One row per scheme and learning rate, with one accuracy per seed."""
    photos = load_config("quick", dataset="photos")
    config = photos.replace(dataset=dataset, num_train=POOL, progress=False)
    data = load_data(config).take_train(IMAGES)
    cells = [(scheme, lr) for scheme, rates in LEARNING_RATES.items() for lr in rates]
    arms = {f"{scheme} {lr:g}": plan_scheme(scheme, lr) for scheme, lr in cells}
    name = f"{dataset}, {IMAGES}"
    found = compare(config, data, arms, seeds=SEEDS, name=name, executor=executor)
    return [
        {
            "dataset": dataset,
            "train": IMAGES,
            "epochs": EPOCHS,
            "scheme": scheme,
            "lr": lr,
            "val_accuracy": [round(v, 4) for v in found.values(f"{scheme} {lr:g}").tolist()],
        }
        for scheme, lr in cells
    ]


def main(save: Annotated[str, typer.Option(help="name of a file in data/results")] = "") -> None:
    """Print the mean accuracy of every scheme at every learning rate."""
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes below
    rows = []
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        for dataset in ("photos", "shapes"):
            found = search(dataset, pool)
            rows += found
            table = pd.DataFrame(found).drop(columns=["dataset", "train", "epochs"])
            table["mean (%)"] = [100 * sum(v) / len(v) for v in table["val_accuracy"]]
            print(f"{dataset}, {IMAGES}\n{table.to_string(index=False)}", flush=True)
    if save:
        command = "benchmarks/freezing_learning_rates.py"
        keep(save, command, seeds=list(SEEDS), rows=rows)


if __name__ == "__main__":
    typer.run(main)
