"""Reference results: what a run of lessons measured, kept in ``data/results`` with its provenance.

``course run --save-results NAME`` writes them; lessons read them, to show what takes longer, or
another machine, than a reader has.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from course_utils.errors import CourseError
from course_utils.files import ROOT

__all__ = [
    "RECORDS",
    "RESULTS",
    "append_record",
    "list_results",
    "read_file",
    "read_records",
    "read_results",
    "values_by_arm",
]

RECORDS = "records.jsonl"  # in COURSE_RUNS_DIR: one run or claim per line, in the order they ended

RESULTS = ROOT / "data" / "results"
ABOUT = {"command", "dataset", "first_seed", "hardware", "versions", "commit"}  # of results
CURE = "restore it with `git checkout data/results`, or make it again"


def append_record(kind: str, record: dict) -> None:
    """Append one line to ``records.jsonl`` in ``COURSE_RUNS_DIR`` (``runs/`` here if not set).

    Nothing that stands there is changed, so no record can overwrite another one.

    Args:
        kind: ``"run"`` or ``"claim"``.
        record: what can be written as JSON.
    """
    folder = Path(os.environ.get("COURSE_RUNS_DIR") or "runs")
    folder.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"kind": kind} | record, ensure_ascii=False) + "\n"
    # one write to a file opened for appending: lines of two processes do not mix
    handle = os.open(folder / RECORDS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode("utf-8"))
    finally:
        os.close(handle)


def read_records(folder: Path, kind: str) -> list[dict]:
    """The records of one kind in ``folder/records.jsonl``, oldest first; none without a file.

    A last line that is not complete (the process was killed while it wrote) is skipped.

    Raises:
        CourseError: another line is damaged.
    """
    path = folder / RECORDS
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    complete, found = lines[:-1], []  # what follows the last line break is empty or incomplete
    for number, line in enumerate(complete, 1):
        try:
            record = dict(json.loads(line))
            matches = record.pop("kind") == kind
        except (ValueError, TypeError, KeyError):
            raise CourseError(f"{path}, line {number} is damaged: delete the line") from None
        if matches:
            found.append(record)
    return found


def read_file(path: Path) -> dict:
    """A JSON file in ``data/results``.

    Raises:
        CourseError: it is damaged.
    """
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        raise CourseError(f"{path} is damaged: {CURE}") from None


def list_results(folder: Path = RESULTS) -> list[str]:
    """The names of all results of lessons in ``folder``; files about anything else are no such.

    Raises:
        CourseError: a file there is damaged.
    """
    return [path.stem for path in sorted(folder.glob("*.json")) if "lessons" in read_file(path)]


def read_results(name: str, folder: Path = RESULTS) -> dict:
    """What ``course run … --save-results name`` measured, with how, where and with which versions.

    ``["lessons"]`` has for each lesson its ``name``, ``time_s``, ``peak_memory_bytes``, ``claims``
    and ``runs``; a run has what `course_utils.training.Run` says of it, and as ``curve`` for each
    epoch the seconds since the start of the training and the accuracy on validation.

    Raises:
        CourseError: there are no results of this name, or they are damaged.
    """
    path = folder / f"{name}.json"
    if not path.is_file():
        known = ", ".join(list_results(folder)) or "none yet"
        raise CourseError(
            f"no results {name!r} in {folder} (there are: {known}): measure them with "
            f"`course run --save-results {name}`"
        )
    results = read_file(path)
    try:
        complete = set(results) >= ABOUT and all(
            {"name", "claims", "runs"} <= set(x) for x in results["lessons"]
        )
    except (KeyError, TypeError):
        complete = False
    if not complete:
        raise CourseError(f"{path} holds no results of lessons: {CURE}")
    return results


def values_by_arm(runs: Sequence[dict], metric: str = "val_accuracy") -> dict[str, np.ndarray]:
    """The metric of every arm, in the order of the arms, over those seeds that all of them have.

    A lesson that stopped in the middle of a comparison has trained some arms less often.
    """
    found = {(run["arm"], run["seed"]): run["metrics"][metric] for run in runs}
    arms = list(dict.fromkeys(arm for arm, _ in found))
    seeds = [s for s in sorted({seed for _, seed in found}) if all((a, s) in found for a in arms)]
    return {arm: np.array([found[arm, seed] for seed in seeds]) for arm in arms}
