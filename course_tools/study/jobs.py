"""Jobs of a long search that can be interrupted: what is done is kept, a line each."""

import json
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import closing
from pathlib import Path
from typing import TypeVar

__all__ = ["run_all", "run_missing"]

Job = TypeVar("Job")
Row = TypeVar("Row")


def run_missing(
    jobs: Iterable[dict],
    run: Callable[[dict], dict],
    path: Path,
    executor: Executor | None = None,
) -> list[dict]:
    """Run the jobs that are not in a file yet; each is kept as soon as it ends.

    Args:
        jobs: What to run: dictionaries of JSON values. A row of the file is of a job if it has
            all of the job's entries.
        run: Runs a job, and returns its row: the job's entries and what it measured.
        path: The file, one JSON object per line. It need not exist, nor its folder.
        executor: Runs several jobs at once, such as a pool of processes; None: one after the other.

    Returns:
        The rows of these jobs, in the order in which they ended.
    """
    jobs = list(jobs)
    path.parent.mkdir(parents=True, exist_ok=True)
    missing = [job for job in jobs if not any(_is_of(row, job) for row in _read_rows(path))]
    with closing(run_all(missing, run, executor)) as rows:
        for number, found in enumerate(rows, 1):
            row = json.dumps(found)
            with path.open("a", encoding="utf-8") as file:
                file.write(row + "\n")
            print(f"{number}/{len(missing)}", row, flush=True)
    return [row for row in _read_rows(path) if any(_is_of(row, job) for job in jobs)]


def run_all(
    jobs: Sequence[Job], run: Callable[[Job], Row], executor: Executor | None
) -> Generator[Row]:
    """The row of each job, as soon as it has ended.

    Close it (`contextlib.closing`) where its rows are used: when a row cannot be kept, the jobs
    that wait must not start.
    """
    if executor is None:
        yield from map(run, jobs)
        return
    futures = [executor.submit(run, job) for job in jobs]
    try:
        for future in as_completed(futures):
            yield future.result()
    finally:
        for future in futures:
            future.cancel()  # one failed: do not start those that wait


def _read_rows(path: Path) -> list[dict]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _is_of(row: dict, job: dict) -> bool:
    return all(name in row and row[name] == value for name, value in job.items())
