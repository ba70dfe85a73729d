"""Limits of a process that runs the code of others, and the failure that is not theirs."""

import ctypes
import os
import signal
import sys

from course_utils.errors import CourseError

__all__ = ["MOST_FILE_BYTES", "MachineFailure", "end_with_parent", "limit_process"]

MOST_FILE_BYTES = 2**30  # of one file that is written
PR_SET_PDEATHSIG = 1  # of prctl (Linux)


class MachineFailure(CourseError):
    """The machine could not do its part (no room, no kernel), so no answer can be judged."""


def limit_process(memory_gib: float) -> None:
    """Limit what this process, and each that it starts, may allocate (Linux) and write.

    Limits against accidents, not a sandbox. An allocation above the limit raises an error in
    Python and in PyTorch.

    Args:
        memory_gib: of each process, in GiB; on a system without such limits nothing happens.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    memory = int(memory_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE_BYTES, MOST_FILE_BYTES))


def end_with_parent(parent: int) -> None:
    """Let the system kill this process when the one that started it ends, by SIGKILL too (Linux).

    In the sandbox bubblewrap does so, for all processes in it.

    Args:
        parent: the number of the process that started this one; it may have ended by now.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
