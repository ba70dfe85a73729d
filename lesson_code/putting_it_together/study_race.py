"""A fair race: which recipe reaches which accuracy first, on two cores?

All rivals train on the same images of CIFAR-10, with the same validation images, and are
validated after each epoch. The speed-run is published with ten epochs. It and ours race at several
lengths, with schedules planned for the length. Test-time augmentation is off.

Accuracy and time are measured apart, because the accuracy after an epoch does not depend on what
else the machine does, and its seconds do. Three seeds of each rival are trained. Each training is
kept in ``build/race.jsonl`` as soon as it has ended, and those of the stored race are not trained
again, so that an interrupted race goes on another day, and one more rival costs its own trainings
only. The clock gives the seconds of an epoch of each recipe, at each size of its images, and a
curve adds up the medians. The stored clock is kept, unless ``--clock`` asks for a new one: then
the recipes take turns for `ROUNDS` rounds of whole epochs, validation included, and what is
imported, compiled and allocated once is not counted.

All trainings take about two hours on two cores with bf16, and a new clock a quarter of an hour,
during which nothing else should run:

    .venv/bin/python lesson_code/putting_it_together/study_race.py --dataset <CIFAR-10> --save
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from typing import Annotated

import lightning as L
import torch
import torch.nn.functional as F
import typer
from torch import nn

from course_tools.study.jobs import run_missing
from course_tools.study.keep import keep, name_data, round_curve
from course_utils.config import Config, load_config
from course_utils.data.augment import flip_and_shift
from course_utils.data.image_data import ImageData
from course_utils.data.load import load_data
from course_utils.data.loaders import BatchDataset
from course_utils.files import write_atomically
from course_utils.measure.provenance import describe_making, read_commit
from course_utils.models.airbench import WIDTHS, make_airbench94, whiten_stem
from course_utils.results import read_file
from course_utils.training.fit import fit
from course_utils.training.lit_classifier import NamedParameters
from course_utils.training.recipes import channels_last, from_scratch, rise_and_fall
from course_utils.training.run import seconds_to
from lesson_code.putting_it_together.recipes import from_backbone

DONE = Path("build") / "race.jsonl"
STORED = Path(__file__).with_suffix(".json")
GOALS = (0.6, 0.7, 0.8, 0.85, 0.9)
NUM_VAL = 5000
SEEDS = 3
ROUNDS = 3  # of the clock


@dataclass(frozen=True)
class Rival:
    """Who races: what it is called, what it does, where that is from.

    ``recipe`` is what it shares with rivals that only train for more or fewer epochs. In the first
    ``small_epochs`` the images have 24 × 24 pixels.
    """

    label: str
    settings: str
    source: str
    recipe: str
    epochs: int
    small_epochs: int = 0


RIVALS = {
    "speedrun": Rival(
        "speed-run, 10 epochs",
        "airbench94, written from its description: whitened stem, SGD with Nesterov momentum, "
        "larger learning rate for norms' biases, Lookahead, alternating flip, shifts of 2 pixels, "
        "smoothing 0.2, batches of 1,024, bf16",
        "K. Jordan, 94 % on CIFAR-10 in 3.29 Seconds on a Single GPU, arXiv 2404.00498, 2024",
        "speedrun",
        epochs=10,
    ),
    "speedrun_short": Rival(
        "speed-run, 3 epochs", "the same, shorter", "the same", "speedrun", epochs=3
    ),
    "speedrun_middle": Rival(
        "speed-run, 6 epochs", "the same, shorter", "the same", "speedrun", epochs=6
    ),
    "timm": Rival(
        "timm's ResNet-10-T",
        "timm's resnet10t from scratch, AdamW at 0.005 with warm-up and cosine, weight decay 0.05, "
        "smoothing 0.1, batches of 128, bf16",
        "R. Wightman, PyTorch Image Models (network); learning rate chosen here at seed 100",
        "timm",
        epochs=8,
    ),
    "scratch_short": Rival(
        "ours, from scratch, 3 epochs",
        "airbench94_half: the speed-run's network at half of its widths, its stem and its shifts; "
        "SGD with one learning rate, which falls to zero; a random flip, no Lookahead; batches of "
        "512, bf16",
        "lesson 12, course_utils/training/recipes.py",
        "scratch",
        epochs=3,
    ),
    "scratch": Rival("ours, from scratch, 6 epochs", "the same", "the same", "scratch", epochs=6),
    "scratch_wide": Rival(
        "ours, full width, 14 epochs",
        "the speed-run's network and settings; images of 24 × 24 pixels in the first seven epochs",
        "this course; progressive learning: M. Tan and Q. Le, EfficientNetV2",
        "wide",
        epochs=14,
        small_epochs=7,
    ),
    "backbone": Rival(
        "ours, from the backbone",
        "the full recipe of lesson 12 with more epochs: convnet_small pretrained on Tiny ImageNet "
        "(its training is not counted), AdamW at 0.002 with warm-up and cosine, batches of 64, "
        "bf16",
        "lesson 12, lesson_code/putting_it_together/recipes/from_backbone.py",
        "backbone",
        epochs=5,
    ),
}


class Lookahead(L.Callback):
    """Every fifth step, move the weights to their exponential mean, which follows them slower.

    The mean's memory grows with the cube of the progress. After the last step the mean is the
    result. Source: M. Zhang et al., Lookahead Optimizer, 2019; schedule as in the speed-run.
    """

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.mean = [tensor.clone() for tensor in self._tensors(pl_module)]

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_) -> None:
        step, total = trainer.global_step, int(trainer.estimated_stepping_batches)
        if step % 5 == 0:
            self._move(pl_module, decay=0.95**5 * (step / total) ** 3)
        if step == total:
            self._move(pl_module, decay=1.0)

    def _move(self, pl_module: L.LightningModule, decay: float) -> None:
        for mean, tensor in zip(self.mean, self._tensors(pl_module), strict=True):
            tensor.copy_(mean.lerp_(tensor, 1 - decay))

    @staticmethod
    def _tensors(pl_module: L.LightningModule) -> list[torch.Tensor]:
        """Weights and BatchNorm's statistics, without its counter of batches."""
        state = pl_module.model.state_dict().values()
        return [tensor for tensor in state if tensor.is_floating_point()]


