"""Where do mixup and CutMix help on photographs? The search that lesson 05 reads.

A small network is trained from scratch, for long, with and without augmentation.

- ``search``: every regime and every variant at one seed that the lesson does not report;
- ``report``: the regime and the variant with the largest gain of the search, at other seeds.

The variant of the largest gain is chosen from noise as well as from effect, so the search's own
number is optimistically biased. The report's number is not.

One process with one thread. Each training is kept in ``build/mixup_regimes.jsonl`` as soon as it
has ended, so an interrupted search goes on where it stopped. About 40 minutes on a slow core:

    .venv/bin/python lesson_code/mixup/study.py --save
"""

import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import nn
from torch.optim import AdamW
from torchvision.transforms import v2

from course_tools.study.jobs import run_missing
from course_tools.study.keep import keep
from course_utils.config import load_config
from course_utils.data.image_data import ImageData
from course_utils.data.load import load_data
from course_utils.training.fit import fit
from course_utils.training.schedules import warmup_cosine

DONE = Path("build") / "mixup_regimes.jsonl"
NUM_VAL = 2000  # photographs to validate on
NETWORK = "vgg_tiny"  # from scratch
LR = 0.004  # peak learning rate of AdamW, in every training
POOL = 2000  # photographs; a smaller number is the first of these
PLAIN, SMALL_ALPHA = "1,000 images, plain", "mixup, α = 0.2"  # the smaller α is tried there alone
REGIMES = {  # training images, epochs, whether images are flipped and shifted
    PLAIN: {"train": 1000, "epochs": 20, "augmented": False},
    "2,000 images, augmented": {"train": 2000, "epochs": 16, "augmented": True},
}
VARIANTS: dict[str, dict] = {  # of the batch transform; the first one is the baseline
    "none": {},
    "mixup, α = 1": {"kind": "mixup", "alpha": 1.0},
    "CutMix, α = 1": {"kind": "cutmix", "alpha": 1.0},
    SMALL_ALPHA: {"kind": "mixup", "alpha": 0.2},
}
SEARCH_SEEDS = (100,)
REPORT_SEEDS = (0, 1, 2)
MEASURED = ("val_accuracy", "val_loss", "val_calibration_error")


def list_search() -> Iterator[dict]:
    for seed in SEARCH_SEEDS:
        for regime in REGIMES:
            for variant in VARIANTS:
                if variant != SMALL_ALPHA or regime == PLAIN:
                    yield {"part": "search", "regime": regime, "variant": variant, "seed": seed}


def choose(rows: list[dict]) -> tuple[str, str]:
    """The regime and the variant with the largest mean gain in accuracy of the search."""
    accuracies: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        accuracies.setdefault((row["regime"], row["variant"]), []).append(row["val_accuracy"])
    means = {place: statistics.mean(found) for place, found in accuracies.items()}
    gains = {
        (regime, variant): mean - means[regime, "none"]
        for (regime, variant), mean in means.items()
        if variant != "none"
    }
    return max(gains, key=lambda place: gains[place])


def list_report(regime: str, variant: str) -> Iterator[dict]:
    for seed in REPORT_SEEDS:
        for name in ("none", variant):
            yield {"part": "report", "regime": regime, "variant": name, "seed": seed}


def make_mixing(variant: str, num_classes: int) -> nn.Module | None:
    """torchvision's transform of the batch, or None for the baseline."""
    about = VARIANTS[variant]
    if not about:
        return None
    make = {"mixup": v2.MixUp, "cutmix": v2.CutMix}[about["kind"]]
    return make(alpha=about["alpha"], num_classes=num_classes)


def train(job: dict, data: ImageData) -> dict:
    """The job with what it measured."""
    about = REGIMES[job["regime"]]
    few = data.take_train(about["train"])
    run = fit(
        load_config("quick", dataset="photos").replace(progress=False),
        few,
        seed=job["seed"],
        model=NETWORK,
        batch_transform=make_mixing(job["variant"], few.num_classes),
        make_loader=ImageData.train_loader if about["augmented"] else ImageData.plain_loader,
        make_optimizer=partial(AdamW, lr=LR),
        make_schedule=warmup_cosine,
        trainer={"max_epochs": about["epochs"], "check_val_every_n_epoch": about["epochs"]},
        save=False,
    )
    measured = {name: round(run.metrics[name], 4) for name in MEASURED}
    return job | measured | {"time_s": round(run.time_s, 1)}


def main(
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Search, train the best again at other seeds, and keep both with their provenance."""
    torch.set_num_threads(1)
    config = load_config("quick", dataset="photos")
    data = load_data(config.replace(num_train=POOL, num_val=NUM_VAL, progress=False))
    train_on_data = partial(train, data=data)
    searched = run_missing(list_search(), train_on_data, DONE)
    regime, variant = choose(searched)
    reported = run_missing(list_report(regime, variant), train_on_data, DONE)
    if save:
        about = {"network": NETWORK, "lr": LR, "num_val": NUM_VAL, "regimes": REGIMES}
        chosen = {"regime": regime, "variant": variant}
        rows = [*searched, *reported]
        keep(
            Path(__file__).with_suffix(".json"),
            "lesson_code/mixup/study.py --save",
            **about,
            chosen=chosen,
            rows=rows,
        )


if __name__ == "__main__":
    typer.run(main)
