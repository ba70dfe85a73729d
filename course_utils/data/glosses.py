"""`glosses`: 17,000 definitions of WordNet and the kinds of what they define, and 87,000 others.

`scripts.make_glosses` makes the files; ``data/README.md`` says where the definitions come from.
"""

import hashlib
import lzma
from pathlib import Path

import numpy as np

from course_utils.data.described import read_description
from course_utils.errors import CourseError
from course_utils.files import ROOT

__all__ = [
    "DESCRIPTION",
    "GLOSSES",
    "SPLITS",
    "describe_glosses",
    "open_glosses",
    "read_checked",
    "read_split",
]

GLOSSES = ROOT / "data" / "text"
DESCRIPTION = "glosses.json"  # classes, counts, checksums, what was left out
SPLITS = ("train", "test", "pretraining")  # the last one has none of the first two
NEEDED = {"classes", "splits", "tokenizer"}
FIX = "restore it with `git checkout data/text`"


def describe_glosses(folder: Path = GLOSSES) -> dict:
    """Classes, source, seed, the number of each split's definitions, and the files' sha256.

    Raises:
        CourseError: no JSON there, or one that cannot be read.
    """
    return read_description(folder / DESCRIPTION, NEEDED, FIX)


def read_checked(path: Path, sha256: str) -> bytes:
    """The bytes of a file, if they have this checksum.

    Raises:
        CourseError: the file is missing, or has another one.
    """
    try:
        content = path.read_bytes()
    except OSError:
        raise CourseError(f"{path} is missing: {FIX}") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise CourseError(f"{path} is damaged (wrong checksum): {FIX}")
    return content


def read_split(split: str, folder: Path = GLOSSES) -> list[tuple[str, str]]:
    """Pairs of kind and definition; the kind is empty where it is none of the classes.

    Args:
        split: ``"train"``, ``"test"`` or ``"pretraining"``.
        folder: where the files lie.

    Raises:
        CourseError: the file is missing, or its sha256 is not that of the description.
    """
    expected = describe_glosses(folder)["splits"][split]["sha256"]
    content = read_checked(folder / f"{split}.tsv.xz", expected)
    lines = lzma.decompress(content).decode("utf-8").splitlines()
    return [(kind, text) for kind, _, text in (line.partition("\t") for line in lines)]


def open_glosses(
    split: str = "train", folder: Path = GLOSSES
) -> tuple[tuple[str, ...], np.ndarray, list[str]]:
    """The names of the classes, the targets ``(N,)`` int64 and the N definitions of a split.

    Each run of ten definitions holds every class once.

    Args:
        split: ``"train"`` (the pool for training and validation) or ``"test"``.
        folder: where the files lie.

    Raises:
        CourseError: a missing or damaged file.
    """
    class_names = tuple(describe_glosses(folder)["classes"])
    numbers = {name: number for number, name in enumerate(class_names)}
    pairs = read_split(split, folder)
    targets = np.array([numbers[kind] for kind, _ in pairs])
    return class_names, targets, [text for _, text in pairs]
