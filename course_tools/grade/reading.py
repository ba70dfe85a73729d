"""Read a notebook that somebody handed in, whichever program wrote it.

Only what is executed matters: kinds, sources, ids and metadata of cells. JupyterLab opens many a
notebook that the schema refuses, with a warning at most: an id in an old format or one id twice,
an output without metadata, an execution count of ``*``. All this is left out or repaired here.
"""

import json
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import nbformat
from nbformat import reader

from course_tools.console import make_printable
from course_tools.grade.limits import MachineFailure
from course_utils.errors import CourseError

__all__ = ["read_submission"]

MOST_BYTES = 2**28  # of a notebook: a larger file would fill the memory
ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
KINDS = ("code", "markdown", "raw")


def read_submission(path: Path) -> nbformat.NotebookNode:
    """A student's notebook, in the newest format and without outputs.

    Raises:
        MachineFailure: the disk or the system does not let it be read.
        CourseError: it cannot be read as a notebook.
    """
    shown = make_printable(str(path))
    if not path.exists():
        raise CourseError(f"no notebook {shown}: give the path of an .ipynb file")
    if not path.is_file():  # reading a named pipe waits for ever
        raise CourseError(f"{shown} is no file: give the path of an .ipynb file")
    if path.stat().st_size > MOST_BYTES:
        raise CourseError(
            f"{shown} has more than {MOST_BYTES >> 20} MiB: clear its outputs and save it again"
        )
    try:
        return parse_notebook(path.read_bytes())
    except OSError as error:
        raise MachineFailure(f"{shown} cannot be read: {error.strerror}") from None
    except Exception as error:  # json and nbformat meet anything at all in a file of others
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:80]
        raise CourseError(
            f"{shown} is not a notebook ({make_printable(reason)}): save it again in Jupyter"
        ) from None


def parse_notebook(content: bytes) -> nbformat.NotebookNode:
    """The notebook in a file's content, as `read_submission` returns it.

    Raises:
        Exception: any, where it is no notebook.
    """
    text = content.decode("utf-8-sig")  # editors of Windows add a mark
    entry = json.loads(text)
    if not isinstance(entry, dict):
        raise ValueError("it is JSON, but no notebook")
    version = _read_version(entry)
    if version < 4:
        entry = _upgrade(entry, version)
    elif version > 4:
        raise ValueError(f"Unsupported nbformat version {version}")
    cells = [_repair_cell(cell, number) for number, cell in enumerate(entry["cells"], 1)]
    _repair_ids(cells)
    return nbformat.from_dict(
        {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells},
    )


def _read_version(entry: dict) -> int:
    """The number of the format; that of a file that does not say it follows from its content."""
    if "nbformat" not in entry and "cells" not in entry and "worksheets" not in entry:
        raise ValueError("it has no cells")
    return int(entry.get("nbformat", 4 if "cells" in entry else 3))


def _upgrade(entry: dict, version: int) -> dict:
    """The notebook in format 4; its outputs may be damaged, so they are left out before."""
    for sheet in entry.get("worksheets", [entry]):
        for cell in sheet["cells"]:
            cell["outputs"] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ids, which formats before 4.5 do not have
        old = reader.reads(json.dumps(entry | {"nbformat": version}))
        return nbformat.convert(old, 4)


def _repair_cell(cell: Any, number: int) -> dict:
    """What matters of a cell; an unknown kind is shown by Jupyter as raw text, and never run."""
    if not isinstance(cell, dict) or "source" not in cell:
        raise ValueError(f"cell {number} has no source")
    source = cell["source"]
    kind = cell.get("cell_type")
    metadata = cell.get("metadata")
    repaired = {
        "cell_type": kind if kind in KINDS else "raw",
        "id": cell.get("id"),
        "metadata": metadata if isinstance(metadata, dict) else {},
        "source": _join_surrogates(source if isinstance(source, str) else "".join(source)),
    }
    if kind == "code":
        repaired |= {"execution_count": None, "outputs": []}
    return repaired


def _join_surrogates(text: str) -> str:
    """``text`` with halves of a character joined, and a lone half as ``�``: it has no UTF-8."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _repair_ids(cells: list[dict]) -> None:
    """Give a new id to each cell without one, and to each but the first of those with the same."""
    seen: Counter[str] = Counter()
    for number, cell in enumerate(cells, 1):
        name = cell["id"]
        if not isinstance(name, str) or not ID.fullmatch(name) or seen[name]:
            cell["id"] = f"repaired-{number}"
        seen[cell["id"]] += 1
