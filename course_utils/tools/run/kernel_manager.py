"""Start kernels that talk over Unix sockets (IPC) instead of TCP ports.

Over TCP, Jupyter asks the system for five free ports, closes them, and the kernel opens them a
moment later. In between, the system may give one of them to another process. (ipykernel opens one
more port, for itself, with both transports: in one step, so nothing can come in between.)
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from jupyter_client.connect import ConnectionFileMixin
from jupyter_client.manager import AsyncKernelManager, KernelManager

from course_utils.tools.run.leftovers import MARK

__all__ = [
    "AsyncIPCKernelManager",
    "IPCKernelManager",
    "make_temporary_folder",
    "remove_kernel_folders",
]


def _name_prefix() -> str:
    """Of the process that removes the folders: this one, or the one that supervises it."""
    return f"kernel-{os.environ.get(MARK) or os.getpid()}-"


def make_temporary_folder() -> tempfile.TemporaryDirectory:
    """A temporary folder that `remove_kernel_folders` removes too."""
    return tempfile.TemporaryDirectory(prefix=_name_prefix(), ignore_cleanup_errors=True)


class _OwnFolder(ConnectionFileMixin):
    """Keeps a kernel's connection file and sockets in a folder of its own until the kernel ends.

    The path of a Unix socket has at most 107 bytes, so the folder is a temporary one. It stays
    only if this process is killed.
    """

    def __init__(self, **kwargs: Any):
        self._folder = make_temporary_folder()
        super().__init__(**kwargs)
        self.transport = "tcp" if sys.platform == "win32" else "ipc"  # Windows has no IPC
        self.connection_file = str(Path(self._folder.name, "kernel.json"))  # sockets lie beside it

    def cleanup_connection_file(self) -> None:
        self._folder.cleanup()


class IPCKernelManager(_OwnFolder, KernelManager):
    """Starts a kernel over IPC; its methods wait."""


class AsyncIPCKernelManager(_OwnFolder, AsyncKernelManager):
    """Starts a kernel over IPC; its methods are coroutines, as nbclient and papermill need them."""


def remove_kernel_folders() -> None:
    """Remove the folders of all kernels of this process, where nothing else can end them.

    Also those of processes that it started with `MARK` set to its own number.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{_name_prefix()}*"):
        shutil.rmtree(folder, ignore_errors=True)
