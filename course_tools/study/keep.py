"""Keep what was measured, with its provenance."""

import json
from collections.abc import Iterable
from datetime import date
from pathlib import Path

from course_utils.data.sources import NAMED
from course_utils.files import write_atomically
from course_utils.measure.provenance import describe_making

__all__ = ["keep", "name_data", "round_curve"]


def name_data(dataset: str) -> str:
    """A data set as results call it: a folder by its name alone, wherever it lies."""
    return dataset if dataset in NAMED else f"{Path(dataset).name} (folder)"


def round_curve(curve: Iterable[tuple[float, float]]) -> list[list[float]]:
    """``(seconds, accuracy)`` to hundredths of a second and of a point, as results store them."""
    return [[round(seconds, 2), round(accuracy, 4)] for seconds, accuracy in curve]


def keep(path: Path, command: str, **measured: object) -> None:
    """Write to a JSON file: ``command``, date, machine, versions, commit, ``measured``."""
    about = {
        "command": command,
        "made": date.today().isoformat(),
    }
    write_atomically(path, json.dumps(about | describe_making() | measured, indent=1) + "\n")
