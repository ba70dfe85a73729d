"""`photos`: 10,000 photographs of CIFAR-10 that come with the course, as contact sheets.

A contact sheet is one JPEG file with all photographs of a class and a split, as tiles of 32×32
pixels. ``data/README.md`` says where the photographs come from, and
`scripts.make_photos` makes the sheets.
"""

import hashlib
import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from course_utils.data.described import read_description
from course_utils.data.shapes import IMAGE_SIZE
from course_utils.errors import CourseError
from course_utils.files import ROOT

__all__ = ["DESCRIPTION", "PHOTOS", "cut_sheet", "describe_photos", "open_photos", "read_sheet"]

PHOTOS = ROOT / "data" / "photos"
DESCRIPTION = "photos.json"  # classes, checksums, seed, what the format loses
NEEDED = {"classes", "tiles", "columns", "sheets"}
FIX = "restore it with `git checkout data/photos`, or use COURSE_DATASET=shapes"


def describe_photos(folder: Path = PHOTOS) -> dict:
    """What the sheets hold: classes, tiles, columns, seed, source, PSNR, sha256 of every sheet.

    Raises:
        CourseError: no JSON there, or one that cannot be read.
    """
    return read_description(folder / DESCRIPTION, NEEDED, FIX)


def cut_sheet(content: bytes, count: int, columns: int) -> np.ndarray:
    """Decode a sheet and cut it into its first ``count`` tiles ``(count, 32, 32, 3)`` uint8."""
    with Image.open(io.BytesIO(content)) as image:
        sheet = np.asarray(image.convert("RGB"))
    tiles = sheet.reshape(-1, IMAGE_SIZE, columns, IMAGE_SIZE, 3).swapaxes(1, 2)
    return tiles.reshape(-1, IMAGE_SIZE, IMAGE_SIZE, 3)[:count]


def read_sheet(name: str, about: dict, folder: Path = PHOTOS) -> np.ndarray:
    """The photographs of the sheet ``<split>_<class>``, ``(N, 32, 32, 3)`` uint8.

    ``about`` is what `describe_photos` returns. The checksum is compared before decoding.

    Raises:
        CourseError: no such file, or one whose sha256 is not the one that ``about`` names.
    """
    path = folder / f"{name}.jpg"
    try:
        content = path.read_bytes()
    except OSError:
        raise CourseError(f"{path} is missing: {FIX}") from None
    if hashlib.sha256(content).hexdigest() != about["sheets"].get(name, {}).get("sha256"):
        raise CourseError(f"{path} is damaged (wrong checksum): {FIX}")
    split = name.partition("_")[0]
    return cut_sheet(content, about["tiles"][split], about["columns"][split])


def open_photos(
    split: str = "train", folder: Path = PHOTOS
) -> tuple[tuple[str, ...], np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """The photographs of one split, as the openers in `course_utils.data.sources` return them.

    Each run of ten photographs holds every class once: photograph i is tile i // 10 on the sheet
    of class i % 10. ``pick`` decodes only sheets that it needs, and each of them once.

    Args:
        split: ``"train"`` (the pool of 8,000 for training and validation) or ``"test"`` (2,000).

    Raises:
        CourseError: a missing or damaged file; sheets are read when ``pick`` is called.
    """
    about = describe_photos(folder)
    class_names, count = tuple(about["classes"]), about["tiles"][split]
    targets = np.tile(np.arange(len(class_names)), count)
    read = partial(read_sheet, about=about, folder=folder)
    sheets: dict[int, np.ndarray] = {}

    def pick(index: np.ndarray) -> np.ndarray:
        tiles, labels = np.divmod(index, len(class_names))
        missing = [label for label in np.unique(labels).tolist() if label not in sheets]
        names = [f"{split}_{class_names[label]}" for label in missing]
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # decoding releases Python's lock
            sheets.update(zip(missing, pool.map(read, names), strict=True))
        images = np.empty((len(index), IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
        for label in np.unique(labels).tolist():
            of_class = labels == label
            images[of_class] = sheets[label][tiles[of_class]]
        return images

    return class_names, targets, pick
