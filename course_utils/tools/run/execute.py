"""Execute one lesson with papermill and read back what it claims and what it trained."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import papermill
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.exceptions import PapermillExecutionError

from course_utils.claims import CLAIM_MIME
from course_utils.tools.run.lessons import Lesson
from course_utils.tools.run.peak_memory import PeakMemory

__all__ = ["execute_lesson"]

RUN_FIELDS = (
    "comparison",
    "arm",
    "seed",
    "metrics",
    "time_s",
    "images_per_s",
    "trainable_parameters",
    "parameters",
    "saved_bytes",
)
OnCell = Callable[[int, int], None]  # (cells done, cells in all)


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables, which the kernel inherits, for the time of the context."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def read_claims(notebook: nbformat.NotebookNode) -> list[dict]:
    """The records that `course_utils.claims.claim` left in the outputs."""
    return [
        dict(output["data"][CLAIM_MIME])
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if CLAIM_MIME in output.get("data", {})
    ]


def read_cell_times(notebook: nbformat.NotebookNode) -> list[float]:
    """Seconds that each cell of the lesson took; 0 for prose and for cells not reached."""
    own = [c for c in notebook.cells if "injected-parameters" not in c.metadata.get("tags", [])]
    return [round(cell.metadata.get("papermill", {}).get("duration") or 0, 2) for cell in own]


def read_runs(folder: Path) -> list[dict]:
    """The runs stored in ``folder``, in the order in which they ended."""
    paths = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return [{key: row[key] for key in RUN_FIELDS} | {"curve": _read_curve(row)} for row in rows]


def _read_curve(row: dict) -> list[list[float]]:
    """For each epoch the seconds since the start and the accuracy; empty where they are unknown."""
    epochs = zip(row.get("epoch_ends_s", []), row.get("history", []), strict=False)
    return [
        [round(end_s, 3), round(epoch["val_accuracy"], 5)]
        for end_s, epoch in epochs
        if "val_accuracy" in epoch
    ]


def execute_lesson(
    lesson: Lesson,
    output: Path,
    work: Path,
    *,
    environment: dict[str, str],
    parameters: dict | None = None,
    time_limit_s: float,
    on_cell: OnCell = lambda done, total: None,
) -> dict:
    """Run a lesson's notebook from top to bottom in the empty folder ``work``.

    The executed notebook is moved to ``output`` when it is complete, or complete up to the cell
    that failed; nothing half-written is ever found there.

    Returns:
        The lesson's entry in ``course.json``. A failure is an entry too, with its reason.
    """
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f".{output.name}")
    total = len(lesson.read().cells) + bool(parameters)  # papermill adds a cell for them
    start = time.monotonic()
    position = 0

    def on_cell_start(cell: nbformat.NotebookNode, cell_index: int) -> None:
        nonlocal position
        position = cell_index + 1
        on_cell(position, total)

    variables = {"COURSE_PROGRESS": "0", "COURSE_RUNS_DIR": str(work / "runs")} | environment
    reason = ""
    with _environment(variables), PeakMemory() as memory:
        try:
            papermill.execute_notebook(
                str(lesson.path),
                str(partial),
                parameters or {},
                kernel_name="python3",
                progress_bar=False,
                cwd=str(work),
                start_timeout=120,
                extra_arguments=["--log-level=50"],  # what fails is in the reply
                on_cell_start=on_cell_start,
                timeout_func=lambda cell: max(1, start + time_limit_s - time.monotonic()),
            )
        except PapermillExecutionError as error:
            reason = f"cell {position} of {total}: {_one_line(error.ename, error.evalue)}"
        except CellTimeoutError:
            reason = (
                f"cell {position} of {total}: over the lesson's time limit of "
                f"{time_limit_s / 60:.3g} minutes (raise it with --time-limit)"
            )
        except DeadKernelError:
            reason = f"cell {position} of {total}: the kernel died (out of memory?)"
        except RuntimeError as error:  # it did not even start
            reason = _one_line("no kernel", str(error))
    claims, cell_times = [], []
    if partial.exists():
        os.replace(partial, output)
        executed = nbformat.read(output, as_version=4)
        claims, cell_times = read_claims(executed), read_cell_times(executed)
    return {
        "name": lesson.name,
        "status": "failed" if reason else "passed",
        "reason": reason,
        "time_s": round(time.monotonic() - start, 2),
        "cells_s": cell_times,
        "peak_memory_bytes": memory.peak_bytes,
        "claims": claims,
        "runs": read_runs(work / "runs"),
    }


def _one_line(name: str, value: str) -> str:
    first = (value.strip() or "no message").splitlines()[0]
    return f"{name}: {first}"
