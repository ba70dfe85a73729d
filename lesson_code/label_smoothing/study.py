"""What lesson 06 reads: label smoothing from 0 to 0.5, and averages of calibrated networks.

The last stage of a network that was pretrained on photographs is fine-tuned on 500 others, once
until it has memorised them and once briefly. First, two learning rates are compared on seeds that
the lesson does not report. Then every smoothing is trained on three other seeds. Last, nine plain
networks are averaged in groups of three, and nine smoothed ones. Every temperature is fitted on
the first 1,000 validation images, and everything is reported on the other 2,000.

Each training's logits are written to ``--logits`` when it has ended. A second call goes on from
there. In one thread, about ten minutes on a slow core that is idle:

    OMP_NUM_THREADS=1 .venv/bin/python lesson_code/label_smoothing/study.py --save
"""

from functools import partial
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import torch.nn.functional as F
import typer
from torch import Tensor
from torch.optim import LBFGS, AdamW

from course_tools.study.keep import keep
from course_utils.config import load_config
from course_utils.data.image_data import ImageData
from course_utils.data.load import load_data
from course_utils.measure.calibration import FinalLogits, calibration_error
from course_utils.models.freeze import freeze_before
from course_utils.training.fit import fit
from course_utils.training.schedules import warmup_cosine

POOL, FEW, HELD_OUT, FITTED = 2000, 500, 3000, 1000  # images; T is fitted on FITTED of HELD_OUT
BATCH_SIZE = 32
EPOCHS = {"memorised": 16, "brief": 2}
LR = 0.003
OTHER_LR = 0.001  # trained on the search seeds alone, to compare with
SEARCH_SEEDS = (100, 101)
SEEDS = (0, 1, 2)
SMOOTHINGS = (0.0, 0.05, 0.1, 0.2, 0.5)
GROUPS = ((0, 1, 2), (10, 11, 12), (20, 21, 22))  # seeds of the networks that are averaged
GROUPED = (0.0, 0.1)  # their smoothings


