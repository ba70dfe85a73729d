"""Learning rates for lesson 02: each scheme on seeds that the lesson does not report.

Every scheme is trained at several learning rates, as in the lesson: on 500 and on 2,000
photographs and on 500 drawn shapes, two seeds each, in two processes with one thread each. About
fifteen minutes on two slow cores:

    .venv/bin/python lesson_code/freezing/study_learning_rates.py --save
"""

import multiprocessing
import os
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer

from course_tools.study.keep import keep
from course_utils.config import load_config
from course_utils.data.load import load_data
from course_utils.models.freeze import freeze_before
from course_utils.training.compare import compare
from course_utils.training.parameter_groups import make_grouped

SEEDS = (100, 101)  # the lesson reports 0, 1, 2
SCHEMES = {  # first child that is trained; None: from scratch
    "from scratch": None,
    "linear probe": "fc",
    "last stage": "layer4",
    "last two stages": "layer3",
    "full fine-tuning": "stem",
    "layer-wise learning rates": "stem",
}
HEAD_LR, DECAY = 0.01, 0.5  # of the layer-wise learning rates
ON_PHOTOS = {
    "from scratch": (5e-4, 1e-3, 2e-3, 4e-3),
    "linear probe": (2e-3, 5e-3, 1e-2, 2e-2),
    "last stage": (3e-4, 5e-4, 1e-3, 2e-3),
    "last two stages": (3e-4, 5e-4, 1e-3, 2e-3),
    "full fine-tuning": (3e-4, 5e-4, 1e-3, 2e-3),
}
ON_DRAWINGS = {
    "from scratch": (1e-3, 2e-3, 4e-3, 8e-3),
    "linear probe": (1e-2, 2e-2, 4e-2, 8e-2),
    "full fine-tuning": (5e-4, 1e-3, 2e-3, 4e-3),
}
LAYER_WISE = {"layer-wise learning rates": (5e-4, 1e-3, 2e-3, 4e-3)}
POOL = 2000  # the lesson's few images are the first of its many
REGIMES = (  # data set, images, epochs, learning rates of every scheme
    ("photos", 500, 6, ON_PHOTOS | LAYER_WISE),
    ("photos", POOL, 2, ON_PHOTOS),
    ("shapes", 500, 6, ON_DRAWINGS),
)


def plan_scheme(scheme: str, lr: float, epochs: int) -> dict:
    """Arguments of `fit` for one scheme at one learning rate, validated at the end only."""
    options: dict = {"trainer": {"max_epochs": epochs, "check_val_every_n_epoch": epochs}}
    if scheme in LAYER_WISE:
        layers = {"lr": lr, "head_lr": HEAD_LR, "layer_decay": DECAY}
        options["make_optimizer"] = partial(make_grouped, torch.optim.AdamW, **layers)
    else:
        options["make_optimizer"] = partial(torch.optim.AdamW, lr=lr)
    first = SCHEMES[scheme]
    if first is not None:
        cut = partial(freeze_before, first_trained=first)
        options |= {"pretrained": True, "model_transform": cut}
    return options


def search(
    dataset: str, images: int, epochs: int, learning_rates: dict, executor: Executor
) -> list[dict[str, object]]:
    """One row per scheme and learning rate, with one accuracy per seed."""
    photos = load_config("quick", dataset="photos")
    config = photos.replace(dataset=dataset, num_train=POOL, progress=False)
    data = load_data(config).take_train(images)
    cells = [(scheme, lr) for scheme, rates in learning_rates.items() for lr in rates]
    arms = {f"{scheme} {lr:g}": plan_scheme(scheme, lr, epochs) for scheme, lr in cells}
    name = f"{dataset}, {images}"
    found = compare(config, data, arms, seeds=SEEDS, name=name, executor=executor)
    return [
        {
            "dataset": dataset,
            "train": images,
            "epochs": epochs,
            "scheme": scheme,
            "lr": lr,
            "val_accuracy": [round(v, 4) for v in found.values(f"{scheme} {lr:g}").tolist()],
        }
        for scheme, lr in cells
    ]


def main(
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Print the mean accuracy of every scheme at every learning rate."""
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes below
    rows = []
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        for regime in REGIMES:
            found = search(*regime, pool)
            rows += found
            table = pd.DataFrame(found).drop(columns=["dataset", "train", "epochs"])
            table["mean (%)"] = [100 * sum(v) / len(v) for v in table["val_accuracy"]]
            print(f"{regime[0]}, {regime[1]}\n{table.to_string(index=False)}", flush=True)
    if save:
        command = "lesson_code/freezing/study_learning_rates.py --save"
        keep(Path(__file__).with_suffix(".json"), command, seeds=list(SEEDS), rows=rows)


if __name__ == "__main__":
    typer.run(main)
