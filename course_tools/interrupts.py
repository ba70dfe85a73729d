"""INT, TERM and HUP (Ctrl-C, kill, a closed terminal): one sentence, and nothing left behind.

This module is imported before all others, so it imports little.
"""

import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["ending_on_interrupt", "heed_signals"]

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
CACHE = "TORCHINDUCTOR_CACHE_DIR"

Handler = Callable[[int, Any], None]


def _say(sentence: str) -> None:
    with suppress(OSError):  # the terminal may be gone
        print(f"\n{sentence}", file=sys.stderr, flush=True)


def _stop(number: int, _: object) -> None:
    _say("course: interrupted")
    raise SystemExit(128 + number)  # unwinds, so that temporary folders are removed


def heed_signals(handler: Handler | signal.Handlers = _stop) -> dict[int, Any]:
    """Let ``handler`` answer the signals; returns the handlers before it.

    A signal that this process ignores, as under nohup or in the background, stays ignored.
    """
    numbers = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    heeded = {number: old for number, old in before.items() if old is not signal.SIG_IGN}
    for number in heeded:
        signal.signal(number, handler)
    return heeded


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """Make ``folder`` that of all temporary files of this process and of those that it starts.

    What is compiled stays where it is found again.
    """
    variables = {CACHE: os.environ.get(CACHE) or _find_cache(), "TMPDIR": str(folder)}
    before = {name: os.environ.get(name) for name in variables}
    tempdir = tempfile.tempdir
    try:
        folder.mkdir(mode=0o700)
        os.environ.update(variables)
        tempfile.tempdir = str(folder)
        yield
    finally:
        tempfile.tempdir = tempdir
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        shutil.rmtree(folder, ignore_errors=True)


def _find_cache() -> str:
    """Where torch.compile keeps its results by default."""
    import psutil

    user = psutil.Process().username().rpartition("\\")[2]
    return str(Path(tempfile.gettempdir(), f"torchinductor_{user}"))


@contextmanager
def ending_on_interrupt(console: "Console", message: str) -> Iterator[None]:
    """Within this context a signal ends the process with ``message`` and the status 128 + signal.

    At once, and its kernels with it: an exception would travel through the event loop of the
    kernel's client, which prints tracebacks of its own and can wait for a kernel that is only
    starting. All that is kept is written atomically, so nothing is lost. (In the main thread only.)
    """
    from course_tools.run.leftovers import end_children
    from course_tools.run.sockets import remove_socket_folders

    # the name is known before there is a folder; it is short, because kernels put sockets into it
    folder = Path(tempfile.gettempdir(), f"c-{secrets.token_hex(4)}")

    def end(number: int, _: object) -> None:
        heed_signals(signal.SIG_IGN)  # the end is near
        end_children()
        shutil.rmtree(folder, ignore_errors=True)
        remove_socket_folders()
        with suppress(OSError):
            console.show_cursor()
        _say(message)
        os._exit(128 + number)

    before = heed_signals(end)
    try:
        with _temporary_files_in(folder):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
