"""What lesson 06 reads: smoothing, mixup and one temperature, over ten paired seeds.

The last stage of a network that was pretrained on photographs is fine-tuned on 500 others, once
until it has memorised them and once briefly. First, two learning rates are compared on seeds that
the lesson does not report. Then plain trainings and trainings with ε = 0.1 are run on ten other
seeds; three more ε and, memorised only, mixup on the first three of these. Last, nine of the plain
networks are averaged in groups of three, and nine of the smoothed ones. Every temperature and
every threshold is chosen on the first 1,000 validation images, and everything is reported on the
other 2,000.

Each training's logits are written to ``--logits`` when it has ended. A second call goes on from
there. In one thread, about a quarter of an hour on a slow core that is idle:

    OMP_NUM_THREADS=1 .venv/bin/python lesson_code/label_smoothing/study.py --save
"""

from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
import typer
from scipy import stats
from torch import Tensor
from torch.distributions import Categorical
from torch.optim import LBFGS, AdamW
from torchvision.transforms import v2

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
SEEDS = tuple(range(10))  # of ε = 0 and 0.1
FEWER_SEEDS = (0, 1, 2)  # of the other ε, and of mixup
SMOOTHINGS = {0.0: SEEDS, 0.05: FEWER_SEEDS, 0.1: SEEDS, 0.2: FEWER_SEEDS, 0.5: FEWER_SEEDS}
GROUPS = ((0, 1, 2), (3, 4, 5), (6, 7, 8))  # seeds of the networks that are averaged
GROUPED = (0.0, 0.1)  # their smoothings
THRESHOLD = GOAL = 0.9  # a confidence that is believed; an accuracy that is wanted
LEVELS = torch.arange(0.1, 1.01, 0.1)  # of confidence, ±0.05, in a reliability diagram
DRAWS = 20  # of the right classes of a perfectly calibrated network
FEWEST = 20  # answers at a level, at each seed


class Variant(NamedTuple):
    """What differs between the trainings."""

    smoothing: float = 0.0
    mixup: bool = False

    def name(self) -> str:
        return "mixup" if self.mixup else f"ε = {self.smoothing:g}"


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


