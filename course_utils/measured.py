"""The tables of ``course measure``: what a training step takes on each measured device."""

import os
from pathlib import Path

import pandas as pd

from course_utils.errors import CourseError
from course_utils.results import CURE, RESULTS, read_file

__all__ = ["read_measured"]

COLUMNS = {  # a value of a row: its column and its unit
    "ms": ("ms", 1),
    "images_per_s": ("images/s", 1),
    "peak_bytes": ("peak (GB)", 1e9),
    "gb_per_s": ("GB/s", 1),
    "waiting": ("waiting (%)", 0.01),
    "problem": ("problem", None),
}


def _format_value(name: str, row: dict) -> str:
    """A value in its column's unit, with three digits; a dash where the row has none."""
    unit = COLUMNS[name][1]
    if name not in row:
        return "–"
    if unit is None:
        return str(row[name])
    value = float(f"{row[name] / unit:.3g}")
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:g}"


def read_measured(table: str, folder: str | os.PathLike[str] = RESULTS) -> pd.DataFrame:
    """The rows of one table, for each device that ``course measure`` was run on.

    Args:
        table: ``"formats"``, ``"accumulation"``, ``"checkpointing"``, ``"optimizers"``,
            ``"copies"``, ``"decoding"`` or ``"loader"``.
        folder: of the files ``measured_*.json``.

    Returns:
        Values as text, with their units in the names of the columns. The index names the device
        and the settings.

    Raises:
        CourseError: no file has such a table, or one is damaged.
    """
    rows, index = [], []
    for path in sorted(Path(folder).glob("measured_*.json")):
        content = read_file(path)
        try:
            hardware = content["about"]["hardware"]
            device = str(hardware["gpu"] or hardware["cpu"])
            found = [row for row in content["rows"] if row["table"] == table]
            index += [{"device": device, **row["settings"]} for row in found]
        except (KeyError, TypeError):
            raise CourseError(f"{path} holds no measured rows: {CURE}") from None
        rows += found
    if not rows:
        raise CourseError(f"no table {table!r} in {folder}: measure it with `course measure`")
    names = [name for name in COLUMNS if any(name in row for row in rows)]
    values = [[_format_value(name, row) for name in names] for row in rows]
    columns = [COLUMNS[name][0] for name in names]
    labels = pd.MultiIndex.from_frame(
        pd.DataFrame(index).rename(columns=lambda x: x.replace("_", " "))
    )
    return pd.DataFrame(values, labels, columns)
