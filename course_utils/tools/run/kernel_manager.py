"""Start kernels that communicate over Unix sockets (IPC) instead of TCP ports.

Over TCP, Jupyter asks the system for five free ports, closes them, and the kernel opens them a
moment later. In between, the system may give one of them to another process. (ipykernel opens one
more port, for itself, with both transports: in one step, so nothing can come in between.)
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.connect import ConnectionFileMixin
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager, KernelManager

__all__ = ["AsyncIPCKernelManager", "IPCKernelManager"]


class _OwnFolder(ConnectionFileMixin):
    """Keeps a kernel's connection file and sockets in a folder of its own until the kernel ends.

    The path of a Unix socket has at most 107 bytes, so the folder is a temporary one. It stays
    only if this process is killed: `ending_on_interrupt` gives commands a temporary folder of
    their own, which goes with them.
    """

    def __init__(self, **kwargs: Any):
        self._folder = tempfile.TemporaryDirectory(prefix="k-")
        super().__init__(**kwargs)
        self.transport = "tcp" if sys.platform == "win32" else "ipc"  # Windows has no IPC
        self.connection_file = str(Path(self._folder.name, "kernel.json"))  # sockets lie beside it

    @property
    def kernel_spec(self) -> KernelSpec:
        """Always this Python: a user's own kernel called ``python3`` may be another one."""
        return KernelSpec(**get_kernel_dict())

    def cleanup_connection_file(self) -> None:
        self._folder.cleanup()


class IPCKernelManager(_OwnFolder, KernelManager):
    """Starts a kernel over IPC; its methods wait."""


class AsyncIPCKernelManager(_OwnFolder, AsyncKernelManager):
    """Starts a kernel over IPC; its methods are coroutines, as nbclient and papermill need them."""
