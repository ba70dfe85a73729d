"""``course study``: train what a study lacks, keep every training at once, train one again."""

import multiprocessing
import os
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import filelock

from course_tools.study.jobs import run_all
from course_tools.study.study_file import METRIC, StudyFile
from course_tools.study.trainings import train
from course_utils.errors import CourseError
from course_utils.measure.provenance import read_commit
from course_utils.results import STUDIES

__all__ = ["check_study", "open_executor", "run_study"]

TOLERANCE = 0.03  # of an accuracy that is trained again, perhaps on another machine


def _end_with_parent() -> None:
    """End this process when the one that started it is gone, even by kill -9."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def open_executor(jobs: int, address: str = "") -> Iterator[Executor | None]:
    """What runs trainings: a cluster of Dask, processes here, or nothing (one after the other).

    Args:
        jobs: processes.
        address: of Dask's scheduler; empty: no cluster.

    Raises:
        CourseError: Dask is not installed, or no scheduler answers there.
    """
    if address:
        try:
            from distributed import Client
        except ImportError:
            raise CourseError("--dask needs Dask: pip install 'dask[distributed]'") from None
        try:
            client = Client(address, timeout="10s")
        except (OSError, ValueError) as error:
            raise CourseError(f"--dask {address}: no scheduler answers ({error})") from None
        with client:
            yield client.get_executor()
    elif jobs > 1:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, context, initializer=_end_with_parent) as pool:
            yield pool
    else:
        yield None


def run_study(
    name: str,
    executor: Executor | None = None,
    folder: Path = STUDIES,
    say: Callable[[str], object] = print,
) -> StudyFile:
    """Train what the study lacks; each training is in its file as soon as it has ended.

    Args:
        name: of the lesson's folder.
        executor: of `open_executor`.
        folder: of the folders of lessons.
        say: gets a line after each training.

    Raises:
        CourseError: no such study; another process trains it; a damaged file.
    """
    found = StudyFile(name, folder)
    found.path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(found.path.with_name(".study.lock"), timeout=0):
            found = StudyFile(name, folder)  # nobody else writes it now
            while missing := found.list_missing():
                for row in run_all(missing, partial(train, folder=folder), executor):
                    found.add(row)
                    say(
                        f"{found.count_left()} left: {row['regime']}, {row['variant']}, "
                        f"{row['trial']}, seed {row['seed']}: "
                        f"{100 * row['metrics'][METRIC]:.1f} % in {row['seconds']:.0f} s"
                    )
    except filelock.Timeout:
        raise CourseError(f"another process trains the study {name}: wait for it") from None
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
    before, after = (
        row["metrics"][METRIC] for row in (found.rows[training], train(training, folder))
    )
    sentence = (
        f"study {name}, {training.regime}, {training.variant}, {training.trial}, seed "
        f"{training.seed}: {100 * before:.1f} % stored, {100 * after:.1f} % today"
    )
    if not abs(after - before) <= TOLERANCE:  # also where one of them is not a number
        raise CourseError(
            f"{sentence}: find what has changed, or delete {found.path} and train anew"
        )
    return sentence
