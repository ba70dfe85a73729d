"""Ctrl-C during a long command: one line, no traceback, nothing left running."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
from rich.console import Console

from course_utils.tools.run.kernel_manager import remove_kernel_folders

__all__ = ["ending_on_interrupt"]


@contextmanager
def ending_on_interrupt(console: Console, message: str) -> Iterator[None]:
    """Within this context an interrupt ends the process with ``message`` and exit status 130.

    At once, and its kernels with it: an exception would travel through the event loop of the
    kernel's client, which prints tracebacks of its own and can wait for a kernel that is only
    starting. All that is kept is written atomically, so nothing is lost. (In the main thread only.)
    """

    def end(*_) -> None:
        for child in psutil.Process().children(recursive=True):
            try:
                child.kill()
            except psutil.Error:  # it ended meanwhile
                continue
        remove_kernel_folders()
        console.show_cursor()
        print(f"\n{message}", file=sys.stderr, flush=True)
        os._exit(130)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
