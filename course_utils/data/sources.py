"""Images from files: `photos`, CIFAR-10, or a folder of the user's own.

All openers return ``(class_names, targets, pick)``: ``targets`` ``(N,)`` int64 of every image
of the split, and ``pick(index)`` that reads the images ``(len(index), 32, 32, 3)`` uint8, so
that only those that are used are decoded.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from course_utils.data.own_images import find_images, list_classes, read_image
from course_utils.data.photos import open_photos
from course_utils.data.shapes import IMAGE_SIZE
from course_utils.errors import CourseError
from course_utils.files import ROOT

__all__ = ["NAMED", "open_cifar10", "open_folder", "open_images"]

NAMED = ("shapes", "photos", "cifar10")  # what is not a folder

Opened = tuple[tuple[str, ...], np.ndarray, Callable[[np.ndarray], np.ndarray]]


def open_folder(folder: str, split: str = "train") -> Opened:
    """A folder of images: ``<folder>/{train,test}/<class>/*.jpg`` (see `own_images.READABLE`).

    Images of another size than 32×32 are cropped to a square and resized, which is said, and so
    are the files that are not read.

    Raises:
        CourseError: no such folder; fewer than two classes, or other ones in the other split; an
            empty class; an image that is broken, or there twice by a link.
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
        if (root / other).is_dir() and list_classes(root / other) != classes:
            raise CourseError(
                f"{root}: {split} has the classes {', '.join(classes)}, {other} has "
                f"{', '.join(list_classes(root / other))}: give both the same folders"
            )
    paths, targets = find_images(root / split, classes)

    def pick(index: np.ndarray) -> np.ndarray:
        read = [read_image(paths[i]) for i in index]
        resized = sum(changed for _, changed in read)
        if resized:
            print(
                f"{resized:,} of {len(read):,} images are not {IMAGE_SIZE}×{IMAGE_SIZE}: resized."
            )
        return np.stack([image for image, _ in read])

    return tuple(classes), targets, pick


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
    return tuple(found.classes), np.array(found.targets), lambda index: found.data[index]


def open_images(dataset: str, split: str = "train") -> Opened:
    """One split of a data set that is not drawn: ``"photos"``, ``"cifar10"`` or a folder.

    Raises:
        CourseError: unknown data set; a folder, an archive or a sheet that cannot be used.
    """
    if dataset == "photos":
        return open_photos(split)
    if dataset == "cifar10":
        return open_cifar10(split)
    return open_folder(dataset, split)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()
