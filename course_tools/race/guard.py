"""Notice what a recipe must not do: open the race's images, or use a network.

Python reports every file that it opens to an audit hook, and a hook cannot be removed. Libraries
that open files in C++ do not report it: only the sandbox hides files from them.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["forbid"]

OPENING = {"open", "os.listdir", "os.scandir", "os.link", "os.symlink", "os.rename"}
IMAGES = (
    "it reads the race's own images, the hidden split among them: train on the data that fit gets"
)
NETWORK = "it uses the network: a recipe has what comes with the course"
REFUSED_STATUS = 3


def forbid(folders: Sequence[str], tell: Callable[[str], None]) -> None:
    """End this process at once when it opens something in ``folders``, or connects to a network.

    An exception could be caught, so there is none. The hook stays until the process ends, and
    processes that are forked from it have it too.

    Args:
        folders: real paths.
        tell: is called before the end with one sentence.
    """
    end = os._exit  # a recipe may give this name another meaning

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        problem = ""
        if event in OPENING and _lies_in(arguments[0], folders):
            problem = IMAGES
        elif event == "socket.getaddrinfo" or _leaves_the_machine(event, arguments):
            problem = NETWORK
        if problem:
            tell(problem)
            end(REFUSED_STATUS)

    sys.addaudithook(look)


def _lies_in(path: Any, folders: Sequence[str]) -> bool:
    """Whether what is opened lies in one of the folders; a file's number tells nothing."""
    if not isinstance(path, str | bytes | os.PathLike):
        return False
    real = os.path.realpath(os.fsdecode(path))
    return any(real == folder or real.startswith(folder + os.sep) for folder in folders)


def _leaves_the_machine(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether a socket connects to a host and a port; one of this machine has a path."""
    return event == "socket.connect" and isinstance(arguments[1], tuple)
