"""The images of a race: those that recipes train on, and the hidden ones that judge them."""

import hashlib
import io
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from course_tools.grade.strangers import read_regular
from course_utils.config import Config
from course_utils.data.image_data import ImageData, Images
from course_utils.data.photos import PHOTOS
from course_utils.data.reduced_copies import find_copies_folder
from course_utils.errors import CourseError
from course_utils.files import ROOT

__all__ = [
    "HiddenSplit",
    "decode_data",
    "describe_data",
    "encode_classes",
    "encode_data",
    "list_forbidden",
]

CIFAR10 = ("cifar-10-batches-py", "cifar-10-python.tar.gz")  # as torchvision stores it
CLASS = np.dtype("<i8")
WRONG = "its predictions are not one class for each image: return logits (N, classes)"


@dataclass(frozen=True)
class HiddenSplit:
    """The test split, which no recipe sees; recipes get its images without classes at the end.

    ``order`` is a random one, because the position of an image in a data set may tell its class.
    """

    images: np.ndarray  # (N, H, W, 3) uint8
    targets: np.ndarray  # (N,) int64
    order: np.ndarray  # (N,) a permutation

    @classmethod
    def open(cls, data: ImageData) -> "HiddenSplit":
        """The test split of ``data``, in an order that cannot be predicted.

        Raises:
            CourseError: the data have no test split.
        """
        test = data.open_test()
        rng = np.random.default_rng(secrets.randbits(128))
        return cls(test.images, test.targets, rng.permutation(len(test)))

    def encode_images(self) -> bytes:
        """The images in random order, as a file of NumPy."""
        file = io.BytesIO()
        np.save(file, self.images[self.order])
        return file.getvalue()

    def judge(self, path: Path) -> float:
        """The accuracy in [0, 1] of the predicted classes in a file, as `encode_classes` wrote it.

        The file is written by a process that runs the code of others, so nothing in it is
        believed: it has to hold one class for each image, and has no header that could lie.

        Raises:
            CourseError: it holds something else.
        """
        expected = CLASS.itemsize * len(self.targets)
        try:
            content = read_regular(path, expected)
        except OSError:
            raise CourseError(WRONG) from None
        if len(content) != expected:
            raise CourseError(WRONG)
        predicted = np.frombuffer(content, CLASS)
        return float((predicted == self.targets[self.order]).mean())

    def digest(self) -> str:
        """What tells this split from others; rows of one leaderboard share it."""
        content = np.ascontiguousarray(self.images).tobytes() + self.targets.tobytes()
        return hashlib.sha256(content).hexdigest()[:16]


def encode_classes(classes: np.ndarray) -> bytes:
    """Predicted classes ``(N,)`` for `HiddenSplit.judge`: eight bytes each, and nothing else."""
    return classes.astype(CLASS).tobytes()


def encode_data(data: ImageData) -> bytes:
    """Training and validation images, as a file of NumPy; the test split is not in it."""
    file = io.BytesIO()
    np.savez(
        file,
        train_images=data.train.images,
        train_targets=data.train.targets,
        val_images=data.val.images,
        val_targets=data.val.targets,
    )
    return file.getvalue()


def describe_data(data: ImageData) -> dict:
    """What `decode_data` needs beside the arrays, ready for JSON."""
    names = ("name", "class_names", "mean", "std", "batch_size")
    return {name: getattr(data, name) for name in names}


def _refuse() -> NoReturn:
    raise CourseError("it opens the test split, which judges the race: validate on data.val")


def decode_data(path: Path, about: dict) -> ImageData:
    """The data of a race, in the process of a recipe. To open their test split is refused."""
    with np.load(path, allow_pickle=False) as arrays:
        train = Images(arrays["train_images"], arrays["train_targets"])
        val = Images(arrays["val_images"], arrays["val_targets"])
    rest: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in about.items()
    }
    return ImageData(
        train=train,
        val=val,
        open_test=_refuse,
        **rest,
    )


def list_forbidden(config: Config) -> list[str]:
    """Real paths that may hold the hidden images. A recipe has no reason to open them.

    They are as narrow as can be: a folder of data may hold other things, Python among them.
    """
    downloads = [ROOT / "data" / "cifar10"]
    if os.environ.get("COURSE_DATA_DIR"):
        downloads.append(Path(os.path.expanduser(os.environ["COURSE_DATA_DIR"])))
    downloaded = [folder / name for folder in downloads for name in CIFAR10]
    paths = [PHOTOS, find_copies_folder(), *downloaded]
    if Path(config.dataset).is_dir():
        for split in ("train", "test"):
            paths += [Path(config.dataset, split), *_list_linked(Path(config.dataset, split))]
    return list(dict.fromkeys(map(os.path.realpath, paths)))


def _list_linked(folder: Path) -> list[Path]:
    """The folders in which images lie that are only linked from ``folder``."""
    links = [path for path in folder.rglob("*") if path.is_symlink()]
    real = [Path(os.path.realpath(path)) for path in links]
    return sorted({path if path.is_dir() else path.parent for path in real})
