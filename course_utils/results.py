"""What trainings, claims and lessons leave behind, and how to read it.

`append_record` adds one run or one claim to ``records.jsonl``. `LessonResult` is what one
execution of a lesson measured. Reference results in ``data/results`` are those of many lessons,
with their provenance: ``course run --save-results NAME`` writes them, and lessons read them to
show what takes more time, or another machine, than a reader has.
"""

import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from course_utils.errors import CourseError
from course_utils.files import ROOT

__all__ = [
    "RECORDS",
    "RESULTS",
    "RUN_FIELDS",
    "STUDIES",
    "Claim",
    "LessonResult",
    "RunRecord",
    "append_record",
    "list_results",
    "median_seconds_to",
    "read_file",
    "read_records",
    "read_results",
    "seconds_to",
    "validate",
    "values_by_arm",
]

RECORDS = "records.jsonl"  # in COURSE_RUNS_DIR: one run or claim per line, in the order they ended

RESULTS = ROOT / "data" / "results"
STUDIES = ROOT / "lesson_code"  # each in the folder of its lesson
Kind = TypeVar("Kind")
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Claim(TypedDict):
    """A statement of a lesson, and whether it held."""

    text: str
    kind: str
    holds: bool
    value: str | int | float | None


@with_config(ConfigDict(extra="allow"))
class RunRecord(TypedDict):
    """A training; newer ones have "curve" and "settings", too."""

    comparison: str | None
    arm: str
    seed: int
    metrics: dict[str, int | float]  # NaN, where a training diverged
    time_s: Seconds
    examples_per_s: float | None
    trainable_parameters: int
    parameters: int
    saved_bytes: int | float | None


RUN_FIELDS = tuple(RunRecord.__annotations__)
ABOUT = {"command", "dataset", "first_seed", "hardware", "versions", "commit"}  # of results
CURE = "restore it with `git checkout data/results`, or make it again"


def append_record(kind: str, record: dict) -> None:
    """Append one line to ``records.jsonl`` in ``COURSE_RUNS_DIR`` (``runs/`` here if not set).

    Earlier lines stay as they are, so no record can overwrite another one.

    Args:
        kind: ``"run"`` or ``"claim"``.
        record: a dictionary that can be written as JSON.

    Raises:
        CourseError: the file cannot be written.
    """
    folder = Path(os.environ.get("COURSE_RUNS_DIR") or "runs")
    # the record is nested, because a claim has a field called "kind" as well
    line = json.dumps({"kind": kind, "record": record}, ensure_ascii=False) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # one write to a file opened for appending: lines of two processes do not mix
        handle = os.open(folder / RECORDS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line.encode("utf-8"))
        finally:
            os.close(handle)
    except OSError as error:
        raise CourseError(
            f"cannot write to {folder / RECORDS} ({error.strerror}): "
            "set COURSE_RUNS_DIR to a folder that you can write to"
        ) from None


def read_records(folder: Path, kind: str) -> list[dict]:
    """Read the records of one kind from ``folder/records.jsonl``, oldest first.

    Without that file there are none. An incomplete last line is skipped: the process was killed
    while it wrote.

    Raises:
        CourseError: another line is damaged.
    """
    path = folder / RECORDS
    if not path.exists():
        return []
    complete_lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
    found = []
    for number, line in enumerate(complete_lines, 1):
        try:
            row = json.loads(line)
            record = dict(row["record"])
            row_kind = row["kind"]
        except (ValueError, TypeError, KeyError):
            raise CourseError(f"{path}, line {number} is damaged: delete the line") from None
        if row_kind == kind:
            found.append(record)
    return found


