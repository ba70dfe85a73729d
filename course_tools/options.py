"""Reading the options of the command ``course``, those that need more than a type."""

import os
from pathlib import Path
from typing import Annotated

import typer

from course_utils.errors import CourseError
from course_utils.files import ROOT

__all__ = [
    "BUILD",
    "LONGEST_MIN",
    "Memory",
    "Sandbox",
    "TimeLimit",
    "check_minutes",
    "find_images",
    "parse_folder",
    "parse_word",
]

BUILD = ROOT / "build"
LONGEST_MIN = 1440  # a day
TimeLimit = Annotated[float, typer.Option(help="seconds for one cell", min=1, max=86400)]
Memory = Annotated[float, typer.Option(help="GiB for one notebook (Linux)", min=3, max=4096)]
Sandbox = Annotated[
    bool | None,
    typer.Option(
        "--sandbox/--no-sandbox",
        help="bubblewrap (Linux); without this option, where it is installed",
    ),
]


def parse_word(word: str) -> str:
    """The word; the ``parser`` of options for which an empty one would mean the default.

    Raises:
        typer.BadParameter: an empty word, as a variable is that was not set.
    """
    if not word.strip():
        raise typer.BadParameter("an empty word: is a variable not set?")
    return word


def parse_folder(word: str | Path) -> Path:
    """An absolute path; the ``parser`` of options that name a folder.

    (`Path.resolve` raises an error of its own for a link to itself.)

    Raises:
        typer.BadParameter: an empty word, as a variable is that was not set.
    """
    if not str(word).strip():
        raise typer.BadParameter("an empty word is no folder: is a variable not set?")
    return Path(os.path.realpath(word))


def check_minutes(option: str, minutes: float) -> float:
    """``minutes``, if they are a time that an execution can take.

    Raises:
        CourseError: they are not.
    """
    if not 0 < minutes <= LONGEST_MIN:
        raise CourseError(f"{option} {minutes:g}: give minutes above 0, at most {LONGEST_MIN}")
    return minutes


def find_images(dataset: str) -> str:
    """The whole path of a folder of images: lessons are executed in another folder.

    Other names of data sets stay. `load_config` has written out a ``~`` if there is such a user.

    Raises:
        CourseError: there is no such user.
    """
    if dataset.startswith("~"):
        raise CourseError(f"no data set {dataset!r}: there is no such user")
    return os.path.realpath(dataset) if Path(dataset).is_dir() else dataset
