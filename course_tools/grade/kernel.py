"""A kernel for cells of unknown content: within limits, started anew when one took it down.

Limits against accidents, not a sandbox: cells run with the rights of whoever starts the kernel.
"""

import os
import queue
import re
import time

import zmq
from jupyter_client.blocking import BlockingKernelClient

from course_tools.console import make_printable
from course_tools.grade.limits import MachineFailure
from course_tools.run.kernel_manager import IPCKernelManager
from course_tools.run.leftovers import MARK, end_leftovers
from course_utils.files import ROOT

__all__ = ["LimitedKernel", "is_lasting"]

STARTING_S = 120  # for a kernel and the imports: then it is the machine that is slow
SHOWN = 300  # characters of a message
PREPARE = """
import sys
sys.path[:] = [folder for folder in sys.path if folder] + [""]  # what a cell writes hides nothing
from course_tools.grade.limits import limit_process
limit_process({memory_gib})
"""
NO_ROOM = ("[Errno 28]", "No space left on device", "[Errno 122]", "[Errno 5]")
TOO_LONG = "It ran longer than"
TOO_MUCH = "It needs more than"
KERNEL_DOWN = "It took the kernel down: does it exit, or need too much memory?"


def is_lasting(problem: str) -> bool:
    """Whether a cell would have this problem under other limits too."""
    return not problem.startswith((TOO_LONG, TOO_MUCH, KERNEL_DOWN))


class LimitedKernel:
    """Executes cells one by one, each in ``time_s`` seconds and the kernel in ``memory_gib``.

    ``prelude`` is executed first in every kernel; whatever ran since is executed again in a new
    one, without the cell that ended the old one.
    """

    def __init__(self, prelude: str, folder: str, *, time_s: float, memory_gib: float):
        self.folder = folder
        self.time_s = time_s
        limits = PREPARE.format(memory_gib=memory_gib)
        self._prelude = [limits, prelude]
        self._ran: list[str] = []
        self._too_much = f"{TOO_MUCH} {memory_gib:g} GiB of memory."
        self._manager: IPCKernelManager | None = None
        self._client: BlockingKernelClient | None = None

    def __enter__(self) -> "LimitedKernel":
        return self

    def __exit__(self, *_) -> None:
        self._stop()

    def execute(self, source: str) -> str:
        """Execute a cell; what went wrong, in one sentence, or an empty string.

        Raises:
            MachineFailure: not the cell is at fault: no kernel starts, its prelude fails, or there
                is no room on the disk.
        """
        if self._manager is None:
            self._start()
        problem = self._execute(source, self.time_s)
        if not problem:
            self._ran.append(source)
        elif problem == self._too_much:  # what fills the memory may have a name, and stay
            self._stop()
        return problem

    def _start(self) -> None:
        try:
            self._start_kernel()
        except (OSError, RuntimeError, zmq.ZMQError) as error:
            self._stop()
            raise MachineFailure(f"no kernel starts here ({error}): try course doctor") from None
        for cell in self._prelude:
            if problem := self._execute(cell, STARTING_S):
                self._stop()
                if problem.startswith(TOO_LONG):
                    problem = f"they took longer than {STARTING_S} s, so try again when less runs"
                raise MachineFailure(f"the imports of the lesson do not run here: {problem}")
        for cell in list(self._ran):
            if self._execute(cell, self.time_s):  # it did pass, once
                self._ran.remove(cell)
                if self._manager is None:
                    return self._start()
        return None

    def _start_kernel(self) -> None:
        # the checks are those of this course, whichever one is installed
        path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {"PYTHONPATH": os.pathsep.join(path), "TMPDIR": self.folder}
        variables[MARK] = str(os.getpid())
        self._manager = IPCKernelManager(kernel_name="python3")
        self._manager.start_kernel(
            cwd=self.folder, env=os.environ | variables, extra_arguments=["--log-level=50"]
        )
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=STARTING_S)

    def _stop(self) -> None:
        if self._manager is None:
            return
        manager, client = self._manager, self._client
        self._manager = self._client = None
        if client is not None:
            client.stop_channels()
        if manager.has_kernel:
            manager.shutdown_kernel(now=True)
        else:
            manager.cleanup_connection_file()
        end_leftovers()

    def _execute(self, source: str, time_s: float) -> str:
        assert self._client is not None
        message = self._client.execute(source, allow_stdin=False, stop_on_error=False)
        deadline = time.monotonic() + time_s
        while True:
            try:
                reply = self._client.get_shell_msg(timeout=0.2)
            except queue.Empty:
                if self._manager is None or not self._manager.is_alive():
                    self._stop()
                    return KERNEL_DOWN
                if time.monotonic() > deadline:
                    self._stop()
                    return f"{TOO_LONG} {time_s:g} s: is there a loop without end?"
                continue
            if reply["parent_header"].get("msg_id") == message:
                payload = reply["content"].get("payload") or []
                if any(part.get("source") == "ask_exit" for part in payload):
                    self._stop()  # exit() says ok, and ends the kernel a moment later
                    return KERNEL_DOWN
                return self._describe(reply["content"])

    def _describe(self, reply: dict) -> str:
        if reply["status"] == "ok":
            return ""
        name = make_printable(reply.get("ename", reply["status"]))
        value = make_printable(" ".join(reply.get("evalue", "").split()))
        value = value if len(value) <= SHOWN else f"{value[:SHOWN]} …"
        if any(sign in value for sign in NO_ROOM):
            raise MachineFailure(f"{value}: make room for temporary files, or set TMPDIR")
        if name == "StdinNotImplementedError":
            return "It asks for input, and here is no person to answer."
        if name == "CheckFailed":
            return value or "The check failed, and says no more."
        if name == "MemoryError" or "DefaultCPUAllocator" in value:
            return self._too_much
        if name in ("SyntaxError", "IndentationError", "TabError"):
            value = re.sub(r"\(.*?(line \d+)\)$", r"in \1", value)
            return f"The cell is not Python: {value}."
        if found := re.match(r"name '(\w+)' is not defined", value):
            return f"{found[1]} is not defined: only the imports and cells of exercises are run."
        return f"The cell stopped with {name}: {value}" if value else f"It stopped: {name}."
