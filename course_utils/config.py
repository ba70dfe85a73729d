"""Profiles: one word decides the size of everything a lesson trains."""

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

from course_utils.errors import CourseError

__all__ = ["PROFILES", "Config", "load_config"]


@dataclass(frozen=True)
class Config:
    """What a lesson trains, frozen: made by `load_config`, varied with `replace`."""

    profile: str
    dataset: str  # "photos", "shapes", "cifar10" or a folder of images
    model: str  # a name that `create_model` knows
    num_train: int | None  # images in the training split; None: all there are
    num_val: int  # images in the validation split
    epochs: int
    batch_size: int
    peak_lr: float  # learning rate of the baseline's AdamW
    num_workers: int  # loader processes; 0: load in the main process
    num_seeds: int
    augmentation: str = "batched"  # a batch at a time, or "albumentations", image by image
    first_seed: int = 0
    progress: bool = False  # progress bars: for a person at the screen, not for stored outputs

    @property
    def seeds(self) -> tuple[int, ...]:
        """The paired seeds of every comparison: ``first_seed, first_seed + 1, …``."""
        return tuple(range(self.first_seed, self.first_seed + self.num_seeds))

    def replace(self, **changes) -> "Config":
        """A copy with ``changes``."""
        return dataclasses.replace(self, **changes)

    def describe(self) -> str:
        """One line for the reader: what will run."""
        epochs = "1 epoch" if self.epochs == 1 else f"{self.epochs} epochs"
        images = f"{self.num_train:,}" if self.num_train else "all the"
        return (
            f"profile {self.profile} · data {self.dataset}: up to {images} training and "
            f"{self.num_val:,} validation images · model {self.model} · {epochs} "
            f"of batches of {self.batch_size} · seeds {', '.join(map(str, self.seeds))}"
        )


# What a data set needs on two cores, in `smoke` and `quick`. Everything but the drawn shapes is
# taken for photographs: CIFAR-10, and a folder of one's own images.
_SHAPES: dict[str, Any] = {
    "model": "resnet_tiny",
    "epochs": 9,
    "batch_size": 32,
    "peak_lr": 1e-3,
    "augmentation": "albumentations",
}
_PHOTOS: dict[str, Any] = {
    "model": "convnet_small",
    "epochs": 8,
    "batch_size": 64,
    "peak_lr": 1e-3,
    "augmentation": "batched",
}
_TINY: dict[str, Any] = {"epochs": 1, "batch_size": 32}  # `smoke`, whatever the data

PROFILES = {
    "smoke": Config(
        "smoke", "shapes", num_train=320, num_val=200, num_workers=0, num_seeds=1, **_SHAPES | _TINY
    ),
    "quick": Config(
        "quick", "shapes", num_train=1000, num_val=1000, num_workers=0, num_seeds=3, **_SHAPES
    ),
    "full": Config(
        "full",
        "cifar10",
        model="resnet18",
        num_train=None,
        num_val=5000,
        epochs=10,
        batch_size=128,
        peak_lr=1e-3,
        num_workers=4,
        num_seeds=3,
    ),
}


def _settings_of(profile: str, dataset: str) -> dict[str, Any]:
    """What a profile changes for a data set; `full` is the same for all."""
    if profile == "full":
        return {}
    settings = _SHAPES if dataset.startswith("shapes") else _PHOTOS
    return settings | _TINY if profile == "smoke" else settings


def load_config(
    profile: str = "", *, dataset: str = "", default: str = "", first_seed: int | None = None
) -> Config:
    """The frozen configuration of a lesson.

    An empty argument is taken from the environment (``COURSE_PROFILE``, ``COURSE_DATASET``,
    ``COURSE_FIRST_SEED``), then from the defaults: profile ``quick``, data set ``default`` or that
    of the profile, seed 0. Model, epochs, batch size and learning rate suit the data set.
    ``COURSE_PROGRESS=0`` turns progress bars off.

    Args:
        default: the data set that a lesson is written for; ignored in ``full``.

    Raises:
        CourseError: unknown profile; a seed that is not an integer ≥ 0.
    """
    profile = profile or os.environ.get("COURSE_PROFILE") or "quick"
    if profile not in PROFILES:
        raise CourseError(f"no profile {profile!r}: choose from {', '.join(PROFILES)}")
    seed = str(os.environ.get("COURSE_FIRST_SEED") or 0 if first_seed is None else first_seed)
    if not seed.isdecimal() or len(seed) > 10 or int(seed) >= 2**31:
        raise CourseError(
            f"first seed (COURSE_FIRST_SEED) {seed[:20]!r} is not an integer from 0 to 2³¹ - 1: "
            "take 0, 1, 2 …"
        )
    config = PROFILES[profile]
    default = config.dataset if profile == "full" else default or config.dataset
    dataset = dataset or os.environ.get("COURSE_DATASET") or default
    if dataset.startswith("~"):  # in `--dataset=~/mine` the shell leaves it as it is
        dataset = os.path.expanduser(dataset)
    return config.replace(
        dataset=dataset,
        first_seed=int(seed),
        progress=os.environ.get("COURSE_PROGRESS", "1") != "0",
        **_settings_of(profile, dataset),
    )
