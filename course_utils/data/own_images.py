"""A folder of the user's own images: which files of it are read, and how."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from course_utils.data.shapes import IMAGE_SIZE
from course_utils.errors import CourseError

__all__ = ["PILLOW_ERRORS", "READABLE", "find_images", "list_classes", "read_image"]

READABLE = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
PILLOW_ERRORS = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


def read_image(path: Path) -> tuple[np.ndarray, bool]:
    """One image, upright, as ``(32, 32, 3)`` uint8, and whether it had to be resized.

    Raises:
        CourseError: it is damaged, or has more than 16 bits of grey.
    """
    try:
        with Image.open(path) as file:
            image: Image.Image = ImageOps.exif_transpose(file)  # cameras turn by a note, not pixels
            if image.mode in ("I", "F"):  # their range is not fixed, so they cannot be scaled
                raise ValueError("32 bits per pixel: save it with 8 or 16")
            if image.mode.startswith("I;16"):  # convert would clip, not scale
                image = Image.fromarray((np.asarray(image) / 257).astype(np.uint8))
            rgb = image.convert("RGB")  # grey and RGBA images are welcome
    except PILLOW_ERRORS as error:
        raise CourseError(f"cannot read the image {path}: replace or delete it ({error})") from None
    if rgb.size == (IMAGE_SIZE, IMAGE_SIZE):
        return np.asarray(rgb), False
    return np.asarray(ImageOps.fit(rgb, (IMAGE_SIZE, IMAGE_SIZE))), True


def list_classes(split: Path) -> list[str]:
    """The folders in the folder of a split, in order; hidden ones are no classes.

    Raises:
        CourseError: a name that figures would read as a formula.
    """
    names = sorted(x.name for x in split.iterdir() if x.is_dir() and not x.name.startswith("."))
    for name in names:
        if "$" in name:
            raise CourseError(f"{split / name}: figures read $ as a formula: rename the folder")
    return names


def _walk(folder: Path) -> Iterator[tuple[Path, Path]]:
    """``(path, real path)`` of each file below a folder that is not hidden, in order.

    Links to folders below it are not followed: one may lead back to where it lies.
    """
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        real = Path(parent).resolve()
        for name in sorted(files):
            path = Path(parent, name)
            if not name.startswith("."):
                # `Path.resolve` would raise an error of its own for a link to itself.
                yield path, Path(os.path.realpath(path)) if path.is_symlink() else real / name


def find_images(split: Path, classes: list[str]) -> tuple[list[Path], np.ndarray]:
    """The images of a split and their classes ``(N,)`` int64; says which files are left out.

    Raises:
        CourseError: a class without images; an image that is there twice, by a link.
    """
    paths: list[Path] = []
    targets: list[int] = []
    left_out: Counter[str] = Counter()
    where: dict[Path, Path] = {}  # real path to the path that was found first
    for target, name in enumerate(classes):
        for path, real in _walk(split / name):
            if path.suffix.lower() not in READABLE or not path.is_file():
                left_out[path.suffix.lower() or "without an ending"] += 1
                continue
            if real in where:
                raise CourseError(
                    f"{path} and {where[real]} are the same file: delete the link, or the same "
                    "image may be trained on and validated with"
                )
            where[real] = path
            paths.append(path)
            targets.append(target)
    said = ", ".join(f"{count:,} {ending}" for ending, count in sorted(left_out.items()))
    empty = sorted(set(range(len(classes))) - set(targets))
    if empty:
        missing = ", ".join(classes[target] for target in empty)
        hint = f"; not read are {said}" if said else ""
        raise CourseError(
            f"{split}: no images of {missing}: add some ({', '.join(READABLE)}) or delete the "
            f"folder{hint}"
        )
    if said:
        print(f"Files in {split} that are not read: {said}.")
    return paths, np.array(targets, dtype=np.int64)
