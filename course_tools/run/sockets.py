"""Short folders for the sockets of kernels, wherever temporary files lie."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["find_socket_folder", "fits", "remove_socket_folders"]

MOST_BYTES = 103  # of a Unix socket's path on macOS; Linux has 107
LONGEST_NAME = "/kernel-ipc-5"  # of the sockets beside kernel.json
OTHER_ROOTS = ("/tmp", "/var/tmp", "/dev/shm")
_made: set[str] = set()  # outside the folder of temporary files, which `interrupts` removes


def fits(folder: str) -> bool:
    """Whether a socket of a kernel in ``folder`` has a path that the system takes."""
    return len(os.fsencode(folder + LONGEST_NAME)) <= MOST_BYTES


def _list_roots() -> Iterator[str]:
    yield tempfile.gettempdir()
    yield from filter(None, [os.environ.get("XDG_RUNTIME_DIR")])
    yield from OTHER_ROOTS


def find_socket_folder() -> str | None:
    """Make a private folder for one kernel; None if none is short enough: take TCP then.

    It lies among the temporary files, or where their folder has too long a path (clusters give
    such ones), in another one. Whoever gets it removes it; `remove_socket_folders` does so too.
    """
    for root in _list_roots():
        if not fits(f"{root}/k-12345678"):
            continue
        try:
            folder = tempfile.mkdtemp(prefix="k-", dir=root)
        except OSError:  # no such folder here, or not ours to write in
            continue
        if root != tempfile.gettempdir():
            _made.add(folder)
        return folder
    return None


def remove_socket_folders() -> None:
    """Remove what lies outside the folder of temporary files: this process is about to end."""
    while _made:
        shutil.rmtree(Path(_made.pop()), ignore_errors=True)