class FreezeStemBias(L.Callback):
    """Train the bias of the whitened stem for three epochs, and no longer."""

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        pl_module.model.stem.conv.bias.requires_grad_(trainer.current_epoch < 3)


class AlternatingFlip:
    """Batches of a loader for the speed-run: every image is mirrored in every other epoch.

    Half of the images, drawn once, begin mirrored. Each image is also shifted by up to 2 pixels.
    """

    def __init__(self, data: ImageData, seed: int, batch_size: int):
        self.generator = torch.Generator().manual_seed(seed)
        self.data, self.batch_size, self.epoch = data, batch_size, 0
        mirrored = torch.rand(len(data.train), generator=self.generator) < 0.5
        self.images = data.train.images.copy()
        self.images[mirrored.numpy()] = self.images[mirrored.numpy(), :, ::-1]

    def __len__(self) -> int:
        return len(self.data.train) // self.batch_size

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        images = self.images if self.epoch % 2 == 0 else self.images[:, :, ::-1]
        self.epoch += 1
        shift = partial(flip_and_shift, generator=self.generator, max_shift=2, flip_probability=0.0)
        batches = BatchDataset(
            images, self.data.train.targets, self.data.mean, self.data.std, shift
        )
        return iter(
            batches.loader(self.batch_size, shuffle=True, drop_last=True, generator=self.generator)
        )


class SmallerFirst(AlternatingFlip):
    """As the speed-run's batches, with images of 24 × 24 pixels in the first epochs.

    Such an epoch takes little more than half of the time. The network pools over all places, so
    it takes both sizes. Source: M. Tan and Q. Le, EfficientNetV2, 2021 (progressive learning).
    """

    def __init__(self, data: ImageData, seed: int, batch_size: int, small_epochs: int):
        super().__init__(data, seed, batch_size)
        self.small_epochs = small_epochs

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        small = self.epoch < self.small_epochs
        for images, targets in super().__iter__():
            if small:
                images = F.interpolate(images, size=(24, 24), mode="bilinear", antialias=True)
            yield images, targets


def make_sgd(named_parameters: NamedParameters) -> torch.optim.SGD:
    """SGD for the speed-run: the norms' biases have 64 times the learning rate of the rest.

    Weight decay moves both by the same share in a step.
    """
    others = [(name, parameter) for name, parameter in named_parameters if "norm" not in name]
    biases = [(name, parameter) for name, parameter in named_parameters if "norm" in name]
    groups = [
        {"params": others, "lr": 1.5, "weight_decay": 1.33e-3},
        {"params": biases, "lr": 64 * 1.5, "weight_decay": 1.33e-3 / 64},
    ]
    return torch.optim.SGD(groups, momentum=0.85, nesterov=True)


def make_speedrun(num_classes: int, images: torch.Tensor) -> nn.Module:
    """The published network; ``images`` whiten its stem."""
    return whiten_stem(make_airbench94(num_classes, WIDTHS["airbench94"]), images)


def _speedrun(config: Config, data: ImageData) -> dict[str, object]:
    few, _ = next(iter(data.plain_loader(batch_size=5000)))
    return from_scratch(config, config.epochs) | {
        "model": partial(make_speedrun, images=few),
        "make_loader": partial(AlternatingFlip, batch_size=1024),
        "make_optimizer": make_sgd,
        "make_schedule": partial(rise_and_fall, final_div_factor=0.2 / 0.07),
        "trainer": {"precision": "bf16-mixed", "callbacks": [Lookahead(), FreezeStemBias()]},
    }


def _timm(config: Config) -> dict[str, object]:
    """Schedule and precision are those of our recipe for fine-tuning."""
    return from_backbone.recipe(config) | {
        "model": "timm/resnet10t",
        "pretrained": False,
        "make_loader": partial(ImageData.train_loader, batch_size=128),
        "model_transform": channels_last,
        "loss": partial(F.cross_entropy, label_smoothing=0.1),
        "make_optimizer": partial(torch.optim.AdamW, lr=0.005, weight_decay=0.05),
    }


