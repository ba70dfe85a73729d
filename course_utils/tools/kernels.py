"""A kernel for cells that nobody has read: within limits, started anew when one took it down."""

import queue
import re
import time

import jupyter_client

__all__ = ["LimitedKernel"]

STARTING_S = 120  # for a kernel and the imports: then it is the machine that is slow
SHOWN = 200  # characters of an error's message
LIMIT_MEMORY = """
try:
    import resource
    resource.setrlimit(resource.RLIMIT_DATA, ({bytes}, {bytes}))
except ImportError:  # Windows has no such limit
    pass
"""


class LimitedKernel:
    """Executes cells one by one, each in ``time_s`` seconds and the kernel in ``memory_gib``.

    ``prelude`` is executed first in every kernel; whatever ran since is executed again in a new
    one, without the cell that ended the old one.
    """

    def __init__(self, prelude: str, folder: str, *, time_s: float, memory_gib: float):
        self.folder, self.time_s = folder, time_s
        limit = LIMIT_MEMORY.format(bytes=int(memory_gib * 2**30))
        self._ran = [limit, prelude]
        self._too_much = f"It needs more than {memory_gib:g} GiB of memory."
        self._manager: jupyter_client.KernelManager | None = None

    def __enter__(self) -> "LimitedKernel":
        return self

    def __exit__(self, *_) -> None:
        self._stop()

    def execute(self, source: str) -> str:
        """Execute a cell; what went wrong, in one sentence, or an empty string."""
        if self._manager is None:
            self._start()
            for cell in self._ran:
                if problem := self._execute(cell, STARTING_S):
                    self._stop()
                    return problem
        problem = self._execute(source, self.time_s)
        if not problem:
            self._ran.append(source)
        elif problem == self._too_much:  # what fills the memory may have a name, and stay
            self._stop()
        return problem

    def _start(self) -> None:
        self._manager, self._client = jupyter_client.manager.start_new_kernel(
            startup_timeout=STARTING_S,
            kernel_name="python3",
            cwd=self.folder,
            extra_arguments=["--log-level=50"],
        )

    def _stop(self) -> None:
        if self._manager is not None:
            self._client.stop_channels()
            self._manager.shutdown_kernel(now=True)
            self._manager = None

    def _execute(self, source: str, time_s: float) -> str:
        message = self._client.execute(source, allow_stdin=False, stop_on_error=False)
        deadline = time.monotonic() + time_s
        while True:
            try:
                reply = self._client.get_shell_msg(timeout=0.2)
            except queue.Empty:
                if not self._manager.is_alive():
                    self._stop()
                    return "It took the kernel down: does it exit, or need too much memory?"
                if time.monotonic() > deadline:
                    self._stop()
                    return f"It ran longer than {time_s:g} s: is there a loop without end?"
                continue
            if reply["parent_header"].get("msg_id") == message:
                return self._describe(reply["content"])

    def _describe(self, reply: dict) -> str:
        if reply["status"] == "ok":
            return ""
        name, value = reply.get("ename", reply["status"]), " ".join(reply.get("evalue", "").split())
        if name == "CheckFailed":
            return value
        if name == "MemoryError" or "DefaultCPUAllocator" in value:
            return self._too_much
        if name in ("SyntaxError", "IndentationError", "TabError"):
            value = re.sub(r"\(.*?(line \d+)\)$", r"in \1", value)
            return f"The cell is not Python: {value}."
        if found := re.match(r"name '(\w+)' is not defined", value):
            return f"{found[1]} is not defined: has it another name, or another cell?"
        return f"The cell stopped with {name}: {value[:SHOWN]}" if value else f"It stopped: {name}."