@dataclass(frozen=True)
class LessonResult:
    """What one execution of a lesson measured: an entry of ``course.json`` or of results.

    Results in ``data/results`` are those of lessons that passed. They lack the fields that have a
    default.
    """

    name: str
    time_s: Seconds
    peak_memory_bytes: int
    claims: list[Claim]
    runs: list[RunRecord]
    # "skipped" where the result is that of an earlier run
    status: Literal["passed", "failed", "skipped"] = "passed"
    reason: str = ""  # why it failed or was skipped
    cells_s: list[Seconds] = field(default_factory=list)  # seconds of each cell
    over_budget: bool = False
    commit: str | None = None
    key: str = ""  # `Plan.key` of what passed; an empty one is executed again
    threads: int | None = None  # of PyTorch; one and two of them sum in different orders

    def to_json(self) -> dict:
        """The entry as it is written into ``course.json``."""
        return asdict(self)

    @classmethod
    def from_json(cls, entry: object) -> "LessonResult":
        """Read an entry, and judge whether it is complete. Unknown fields are left out.

        A metric may be NaN, because a training may diverge. A time may not.

        Raises:
            CourseError: the entry is damaged. The caller adds which file, and what to do.
        """
        try:
            return validate(cls, entry)
        except CourseError as error:
            name = entry.get("name", "a lesson") if isinstance(entry, dict) else "a lesson"
            raise CourseError(f"{name}: {error}") from None


def validate(kind: type[Kind], content: object) -> Kind:
    """The content of a JSON file as a dataclass, whose types it must have; others are left out.

    Raises:
        CourseError: the first fault, in one line. The caller adds which file, and what to do.
    """
    try:
        return TypeAdapter(kind).validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = " → ".join(map(str, first["loc"]))
        raise CourseError(f"{place}: {first['msg']}".removeprefix(": ")) from None


def _read_number(text: str) -> float:
    """A number of a JSON file; the ``NaN`` and ``Infinity`` that Python writes are refused too."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no result")
    return number


def read_file(path: Path) -> dict:
    """A JSON file of results.

    Raises:
        CourseError: it is damaged, or holds NaN or an infinite number.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return dict(json.loads(text, parse_float=_read_number, parse_constant=_read_number))
    except (OSError, ValueError, TypeError) as error:
        raise CourseError(f"{path} is damaged ({error}): {CURE}") from None


def list_results(folder: Path = RESULTS) -> list[str]:
    """The names of all results of lessons in ``folder``. Other JSON files are skipped.

    Raises:
        CourseError: a file there is damaged.
    """
    return [path.stem for path in sorted(folder.glob("*.json")) if "lessons" in read_file(path)]


def read_results(name: str, folder: Path = RESULTS) -> dict:
    """What ``course run … --save-results name`` measured, with how, where and with which versions.

    ``["lessons"]`` has for each lesson its ``name``, ``time_s``, ``peak_memory_bytes``, ``claims``
    and ``runs``. A run has what `course_utils.training.Run` says of it, and as ``curve`` for each
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
    if not set(results) >= ABOUT or not isinstance(results.get("lessons"), list):
        raise CourseError(f"{path} holds no results of lessons: {CURE}")
    try:
        for entry in results["lessons"]:
            LessonResult.from_json(entry)
    except CourseError as error:
        raise CourseError(f"{path} is damaged ({error}): {CURE}") from None
    return results


def values_by_arm(runs: Sequence[Mapping], metric: str = "val_accuracy") -> dict[str, np.ndarray]:
    """The metric of every variant, in their order, over those seeds that all of them have.

    A lesson that stopped in the middle of a comparison has trained some variants less often.
    """
    found = {(run["arm"], run["seed"]): run["metrics"][metric] for run in runs}
    arms = list(dict.fromkeys(arm for arm, _ in found))
    seeds = [s for s in sorted({seed for _, seed in found}) if all((a, s) in found for a in arms)]
    return {arm: np.array([found[arm, seed] for seed in seeds]) for arm in arms}


def seconds_to(goal: float, curve: Iterable[Sequence[float]]) -> float:
    """When a training first reached the accuracy ``goal``; infinite if it never did.

    ``curve``: pairs ``(seconds, accuracy)`` in the order of time, as in `Run.curve`.
    """
    return next((seconds for seconds, accuracy in curve if accuracy >= goal), float("inf"))


def median_seconds_to(goal: float, curves: Iterable[Iterable[Sequence[float]]]) -> float:
    """Seconds in which a recipe reaches the accuracy ``goal``: the median over its seeds.

    This is what the whole course means by *reached*: infinite, which is "not reached", unless more
    than half of the seeds reach it. With two seeds, both have to.

    Args:
        goal: an accuracy from 0 to 1.
        curves: one curve of `seconds_to` for each seed, at least one.

    Raises:
        ValueError: no curve.
    """
    seconds = [seconds_to(goal, curve) for curve in curves]
    if not seconds:
        raise ValueError("no training: give one curve for each seed")
    return statistics.median(seconds)
