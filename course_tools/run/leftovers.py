"""End the processes that a lesson leaves behind, those in sessions of their own included."""

import os
from contextlib import suppress

import psutil

__all__ = ["MARK", "end_children", "end_leftovers"]

ROUNDS = 20  # what a process starts while it is being killed is met in the next one
MARK = "COURSE_STARTED_BY"  # in the environment of a kernel, and so of all that it starts


def end_leftovers(started_by: int | None = None) -> None:
    """Kill all processes with `MARK` and the number of this process as its value.

    A process that was started with another environment than its parent's is not found.

    Args:
        started_by: the number of another process that set the mark.
    """
    number = str(started_by or os.getpid())
    for _ in range(ROUNDS):
        ended = []
        for process in psutil.process_iter(["environ"]):
            found = (process.info["environ"] or {}).get(MARK)
            if found == number and process.pid != os.getpid():
                with suppress(psutil.Error):  # it ended meanwhile
                    process.kill()
                    ended.append(process)
        if not ended:
            return
        psutil.wait_procs(ended, timeout=10)  # a killed process needs a moment to go


def end_children() -> None:
    """Kill all that this process has started, directly or not, and what lessons leave behind."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        with suppress(psutil.Error):
            child.kill()
    for number in (os.getpid(), *(child.pid for child in children)):  # lessons side by side
        end_leftovers(number)
