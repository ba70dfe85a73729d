"""Texts from files: `glosses`, or the user's own as CSV or as a folder of text files."""

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from course_utils.data.glosses import open_glosses
from course_utils.data.own_images import READABLE, check_same_classes, list_classes
from course_utils.data.sources import NAMED
from course_utils.errors import CourseError

__all__ = ["FEWEST", "OpenedTexts", "is_text", "open_texts"]

FEWEST = 60  # texts of somebody's own with which every part of a lesson runs
MOST_CHARACTERS = 100_000  # of one text: the network reads about five hundred
COLUMNS = ("text", "label")


class OpenedTexts(NamedTuple):
    """One split of a data set of texts."""

    class_names: tuple[str, ...]
    targets: np.ndarray  # (N,) int64
    texts: list[str]


def is_text(dataset: str) -> bool:
    """Whether a data set's name is one of texts: `glosses`, a CSV file, or a folder of texts.

    A folder of images stays one, whatever notes lie beside them.
    """
    if dataset in NAMED:
        return False
    root = Path(os.path.expanduser(dataset))
    if dataset == "glosses" or root.suffix == ".csv" or (root / "train.csv").is_file():
        return True
    kinds = {path.suffix.lower() for path in root.glob("train/*/*")}
    return ".txt" in kinds and kinds.isdisjoint(READABLE)


def _require_short(text: str, where: str) -> str:
    if len(text) > MOST_CHARACTERS:
        raise CourseError(
            f"{where} has {len(text):,} characters, and a text has {MOST_CHARACTERS:,} at most: "
            "cut it into parts"
        )
    return text


def _read_csv(path: Path) -> Iterator[tuple[str, str]]:
    """Pairs of label and text of a CSV file whose first line names both columns."""
    csv.field_size_limit(2**31 - 1)  # a long text is refused below, with its line
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            if missing := set(COLUMNS) - set(rows.fieldnames or []):
                raise CourseError(
                    f"{path} has no column {' and no column '.join(sorted(missing))}: its first "
                    "line is text,label"
                )
            for row in rows:
                where = f"{path}, line {rows.line_num},"
                text, label = ((row[name] or "").strip() for name in COLUMNS)
                if not text or not label:
                    raise CourseError(f"{where} has no {'label' if text else 'text'}: fill it in")
                yield label, _require_short(text, where)
    except FileNotFoundError:
        raise CourseError(f"there is no {path}: give it the columns text,label") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CourseError(f"{path} cannot be read ({error}): save it as CSV in UTF-8") from None


def _read_folder(split: Path) -> Iterator[tuple[str, str]]:
    """Pairs of label and text of ``<split>/<class>/*.txt``."""
    for label, folder in list_classes(split).items():
        for path in sorted(folder.glob("*.txt")):
            try:
                text = path.read_text(encoding="utf-8-sig").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise CourseError(f"{path} cannot be read ({error}): save it in UTF-8") from None
            if not text:
                raise CourseError(f"{path} is empty: write a text into it, or delete it")
            yield label, _require_short(text, str(path))


def _find_pairs(dataset: str, split: str) -> list[tuple[str, str]]:
    root = Path(os.path.expanduser(dataset))
    if root.suffix == ".csv":
        if split == "test":
            raise CourseError(
                f"{dataset} has no test split: put train.csv and test.csv into a folder, and give "
                "the folder"
            )
        return list(_read_csv(root))
    if (root / "train.csv").is_file():
        return list(_read_csv(root / f"{split}.csv"))
    if not (root / split).is_dir():
        raise CourseError(f"{dataset} has no folder {split}/: expected {split}/<class>/<name>.txt")
    if split == "test":
        check_same_classes(root, "test", "train")
    return list(_read_folder(root / split))


def open_texts(dataset: str, split: str = "train") -> OpenedTexts:
    """One split of ``"glosses"``, of a CSV file or of a folder of texts (see `is_text`).

    Raises:
        CourseError: a file that is missing, damaged, empty, in another encoding than UTF-8, or
            lacks a column; a text without a label; a very long one; fewer than two classes; a
            class of the test split that training does not have.
    """
    if dataset == "glosses":
        return OpenedTexts(*open_glosses(split))
    pairs = _find_pairs(dataset, split)
    names = sorted(
        {label for label, _ in (pairs if split == "train" else _find_pairs(dataset, "train"))}
    )
    if len(names) < 2:
        found = f"only the label {names[0]!r}" if names else "no text"
        raise CourseError(f"{dataset} has {found}: it needs texts of two classes or more")
    numbers = {name: number for number, name in enumerate(names)}
    if unknown := {label for label, _ in pairs} - set(names):
        raise CourseError(f"{dataset}: training has no text of {sorted(unknown)[0]!r}: add some")
    targets = np.array([numbers[label] for label, _ in pairs])
    return OpenedTexts(tuple(names), targets, [text for _, text in pairs])