def fit_temperature(logits: Tensor, targets: Tensor) -> float:
    """The T that minimises the cross-entropy of logits / T."""
    log_t = torch.zeros((), requires_grad=True)
    optimizer = LBFGS([log_t], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(logits / log_t.exp(), targets)
        loss.backward()
        return loss

    optimizer.step(closure)
    return log_t.exp().item()


def train(data: ImageData, regime: str, smoothing: float, lr: float, seed: int) -> Tensor:
    """Logits (N, C) of all validation images after one training."""
    epochs = EPOCHS[regime]
    run = fit(
        load_config("quick", dataset="photos"),
        data,
        seed=seed,
        pretrained=True,
        model_transform=partial(freeze_before, first_trained="layer4"),
        loss=partial(F.cross_entropy, label_smoothing=smoothing),
        make_loader=ImageData.plain_loader,
        make_optimizer=partial(AdamW, lr=lr),
        make_schedule=warmup_cosine,
        trainer={
            "max_epochs": epochs,
            "check_val_every_n_epoch": epochs,
            "callbacks": FinalLogits(data.eval_loader()),
        },
        save=False,
    )
    return run.callback(FinalLogits).logits


class Trainings:
    """Logits of trainings, each stored in a folder as soon as it has ended."""

    def __init__(self, folder: Path):
        config = load_config("quick", dataset="photos").replace(
            num_train=POOL, num_val=HELD_OUT, batch_size=BATCH_SIZE
        )
        self.data = load_data(config).take_train(FEW)
        self.targets = torch.as_tensor(self.data.val.targets)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def logits(self, regime: str, smoothing: float, seed: int, lr: float = LR) -> Tensor:
        path = self.folder / f"{regime}_{EPOCHS[regime]}_{smoothing:g}_{lr:g}_{seed}.pt"
        if not path.exists():
            torch.save(train(self.data, regime, smoothing, lr, seed), path)
            print(path.stem, flush=True)
        return torch.load(path)

    def split(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """The values of the images to fit T on, and of the images to report."""
        return values[:FITTED], values[FITTED:]


def describe(log_probabilities: Tensor, targets: Tensor) -> dict[str, float]:
    """Accuracy, mean confidence, calibration error (all in [0, 1]) and cross-entropy."""
    confidence, answers = log_probabilities.softmax(dim=1).max(dim=1)
    found = {
        "accuracy": (answers == targets).float().mean().item(),
        "confidence": confidence.mean().item(),
        "calibration_error": calibration_error(log_probabilities, targets),
        "loss": F.cross_entropy(log_probabilities, targets).item(),
    }
    return {name: round(value, 4) for name, value in found.items()}


def measure(trainings: Trainings, logits: Tensor) -> dict:
    """T of one network, and what its reported images show before and after it."""
    fitted, reported = trainings.split(logits)
    fitted_targets, targets = trainings.split(trainings.targets)
    temperature = fit_temperature(fitted, fitted_targets)
    return {
        "temperature": round(temperature, 4),
        "before": describe(reported, targets),
        "after": describe(reported / temperature, targets),
    }


def average(logits: list[Tensor], temperatures: list[float]) -> Tensor:
    """Logarithm of the mean of the networks' probabilities (N, C)."""
    scaled = [one / t for one, t in zip(logits, temperatures, strict=True)]
    return torch.stack([one.softmax(dim=1) for one in scaled]).mean(dim=0).log()


def measure_group(trainings: Trainings, logits: list[Tensor]) -> dict[str, dict]:
    """Three networks: each alone, averaged, averaged after scaling, and scaled after averaging."""
    fitted_targets, targets = trainings.split(trainings.targets)
    fitted = [trainings.split(one)[0] for one in logits]
    reported = [trainings.split(one)[1] for one in logits]
    ones = [1.0] * len(logits)
    temperatures = [fit_temperature(one, fitted_targets) for one in fitted]
    last = fit_temperature(average(fitted, ones), fitted_targets)
    alone = [describe(one, targets) for one in reported]
    calibrated = [describe(one / t, targets) for one, t in zip(reported, temperatures, strict=True)]
    return {
        "one network": pd.DataFrame(alone).mean().round(4).to_dict(),
        "one network, scaled": pd.DataFrame(calibrated).mean().round(4).to_dict(),
        "average": describe(average(reported, ones), targets),
        "average of scaled networks": describe(average(reported, temperatures), targets),
        "average, then scaled": describe(average(reported, ones) / last, targets),
    }


def main(
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
    logits: Annotated[Path, typer.Option(help="folder of the trainings' logits")] = Path(
        "build/smoothing_strengths"
    ),
) -> None:
    """Print, and keep, what the trainings show."""
    trainings = Trainings(logits)
    searched = [
        {"lr": lr, "seed": seed}
        | measure(trainings, trainings.logits("memorised", 0.0, seed, lr))["before"]
        for lr in (LR, OTHER_LR)
        for seed in SEARCH_SEEDS
    ]
    strengths = [
        {"regime": regime, "smoothing": smoothing, "seed": seed}
        | measure(trainings, trainings.logits(regime, smoothing, seed))
        for regime in EPOCHS
        for smoothing in SMOOTHINGS
        for seed in SEEDS
    ]
    groups = []
    for smoothing in GROUPED:
        for seeds in GROUPS:
            found = [trainings.logits("memorised", smoothing, seed) for seed in seeds]
            groups.append(
                {
                    "smoothing": smoothing,
                    "seeds": list(seeds),
                    "networks": [measure(trainings, one) for one in found],
                    "found": measure_group(trainings, found),
                }
            )
    print(pd.DataFrame(searched).to_string(index=False))
    print(pd.json_normalize(strengths).to_string(index=False))
    for group in groups:
        print(
            group["smoothing"], group["seeds"], pd.DataFrame(group["found"]).T.to_string(), sep="\n"
        )
    if save:
        keep(
            Path(__file__).with_suffix(".json"),
            "lesson_code/label_smoothing/study.py --save",
            train=FEW,
            epochs=EPOCHS,
            fitted_images=FITTED,
            reported_images=HELD_OUT - FITTED,
            batch_size=BATCH_SIZE,
            lr=LR,
            search_seeds=list(SEARCH_SEEDS),
            searched=searched,
            seeds=list(SEEDS),
            strengths=strengths,
            groups=groups,
        )


if __name__ == "__main__":
    typer.run(main)
