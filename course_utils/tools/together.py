"""Execute several lessons at a time, each in a process of its own with its share of the cores."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from course_utils.errors import CourseError
from course_utils.tools.executing import execute_lesson
from course_utils.tools.ports import give_kernels_ports_of_their_own

__all__ = ["execute_together"]


def _begin_process() -> None:
    """Leave interrupts to the parent, end when it is gone, and share no port with another one."""
    global _ports
    _ports = give_kernels_ports_of_their_own()
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)  # a kernel ends itself when its parent is gone

    threading.Thread(target=watch, daemon=True).start()


def execute_together(tasks: Sequence[dict], jobs: int) -> Iterator[tuple[int, dict]]:
    """Call `execute_lesson` with each of ``tasks``, its arguments, ``jobs`` of them at a time.

    Yields:
        The task's number and the lesson's entry, in the order in which lessons end.

    Raises:
        CourseError: one of the processes was killed.
    """
    spawn = multiprocessing.get_context("spawn")  # a fork would share the parent's open threads
    with ProcessPoolExecutor(jobs, spawn, _begin_process) as pool:
        numbers = {pool.submit(execute_lesson, **task): n for n, task in enumerate(tasks)}
        try:
            for future in as_completed(numbers):
                yield numbers[future], future.result()
        except BrokenProcessPool:
            raise CourseError(
                "a process that executed lessons was killed (out of memory?): finished lessons "
                "are kept, go on with --jobs 1"
            ) from None
