"""Start kernels that communicate over Unix sockets (IPC) instead of TCP ports.

Over TCP, Jupyter asks the system for five free ports, closes them, and the kernel opens them a
moment later. In between, the system may give one of them to another process. (ipykernel opens one
more port, for itself, with both transports: in one step, so nothing can come in between.)

A kernel inherits a cleaned environment, whatever the shell, the IDE or the cluster has set.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.connect import ConnectionFileMixin
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager, KernelManager

from course_tools.run.sockets import find_socket_folder
from course_utils.processes.inherited import clean_environment

__all__ = ["AsyncIPCKernelManager", "IPCKernelManager"]


class _OwnFolder(ConnectionFileMixin):
    """Keeps a kernel's connection file and sockets in a folder of its own until the kernel ends.

    The path of a Unix socket has at most 107 bytes, so the folder is a short one. It stays only if
    this process is killed: `ending_on_interrupt` removes it.
    """

    def __init__(self, **kwargs: Any):
        # Windows has no IPC
        short = None if sys.platform == "win32" else find_socket_folder()
        self._folder = short or tempfile.mkdtemp(prefix="k-")
        super().__init__(**kwargs)
        self.transport = "ipc" if short else "tcp"
        self.connection_file = str(Path(self._folder, "kernel.json"))  # sockets lie beside it

    def start_kernel(self, **options: Any) -> Any:
        """As that of Jupyter's manager, which waits or returns a coroutine."""
        variables = options.get("env") or os.environ
        cleaned = options | {"env": clean_environment(variables)}
        return super().start_kernel(**cleaned)  # type: ignore[misc]  # the other base's

    @property
    def kernel_spec(self) -> KernelSpec:
        """Always this Python: a user's own kernel called ``python3`` may be another one."""
        return KernelSpec(**get_kernel_dict())

    def cleanup_connection_file(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class IPCKernelManager(_OwnFolder, KernelManager):
    """Starts a kernel over IPC; its methods wait."""


class AsyncIPCKernelManager(_OwnFolder, AsyncKernelManager):
    """Starts a kernel over IPC; its methods are coroutines, as nbclient and papermill need them."""
