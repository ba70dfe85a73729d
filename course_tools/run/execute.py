"""Execute one lesson with papermill and read back its claims and its trainings."""

import errno
import logging
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

from course_tools.console import make_printable
from course_tools.run.kernel_manager import AsyncIPCKernelManager
from course_tools.run.leftovers import MARK, end_leftovers
from course_tools.run.lessons import Lesson
from course_tools.run.peak_memory import PeakMemory
from course_utils.errors import CourseError
from course_utils.files import ROOT
from course_utils.results import RUN_FIELDS, LessonResult, read_records

__all__ = ["execute_lesson"]

OnCell = Callable[[int, int], None]  # (cells done, cells in all)
MOST_BYTES = 50 * 2**20  # of an executed notebook; a browser hardly opens a larger one
logging.getLogger("papermill").addHandler(logging.NullHandler())  # its lines are reasons here


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


def _list_durations(notebook: nbformat.NotebookNode) -> list[float]:
    """Seconds that each cell of the lesson took; 0 for prose and for cells not reached."""
    own = [c for c in notebook.cells if "injected-parameters" not in c.metadata.get("tags", [])]
    return [round(cell.metadata.get("papermill", {}).get("duration") or 0, 2) for cell in own]


def _read_runs(folder: Path) -> list[dict]:
    """The trainings recorded in ``folder``, in the order in which they ended.

    Raises:
        CourseError: a record is damaged or incomplete.
    """
    runs = []
    for row in read_records(folder, "run"):
        missing = [key for key in RUN_FIELDS if key not in row]
        if missing:
            raise CourseError(f"a training was recorded without {missing[0]!r}")
        kept = {key: row[key] for key in RUN_FIELDS}
        runs.append(kept | {"settings": row.get("settings", {}), "curve": _read_curve(row)})
    return runs


def _read_curve(row: dict) -> list[list[float]]:
    """For each epoch the seconds since the start and the accuracy; empty where they are unknown."""
    epochs = zip(row.get("epoch_ends_s", []), row.get("history", []), strict=False)
    return [
        [round(end_s, 3), round(epoch["val_accuracy"], 5)]
        for end_s, epoch in epochs
        if "val_accuracy" in epoch
    ]


def _find_end(notebook: nbformat.NotebookNode) -> str:
    """Which cell ended the lesson before its last one was through; empty if none did.

    For papermill ``sys.exit(0)`` is a success, whatever comes after it.
    """
    for number, cell in enumerate(notebook.cells, 1):
        outputs = cell.get("outputs", [])
        if any(x.output_type == "error" and x.ename == "SystemExit" for x in outputs):
            return f"cell {number} of {len(notebook.cells)} ended the lesson (SystemExit)"
        if cell.cell_type == "code" and cell.source.strip() and cell.execution_count is None:
            return f"cell {number} of {len(notebook.cells)} was not executed"
    return ""


def _keep_notebook(partial: Path, output: Path) -> tuple[list[float], str]:
    """Move the executed notebook to ``output``; the seconds of its cells, and what is wrong."""
    if (size := partial.stat().st_size) > MOST_BYTES:
        partial.unlink()
        output.unlink(missing_ok=True)
        most = f"print less than {MOST_BYTES / 1e6:.0f} MB"
        return [], f"its outputs take {size / 1e6:,.0f} MB and are not kept: {most}"
    executed = nbformat.read(partial, as_version=4)
    os.replace(partial, output)
    return _list_durations(executed), _find_end(executed)


def execute_lesson(
    lesson: Lesson,
    output: Path,
    work: Path,
    *,
    environment: dict[str, str],
    parameters: dict | None = None,
    time_limit_s: float,
    on_cell: OnCell = lambda done, total: None,
) -> LessonResult:
    """Run a lesson's notebook from top to bottom in the empty folder ``work``.

    The executed notebook is moved to ``output`` when it is complete, or complete up to the cell
    that failed. A half-written notebook is never found there.

    Returns:
        What the lesson measured. A failure is a result too, with its reason. It has the claims and
        the trainings up to the failure, even if the kernel was killed.
    """
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f".{output.name}")
    runs = work / "runs"
    # the package of this clone, whichever one is installed: its commit is the recorded one
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {
        "COURSE_PROGRESS": "0",
        "COURSE_RUNS_DIR": str(runs),
        "PYTHONPATH": path,
        MARK: str(os.getpid()),
    }
    start = time.monotonic()
    with _environment(variables | environment), PeakMemory() as memory:
        reason = _execute(lesson, partial, work, parameters or {}, time_limit_s, on_cell)
    end_leftovers()
    cells_s: list[float] = []
    if partial.exists():
        cells_s, fault = _keep_notebook(partial, output)
        reason = reason or fault
    claims: list = []
    trainings: list = []
    try:
        claims = read_records(runs, "claim")
        trainings = _read_runs(runs)
    except CourseError as error:  # the lesson itself has written into the file
        reason = reason or str(error)
    return LessonResult(
        name=lesson.name,
        status="failed" if reason else "passed",
        reason=reason,
        time_s=round(time.monotonic() - start, 2),
        cells_s=cells_s,
        peak_memory_bytes=memory.peak_bytes,
        claims=claims,
        runs=trainings,
    )


def _execute(
    lesson: Lesson,
    partial: Path,
    work: Path,
    parameters: dict,
    time_limit_s: float,
    on_cell: OnCell,
) -> str:
    """Execute the notebook and write it to ``partial``; returns why it failed, or nothing."""
    total = len(lesson.read().cells) + bool(parameters)  # papermill adds a cell for them
    end = time.monotonic() + time_limit_s
    position = 0

    def on_cell_start(cell: nbformat.NotebookNode, cell_index: int) -> None:
        nonlocal position
        position = cell_index + 1
        on_cell(position, total)

    try:
        papermill.execute_notebook(
            str(lesson.path),
            str(partial),
            parameters,
            kernel_name="python3",
            kernel_manager_class=AsyncIPCKernelManager,
            progress_bar=False,
            cwd=str(work),
            start_timeout=120,
            extra_arguments=["--log-level=50"],  # an error comes back in the kernel's reply
            on_cell_start=on_cell_start,
            timeout_func=lambda cell: max(1, end - time.monotonic()),
        )
    except PapermillExecutionError as error:
        return f"cell {position} of {total}: {_one_line(error.ename, error.evalue)}"
    except CellTimeoutError:
        return (
            f"cell {position} of {total}: over the lesson's time limit of "
            f"{time_limit_s / 60:.3g} minutes (raise it with --time-limit)"
        )
    except DeadKernelError:
        return (
            f"cell {position} of {total}: the kernel ended: was it killed, did it run out of "
            "memory, or does the cell end it?"
        )
    except RuntimeError as error:  # it did not even start
        return _one_line("no kernel", str(error))
    except OSError as error:  # papermill writes the notebook, and does not say where
        raise OSError(
            error.errno or errno.EIO, error.strerror, str(error.filename or partial)
        ) from None
    return ""


def _one_line(name: str, value: str) -> str:
    first = (value.strip() or "no message").splitlines()[0]
    return make_printable(f"{name}: {first}")
