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
    dataset: str  # "photos", "glosses", "shapes", "cifar10", a folder of images or of texts
    model: str  # a name that `create_model` knows
    num_train: int | None  # examples in the training split; None: all there are
    num_val: int  # examples in the validation split
    epochs: int
    batch_size: int
    peak_lr: float  # learning rate of the baseline's AdamW
    num_seeds: int
    first_seed: int = 0
    progress: bool = False  # progress bars: for a person at the screen, not for stored outputs

    def __post_init__(self) -> None:
        """Raise a CourseError if the data set's name is bytes that no text can hold.

        It is written into notebooks and results, which are UTF-8.
        """
        try:
            self.dataset.encode("utf-8")
        except UnicodeEncodeError:
            name = os.fsencode(self.dataset).decode("utf-8", "backslashreplace")
            raise CourseError(f"the data set's folder {name} is not UTF-8: rename it") from None

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
        count = f"{self.num_train:,}" if self.num_train else "all the"
        return (
            f"profile {self.profile} · data {self.dataset}: up to {count} training and "
            f"{self.num_val:,} validation examples · model {self.model} · {epochs} "
            f"of batches of {self.batch_size} · seeds {', '.join(map(str, self.seeds))}"
        )


_QUICK = Config(  # what fits two cores, whatever the data
    "quick",
    "photos",
    model="convnet_small",
    num_train=1000,
    num_val=1000,
    epochs=8,
    batch_size=64,
    peak_lr=1e-3,
    num_seeds=3,
)
_TINY: dict[str, Any] = {
    "num_train": 320,
    "num_val": 200,
    "epochs": 1,
    "batch_size": 32,
    "num_seeds": 1,
}

PROFILES = {
    "smoke": _QUICK.replace(profile="smoke", **_TINY),
    "quick": _QUICK,
    "full": Config(
        "full",
        "cifar10",
        model="resnet18",
        num_train=None,
        num_val=5000,
        epochs=10,
        batch_size=128,
        peak_lr=1e-3,
        num_seeds=3,
    ),
}


def load_config(profile: str = "", *, dataset: str = "", first_seed: int | None = None) -> Config:
    """The frozen configuration of a lesson.

    An empty argument is taken from the environment (``COURSE_PROFILE``, ``COURSE_DATASET``,
    ``COURSE_FIRST_SEED``), then from the defaults: profile ``quick``, the profile's data set,
    seed 0. ``COURSE_PROGRESS=0`` turns progress bars off.

    Raises:
        CourseError: unknown profile; a seed that is not an integer ≥ 0; a data set's folder whose
            name is no text.
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
    dataset = dataset or os.environ.get("COURSE_DATASET") or config.dataset
    if dataset.startswith("~"):  # in `--dataset=~/mine` the shell leaves it as it is
        dataset = os.path.expanduser(dataset)
    return config.replace(
        dataset=dataset,
        first_seed=int(seed),
        progress=os.environ.get("COURSE_PROGRESS", "1") != "0",
    )
