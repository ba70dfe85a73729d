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
from PIL import Image, ImageOps

from course_utils.data.photos import open_photos
from course_utils.data.shape_outlines import SHAPE_SETS
from course_utils.data.shapes import IMAGE_SIZE
from course_utils.errors import CourseError
from course_utils.files import ROOT

__all__ = ["NAMED", "open_cifar10", "open_folder", "open_images"]

NAMED = (*SHAPE_SETS, "photos", "cifar10")  # what is not a folder

PILLOW_ERRORS = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
Opened = tuple[tuple[str, ...], np.ndarray, Callable[[np.ndarray], np.ndarray]]


def _read_image(path: str) -> tuple[np.ndarray, bool]:
    """One image as ``(32, 32, 3)`` uint8, and whether it had to be resized."""
    try:
        with Image.open(path) as file:
            image: Image.Image = file
            if image.mode.startswith("I"):  # 16 bits of grey: convert would clip, not scale
                image = Image.fromarray((np.asarray(image) / 257).astype(np.uint8))
            rgb = image.convert("RGB")  # grey and RGBA images are welcome
    except PILLOW_ERRORS as error:
        raise CourseError(f"cannot read the image {path}: replace or delete it ({error})") from None
    if rgb.size == (IMAGE_SIZE, IMAGE_SIZE):
        return np.asarray(rgb), False
    return np.asarray(ImageOps.fit(rgb, (IMAGE_SIZE, IMAGE_SIZE))), True


def open_folder(folder: str, split: str = "train") -> Opened:
    """A folder of images: ``<folder>/{train,test}/<class>/*.jpg`` (or any format Pillow reads).

    Images of another size than 32×32 are cropped to a square and resized, which is said.

    Raises:
        CourseError: no such folder, fewer than two classes, an empty class, a broken image.
    """
    from torchvision.datasets import ImageFolder

    root = Path(folder).expanduser() / split
    layout = f"expected {root}/<class>/<image>.jpg"
    if not root.parent.is_dir():
        known = "shapes, photos, cifar10 or an existing folder"
        raise CourseError(f"no data set {folder!r}: use {known}")
    if not root.is_dir():
        raise CourseError(f"{folder} has no folder {split}/: {layout}")
    if sum(entry.is_dir() for entry in root.iterdir()) < 2:
        raise CourseError(f"{root} needs two classes or more: {layout}")
    try:
        found = ImageFolder(str(root))
    except FileNotFoundError as error:  # names the empty classes
        empty = str(error).partition(". Supported")[0]
        raise CourseError(f"{root}: {empty}: add images or delete the empty folder") from None

    def pick(index: np.ndarray) -> np.ndarray:
        read = [_read_image(found.samples[i][0]) for i in index]
        resized = sum(changed for _, changed in read)
        if resized:
            print(
                f"{resized:,} of {len(read):,} images are not {IMAGE_SIZE}×{IMAGE_SIZE}: resized."
            )
        return np.stack([image for image, _ in read])

    return tuple(found.classes), np.array(found.targets, dtype=np.int64), pick


def open_cifar10(split: str = "train") -> Opened:
    """CIFAR-10 (A. Krizhevsky, 2009), downloaded once into ``COURSE_DATA_DIR`` and verified.

    Raises:
        CourseError: it cannot be downloaded, or the archive that is there is damaged.
    """
    from torchvision.datasets import CIFAR10

    default = ROOT / "data" / "cifar10"
    root = Path(os.environ.get("COURSE_DATA_DIR") or default).expanduser()
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
