"""Images from files: `photos`, CIFAR-10, or a folder of the user's own.

An opener returns the targets of every image of a split, and a function that reads images, so
that only those that are used are decoded.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from course_utils.data.folder_reader import FolderReader
from course_utils.data.own_images import check_same_classes, find_images, list_classes
from course_utils.data.photos import open_photos
from course_utils.errors import CourseError
from course_utils.files import ROOT

__all__ = ["NAMED", "Opened", "open_cifar10", "open_folder", "open_images"]

NAMED = ("shapes", "photos", "cifar10")  # what is not a folder


class Opened(NamedTuple):
    """One split of a data set, of which no image has been decoded yet."""

    class_names: tuple[str, ...]
    targets: np.ndarray  # (N,) int64
    pick: Callable[[np.ndarray], np.ndarray]  # index (M,) to images (M, 32, 32, 3) uint8
    names: tuple[str, ...] = ()  # of the files in a folder of the user's own; of others none


def open_folder(folder: str, split: str = "train", progress: bool = False) -> Opened:
    """A folder of images: ``<folder>/{train,test}/<class>/*.jpg`` (see `own_images.READABLE`).

    What is done to images is said, such as cropping them to a square of 32×32, and so are the
    files that are not read. With ``progress``, a bar shows how far a long reading has got.

    Raises:
        CourseError: no such folder; fewer than two classes, or other ones in the other split; an
            empty class; images that are damaged, or there twice by a link.
    """
    root = Path(os.path.expanduser(folder))
    layout = f"expected {root / split}/<class>/<image>.jpg"
    if not root.is_dir():
        known = "shapes, photos, cifar10 or an existing folder"
        raise CourseError(f"no data set {folder!r}: use {known}")
    if not (root / split).is_dir():
        raise CourseError(f"{folder} has no folder {split}/: {layout}")
    classes = list_classes(root / split)
    if len(classes) < 2:
        raise CourseError(f"{root / split} needs two classes or more: {layout}")
    for other in {"train", "test"} - {split}:
        if (root / other).is_dir():
            check_same_classes(root, split, other)
    paths, targets = find_images(root / split, classes)
    reader = FolderReader(root, paths, progress)
    return Opened(tuple(classes), targets, reader, tuple(map(reader.name, paths)))


def open_cifar10(split: str = "train") -> Opened:
    """CIFAR-10 (A. Krizhevsky, 2009), downloaded once into ``COURSE_DATA_DIR`` and verified.

    Raises:
        CourseError: it cannot be downloaded, or the archive that is there is damaged.
    """
    from torchvision.datasets import CIFAR10

    default = ROOT / "data" / "cifar10"
    root = Path(os.path.expanduser(os.environ.get("COURSE_DATA_DIR") or default))
    archive = root / CIFAR10.filename
    if archive.exists() and _md5(archive) != CIFAR10.tgz_md5:
        raise CourseError(f"{archive} is damaged (wrong checksum): delete it and run again")
    try:
        found = CIFAR10(str(root), train=split == "train", download=True)
    except (OSError, RuntimeError) as error:  # no network, no space, a broken download
        raise CourseError(
            f"CIFAR-10 could not be downloaded ({error}): connect to a network once, put "
            f"{CIFAR10.filename} into {root}, or use COURSE_DATASET=shapes"
        ) from None
    return Opened(tuple(found.classes), np.array(found.targets), lambda index: found.data[index])


def open_images(dataset: str, split: str = "train", progress: bool = False) -> Opened:
    """One split of a data set that is not drawn: ``"photos"``, ``"cifar10"`` or a folder.

    ``progress``: show a bar for a long reading of a folder's images.

    Raises:
        CourseError: unknown data set; a folder, an archive or a sheet that cannot be used.
    """
    if dataset == "photos":
        return Opened(*open_photos(split))
    if dataset == "cifar10":
        return open_cifar10(split)
    return open_folder(dataset, split, progress)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()