def make_arguments(rival: Rival, config: Config, data: ImageData) -> dict[str, object]:
    """Arguments of `fit` of one rival."""
    config = config.replace(epochs=rival.epochs)
    if rival.recipe == "speedrun":
        arguments = _speedrun(config, data)
    elif rival.recipe == "wide":
        loader = partial(SmallerFirst, batch_size=1024, small_epochs=rival.small_epochs)
        arguments = _speedrun(config, data) | {"make_loader": loader}
    elif rival.recipe == "timm":
        arguments = _timm(config) | {"config": config}
    elif rival.recipe == "backbone":
        arguments = from_backbone.recipe(config) | {"config": config}
    else:
        arguments = from_scratch(config, config.epochs)
    return {"config": config, "data": data} | arguments


def train(job: dict, config: Config, data: ImageData) -> dict:
    """The job with its commit and the validation accuracy after each epoch."""
    run = fit(seed=job["seed"], save=False, **make_arguments(RIVALS[job["rival"]], config, data))
    accuracies = [round(accuracy, 4) for _, accuracy in run.curve]
    return job | {"accuracies": accuracies, "commit": read_commit()}


def restore_trainings(stored: Path, done: Path) -> None:
    """Write a stored race's trainings where `run_missing` finds them, unless a file is there."""
    if done.exists() or not stored.exists():
        return
    lines = []
    for row in read_file(stored)["rows"]:
        accuracies = [accuracy for _, accuracy in row.pop("curve")]
        lines.append(json.dumps(row | {"accuracies": accuracies}) + "\n")
    done.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(done, "".join(lines))


def list_jobs() -> list[dict]:
    return [
        {"rival": name, "seed": seed, "epochs": rival.epochs}
        for seed in range(SEEDS)
        for name, rival in RIVALS.items()
    ]


def shorten(rival: Rival) -> Rival:
    """The rival with one epoch at each size of its images."""
    small = min(rival.small_epochs, 1)
    return replace(rival, epochs=1 + small, small_epochs=small)


def time_epochs(config: Config, data: ImageData) -> dict[str, list[list[float]]]:
    """Of each recipe and round, the seconds of an epoch at each size of its images."""
    recipes = {rival.recipe: shorten(rival) for rival in RIVALS.values()}
    few = data.take_train(2048)
    for rival in recipes.values():  # what is imported, compiled and allocated once is not counted
        fit(save=False, **make_arguments(rival, config, few))
    seconds: dict[str, list[list[float]]] = {name: [] for name in recipes}
    for _ in range(ROUNDS):
        for name, rival in recipes.items():
            curve = fit(save=False, **make_arguments(rival, config, data)).curve
            ends = [0.0, *(end for end, _ in curve)]
            seconds[name].append([round(end - start, 2) for start, end in pairwise(ends)])
            print(name, seconds[name][-1], flush=True)
    return seconds


def make_curve(
    rival: Rival, accuracies: Sequence[float], rounds: Sequence[Sequence[float]]
) -> list[list[float]]:
    """``(seconds, accuracy)`` at the end of each epoch, from the seconds of `time_epochs`."""
    *small, full = (median(values) for values in zip(*rounds, strict=True))
    lengths = [*small] * rival.small_epochs + [full] * (rival.epochs - rival.small_epochs)
    return round_curve(zip(accumulate(lengths), accuracies, strict=True))


def report(rows: list[dict]) -> None:
    """Print each training's last accuracy and its seconds to each goal."""
    for row in rows:
        seconds = [f"{seconds_to(goal, row['curve']):6.0f}" for goal in GOALS]
        print(f"{row['rival']:15} {row['seed']} {row['curve'][-1]}", *seconds)


def main(
    dataset: Annotated[str, typer.Option(help="cifar10 or a folder with its images")] = "cifar10",
    clock: Annotated[bool, typer.Option(help="measure the seconds again")] = False,
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Train all rivals; print, and keep, validation accuracy over seconds."""
    config = load_config("quick", dataset=dataset).replace(
        num_train=None, num_val=NUM_VAL, progress=False
    )
    data = load_data(config)
    restore_trainings(STORED, DONE)
    rows = run_missing(list_jobs(), partial(train, config=config, data=data), DONE)
    timed = read_file(STORED)["clock"] if STORED.exists() and not clock else None
    timed = timed or describe_making() | {"seconds": time_epochs(config, data)}
    for row in rows:
        rival = RIVALS[row["rival"]]
        rounds = timed["seconds"][rival.recipe]
        row["curve"] = make_curve(rival, row.pop("accuracies"), rounds)
    report(rows)
    if save:
        keep(
            STORED,
            f"lesson_code/putting_it_together/study_race.py --dataset {Path(dataset).name} --save",
            dataset=name_data(dataset),
            num_train=len(data.train),
            num_val=len(data.val),
            goals=GOALS,
            rivals={name: asdict(rival) for name, rival in RIVALS.items()},
            hardware=timed["hardware"],  # of the seconds
            clock=timed,
            rows=rows,
        )


if __name__ == "__main__":
    typer.run(main)