def train(data: ImageData, regime: str, variant: Variant, lr: float, seed: int) -> Tensor:
    """Logits (N, C) of all validation images after one training."""
    epochs = EPOCHS[regime]
    run = fit(
        load_config("quick", dataset="photos"),
        data,
        seed=seed,
        pretrained=True,
        model_transform=partial(freeze_before, first_trained="layer4"),
        loss=partial(F.cross_entropy, label_smoothing=variant.smoothing),
        batch_transform=v2.MixUp(alpha=1.0, num_classes=10) if variant.mixup else None,
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

    def logits(self, regime: str, variant: Variant, seed: int, lr: float = LR) -> Tensor:
        what = "mixup" if variant.mixup else f"{variant.smoothing:g}"
        path = self.folder / f"{regime}_{EPOCHS[regime]}_{what}_{lr:g}_{seed}.pt"
        if not path.exists():
            torch.save(train(self.data, regime, variant, lr, seed), path)
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


def choose_threshold(confidence: Tensor, right: Tensor) -> float:
    """The lowest threshold at which the accepted answers reach the accuracy ``GOAL``."""
    ordered, order = confidence.sort(descending=True)
    accuracy = right[order].cumsum(dim=0) / torch.arange(1, len(order) + 1)
    enough = (accuracy >= GOAL).nonzero()[:, 0]
    return ordered[enough[-1]].item() if len(enough) else torch.inf


def accept(confidence: Tensor, right: Tensor, threshold: float) -> dict[str, float | None]:
    """Share of the answers at or above a threshold, and their accuracy; None: there is none."""
    accepted = confidence >= threshold
    accuracy = round(right[accepted].mean().item(), 4) if accepted.any() else None
    return {"coverage": round(accepted.float().mean().item(), 4), "accuracy": accuracy}


def judge(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Of each answer its confidence and 1 if it is right, else 0, both (N,)."""
    confidence, answers = logits.softmax(dim=1).max(dim=1)
    return confidence, (answers == targets).float()


def measure(trainings: Trainings, logits: Tensor) -> dict:
    """T of one network, and what its reported images show before and after it.

    ``chance`` is the calibration error after it if the right classes are drawn from the scaled
    probabilities, so that the network is perfectly calibrated: the mean of ``DRAWS`` draws.
    """
    fitted, reported = trainings.split(logits)
    fitted_targets, targets = trainings.split(trainings.targets)
    temperature = fit_temperature(fitted, fitted_targets)
    torch.manual_seed(0)
    drawn = Categorical(logits=reported / temperature).sample((DRAWS,))
    by_chance = [calibration_error(reported / temperature, classes) for classes in drawn]
    measured: dict = {
        "temperature": round(temperature, 4),
        "chance": round(float(np.mean(by_chance)), 4),
    }
    for when, t in (("before", 1.0), ("after", temperature)):
        answers = judge(reported / t, targets)
        threshold = choose_threshold(*judge(fitted / t, fitted_targets))
        measured[when] = describe(reported / t, targets) | {
            "believed": accept(*answers, THRESHOLD),
            "chosen": accept(*answers, threshold),
        }
    return measured


def measure_levels(trainings: Trainings, networks: list[Tensor], scale: bool) -> list[dict]:
    """Confidence and accuracy at each level with enough answers, and a 95 % interval over seeds.

    ``share`` is of all answers.
    """
    fitted_targets, targets = trainings.split(trainings.targets)
    judged = []
    for logits in networks:
        fitted, reported = trainings.split(logits)
        t = fit_temperature(fitted, fitted_targets) if scale else 1.0
        judged.append(judge(reported / t, targets))
    levels = []
    for level in LEVELS:
        near = [(confidence - level).abs() < 0.05 for confidence, _ in judged]
        if min(int(chosen.sum()) for chosen in near) < FEWEST:
            continue
        pairs = list(zip(judged, near, strict=True))
        accuracies = [right[chosen].mean().item() for (_, right), chosen in pairs]
        mean, error = float(np.mean(accuracies)), stats.sem(accuracies)
        low, high = stats.t.interval(0.95, len(accuracies) - 1, mean, error)
        confidence = [certainty[chosen].mean().item() for (certainty, _), chosen in pairs]
        shares = [chosen.float().mean().item() for chosen in near]
        numbers = {"confidence": np.mean(confidence), "accuracy": mean, "low": low, "high": high}
        numbers |= {"share": np.mean(shares)}
        levels.append({name: round(float(value), 4) for name, value in numbers.items()})
    return levels


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


def measure_search(trainings: Trainings) -> list[dict]:
    """Plain trainings at both learning rates, on seeds that are not reported."""
    return [
        {"lr": lr, "seed": seed}
        | measure(trainings, trainings.logits("memorised", Variant(), seed, lr))["before"]
        for lr in (LR, OTHER_LR)
        for seed in SEARCH_SEEDS
    ]


def measure_variants(trainings: Trainings) -> tuple[list[dict], list[dict]]:
    """A row for each training, and the levels of the variants with all seeds."""
    plans = [
        (regime, Variant(smoothing), seeds)
        for regime in EPOCHS
        for smoothing, seeds in SMOOTHINGS.items()
    ]
    plans.append(("memorised", Variant(mixup=True), FEWER_SEEDS))
    rows, levels = [], []
    for regime, variant, seeds in plans:
        networks = [trainings.logits(regime, variant, seed) for seed in seeds]
        about = {"regime": regime, "variant": variant.name(), "epochs": EPOCHS[regime]}
        if not variant.mixup:
            about["smoothing"] = variant.smoothing
        for seed, network in zip(seeds, networks, strict=True):
            measured = measure(trainings, network)
            accuracy = measured["before"]["accuracy"]  # a temperature does not change it
            rows.append(about | {"seed": seed, "accuracy": accuracy} | measured)
        if seeds == SEEDS:
            for when in ("before", "after"):
                numbers = measure_levels(trainings, networks, scale=when == "after")
                levels += [about | {"when": when} | level for level in numbers]
    return rows, levels


def measure_groups(trainings: Trainings) -> list[dict]:
    """The averages of three networks each."""
    groups = []
    for smoothing in GROUPED:
        for seeds in GROUPS:
            networks = [trainings.logits("memorised", Variant(smoothing), seed) for seed in seeds]
            averages = measure_group(trainings, networks)
            groups.append({"smoothing": smoothing, "seeds": list(seeds), "averages": averages})
    return groups


def main(
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
    logits: Annotated[Path, typer.Option(help="folder of the trainings' logits")] = Path(
        "build/smoothing_strengths"
    ),
) -> None:
    """Print, and keep, what the trainings show."""
    trainings = Trainings(logits)
    searched = measure_search(trainings)
    rows, levels = measure_variants(trainings)
    groups = measure_groups(trainings)
    print(pd.DataFrame(searched).to_string(index=False))
    print(pd.json_normalize(rows).to_string(index=False))
    for group in groups:
        print(
            group["smoothing"],
            group["seeds"],
            pd.DataFrame(group["averages"]).T.to_string(),
            sep="\n",
        )
    if save:
        keep(
            Path(__file__).with_suffix(".json"),
            "lesson_code/label_smoothing/study.py --save",
            dataset="photos",
            num_train=FEW,
            epochs=EPOCHS,
            fitted_images=FITTED,
            reported_images=HELD_OUT - FITTED,
            batch_size=BATCH_SIZE,
            lr=LR,
            search_seeds=list(SEARCH_SEEDS),
            searched=searched,
            seeds=list(SEEDS),
            fewer_seeds=list(FEWER_SEEDS),
            threshold=THRESHOLD,
            goal=GOAL,
            rows=rows,
            levels=levels,
            groups=groups,
        )


if __name__ == "__main__":
    typer.run(main)
