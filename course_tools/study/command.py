"""``course study``: train what a study lacks, keep every training at once, train one again."""

import multiprocessing
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import filelock

from course_tools.study.describe import describe_time_left
from course_tools.study.jobs import run_all
from course_tools.study.study_file import StudyFile
from course_tools.study.trainings import train
from course_utils.errors import CourseError
from course_utils.measure.provenance import describe_hardware, read_commit
from course_utils.results import STUDIES
from course_utils.study_results import ACCURACY, TrainingResult

__all__ = ["Workers", "check_study", "open_workers", "run_study"]

TOLERANCE = 0.03  # of an accuracy that is trained again, perhaps on another machine
SCHEDULER_LIMIT_S = 10  # to answer in


class Workers(NamedTuple):
    """What runs trainings: ``jobs`` at once, all on machines such as ``hardware`` says."""

    executor: Executor | None  # None: one after the other, in this process
    jobs: int
    hardware: Mapping[str, str | int | None]


def _end_with_parent() -> None:
    """End this process when the one that started it is gone, even by kill -9."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def open_workers(jobs: int, address: str = "") -> Iterator[Workers]:
    """The workers of a cluster of Dask, processes here, or this process alone.

    Args:
        jobs: processes.
        address: of Dask's scheduler; empty: no cluster.

    Raises:
        CourseError: Dask is not installed, no scheduler answers there, or it has no worker.
    """
    if address:
        try:
            from distributed import Client
        except ImportError:
            raise CourseError("--dask needs Dask: pip install 'dask[distributed]'") from None
        try:
            client = Client(address, timeout=SCHEDULER_LIMIT_S)
        except (OSError, ValueError) as error:
            raise CourseError(f"--dask {address}: no scheduler answers ({error})") from None
        with client:
            jobs = len(client.nthreads())  # of workers: each trains one at a time
            if not jobs:
                raise CourseError(f"--dask {address}: it has no worker: wait for the first one")
            hardware = client.submit(describe_hardware).result()
            yield Workers(client.get_executor(), jobs, hardware)
    elif jobs > 1:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, context, initializer=_end_with_parent) as pool:
            yield Workers(pool, jobs, describe_hardware())
    else:
        yield Workers(None, 1, describe_hardware())


def _describe_progress(study: StudyFile, row: TrainingResult, jobs: int) -> str:
    """What is left, and the training that has just ended."""
    left = f"{sum(study.count_left().values())} left"
    if time_left := describe_time_left(study, jobs):
        left += f" ({time_left})"
    measured = "diverged" if row.diverged else f"{100 * row.read_metric(ACCURACY):.1f} %"
    return (
        f"{left}: {row.regime}, {row.variant}, {row.trial}, seed {row.seed}: "
        f"{measured} in {row.seconds:.0f} s"
    )


def run_study(
    name: str,
    workers: Workers | None = None,
    folder: Path = STUDIES,
    say: Callable[[str], object] = print,
) -> StudyFile:
    """Train what the study lacks; each training is in its file as soon as it has ended.

    Args:
        name: of the lesson's folder.
        workers: of `open_workers`; None: this process alone.
        folder: of the folders of lessons.
        say: gets a line after each training.

    Raises:
        CourseError: no such study; another process trains it; a damaged file; one that cannot be
            written; a process that trains has ended.
    """
    workers = workers or Workers(None, 1, describe_hardware())
    found = StudyFile(name, folder)
    found.path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(found.path.with_name(".study.lock"), timeout=0):
            found = StudyFile(name, folder)  # nobody else writes it now
            while missing := found.list_missing():
                ended = run_all(missing, partial(train, folder=folder), workers.executor)
                with closing(ended) as rows:
                    for row in rows:
                        found.add(row, workers.hardware)
                        say(_describe_progress(found, row, workers.jobs))
            found.update()
    except filelock.Timeout:
        raise CourseError(f"another process trains the study {name}: wait for it") from None
    except BrokenExecutor:
        raise CourseError(
            f"a process that trained the study {name} has ended, perhaps for lack of memory: what "
            "is trained is kept, go on with fewer --jobs"
        ) from None
    return found


def check_study(name: str, folder: Path = STUDIES) -> str:
    """Train one training of a study again, which one the commit decides.

    Returns:
        a sentence that names it, with both accuracies.

    Raises:
        CourseError: the accuracies differ by more than ``TOLERANCE``; nothing is trained yet.
    """
    found = StudyFile(name, folder)
    if not found.rows:
        raise CourseError(f"study {name}: nothing of it is trained: run `course study {name}`")
    training = random.Random(read_commit()).choice(list(found.rows))
    before = found.rows[training].read_metric(ACCURACY)
    after = train(training, folder).read_metric(ACCURACY)
    sentence = (
        f"study {name}, {training.regime}, {training.variant}, {training.trial}, seed "
        f"{training.seed}: {100 * before:.1f} % stored, {100 * after:.1f} % today"
    )
    if not abs(after - before) <= TOLERANCE:  # also where one of them is not a number
        raise CourseError(
            f"{sentence}: find what has changed, or delete {found.path} and train anew"
        )
    return sentence
