"""A folder of the user's own images: which files of it are read, and what is said about them."""

import os
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from course_utils.errors import CourseError

__all__ = [
    "READABLE",
    "check_same_classes",
    "find_images",
    "list_classes",
    "walk_images",
    "write_out",
]

READABLE = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
SYSTEM_FOLDERS = {  # of network drives and systems: thumbnails, deleted files, copies
    "#recycle",
    "#snapshot",
    "$recycle.bin",
    "@eadir",
    "@recently-snapshot",
    "@recycle",
    "__macosx",
    "lost+found",
    "system volume information",
}


def write_out(name: str | Path) -> str:
    """A file's name as it can be printed.

    Letters are composed, so that é is one sign; bytes that are no UTF-8 are written as \\xe9.
    """
    printable = os.fsencode(name).decode("utf-8", "backslashreplace")
    return unicodedata.normalize("NFC", printable)


def _is_skipped(folder: str) -> bool:
    return folder.startswith(".") or folder.lower() in SYSTEM_FOLDERS


def list_classes(split: Path) -> dict[str, Path]:
    """The classes of a split and their folders, in order; hidden and system folders are none.

    A name has composed letters, however the file system writes them: Macs write é as two.

    Raises:
        CourseError: a name that figures would read as a formula; two names that look the same.
    """
    classes: dict[str, Path] = {}
    for folder in sorted(x for x in split.iterdir() if x.is_dir() and not _is_skipped(x.name)):
        name = write_out(folder.name)
        if "$" in name:
            raise CourseError(f"{folder}: figures read $ as a formula: rename the folder")
        if name in classes:
            raise CourseError(
                f"{split} has two folders {name} that look the same: one has its accents composed, "
                "the other, perhaps from a Mac, has not: put their images into one"
            )
        classes[name] = folder
    return dict(sorted(classes.items()))


def check_same_classes(root: Path, split: str, other: str) -> None:
    """Raise a CourseError that names the classes that only one of two splits has."""
    names = {part: list(list_classes(root / part)) for part in (split, other)}
    if names[split] == names[other]:
        return
    only = [
        f"{part}/ alone has {', '.join(map(_quote, missing))}"
        for part, missing in (
            (split, sorted(set(names[split]) - set(names[other]))),
            (other, sorted(set(names[other]) - set(names[split]))),
        )
        if missing
    ]
    raise CourseError(f"{write_out(root)}: {', and '.join(only)}: give both the same folders")


def _quote(name: str) -> str:
    """A class's name, in quotes if it has a space at its end or an invisible sign."""
    return name if name.isprintable() and name == name.strip() else repr(name)


def _walk(folder: Path, skipped: Counter[str]) -> Iterator[tuple[Path, Path]]:
    """``(path, real path)`` of each file below a folder that is not hidden, in order.

    Links to folders below it are not followed: one may lead back to where it lies. ``skipped``
    counts the folders that are left out by their names.
    """
    for parent, folders, files in os.walk(folder):
        skipped.update(name for name in folders if _is_skipped(name))
        folders[:] = sorted(name for name in folders if not _is_skipped(name))
        real = Path(parent).resolve()
        for name in sorted(files):
            path = Path(parent, name)
            if not name.startswith("."):
                # `Path.resolve` would raise an error of its own for a link to itself.
                yield path, Path(os.path.realpath(path)) if path.is_symlink() else real / name


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in READABLE and path.is_file()


def find_images(split: Path, classes: dict[str, Path]) -> tuple[list[Path], np.ndarray]:
    """The images of a split and their classes ``(N,)`` int64; says what is left out.

    Raises:
        CourseError: a class without images; an image that is there twice, by a link.
    """
    paths: list[Path] = []
    targets: list[int] = []
    left_out: Counter[str] = Counter()
    skipped = Counter(x.name for x in split.iterdir() if x.is_dir() and _is_skipped(x.name))
    where: dict[Path, Path] = {}  # real path to the path that was found first
    for target, folder in enumerate(classes.values()):
        for path, real in _walk(folder, skipped):
            if not _is_image(path):
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
    said = _list_counts(left_out)
    empty = sorted(set(range(len(classes))) - set(targets))
    if empty:
        missing = ", ".join(list(classes)[target] for target in empty)
        hint = f"; not read are {said}" if said else ""
        raise CourseError(
            f"{split}: no images of {missing}: add some ({', '.join(READABLE)}) or delete the "
            f"folder{hint}"
        )
    if said:
        print(f"Files in {write_out(split)} that are not read: {said}.")
    if skipped:
        print(f"Folders in {write_out(split)} that are not read: {_list_counts(skipped)}.")
    return paths, np.array(targets, dtype=np.int64)


def walk_images(root: Path) -> list[Path]:
    """All images in the classes of both splits, in order; says nothing."""
    splits = [root / split for split in ("train", "test") if (root / split).is_dir()]
    folders = [folder for split in splits for folder in list_classes(split).values()]
    return [path for one in folders for path, _ in _walk(one, Counter()) if _is_image(path)]


def _list_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {write_out(name)}" for name, count in sorted(counts.items()))
