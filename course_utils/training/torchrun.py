"""Start real processes with torchrun, show each rank's output apart, and leave none behind."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from course_utils.errors import CourseError
from course_utils.processes.inherited import clean_environment

__all__ = ["Ranks", "torchrun"]

SAME_CALLS = "do all ranks make the same calls?"


@dataclass(frozen=True)
class Ranks:
    """What the ranks of one job printed, in the order of their ranks."""

    outputs: tuple[str, ...]

    def show(self) -> None:
        """Print every rank's lines apart, rank 0 first."""
        for rank, output in enumerate(self.outputs):
            for line in output.splitlines():
                print(f"[rank {rank}] {line}")


def _find_free_port() -> int:
    """A port of the loopback that no process uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _require_free(port: int) -> int:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise CourseError(
                f"port {port} is in use: choose another, or none and a free one is taken"
            ) from None
    return port


def _command(script: Path, arguments: tuple, logs: Path, options: dict[str, object]) -> list[str]:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    logging = [
        f"--log-dir={logs}",
        "--redirects=3",
        "--monitor-interval=0.1",
        "--shutdown-timeout=2",
    ]
    run = [sys.executable, "-m", "torch.distributed.run"]
    return [*run, *flags, *logging, str(script), *map(str, arguments)]


def _end(agents: list[subprocess.Popen], job: str) -> None:
    """Kill the agents and all that they started: workers lead sessions of their own."""
    for agent in agents:
        agent.kill()  # first, or it would start a killed worker again
        agent.wait()
    workers = []
    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get("TORCHELASTIC_RUN_ID") == job:
            with suppress(psutil.NoSuchProcess):
                process.kill()
                workers.append(process)
    psutil.wait_procs(workers, timeout=10)  # a killed process needs a moment to go


def _read(logs: list[Path], name: str) -> list[str]:
    """The last attempt's file ``name`` of every rank, node by node."""
    found = []
    for folder in logs:
        attempts = sorted(folder.glob("*/attempt_*"), key=lambda path: int(path.name[8:]))
        ranks = sorted(attempts[-1].iterdir(), key=lambda path: int(path.name)) if attempts else []
        found += [(rank / name).read_text(errors="replace") for rank in ranks]
    return found


def _last_line(texts: list[str]) -> str:
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "nothing was printed"


def _find_error(errors: list[str]) -> str | None:
    """The line that says what went wrong in a rank, with its fix where we know one."""
    text = "\n".join(errors)
    if absent := re.search(r"Unable to find address for: (\S+)", text):
        known = ", ".join(name for _, name in socket.if_nameindex())
        return f"no network interface {absent[1]}: set GLOO_SOCKET_IFNAME to one of {known}"
    pattern = r"^(?:\[rank\d+\]: )?((?:[\w.]*(?:Error|Exception|Interrupt)\b|  what\(\):).*)"
    raised = [line.strip() for line in re.findall(pattern, text, re.MULTILINE)]
    later = ("by peer", "Timed out waiting")  # what the other ranks see of it
    own = [line for line in raised if not any(sign in line for sign in later)]
    if not own and (waited := re.search(r"Timed out waiting (\d+)ms", text)):
        return f"a rank waited {int(waited[1]) // 1000} s for one that never came: {SAME_CALLS}"
    return (own or raised or [None])[0]


def _find_reason(errors: list[str], outputs: list[str], agents: list[str]) -> str:
    """One line on why a job failed."""
    pattern = r"rank +: (\d+).*\n +exitcode +: -(\d+)"
    for rank, number in [found for text in agents for found in re.findall(pattern, text)]:
        if int(number) not in (signal.SIGTERM, signal.SIGABRT):  # torchrun's own; an error's
            name = signal.Signals(int(number)).name
            return (
                f"rank {rank} was killed ({name}; out of memory?): with max_restarts the group "
                "starts again from its last checkpoint"
            )
    if not errors:  # no rank was started
        return f"torchrun started no rank: {_last_line(agents)}"
    return _find_error(errors) or f"no error was raised; last line of output: {_last_line(outputs)}"


def torchrun(
    script: Path | str,
    *arguments: object,
    processes: int = 2,
    nodes: int = 1,
    max_restarts: int = 0,
    port: int | None = None,
    static: bool = False,
    time_limit_s: float = 120,
    environment: Mapping[str, str] | None = None,
) -> Ranks:
    """Run ``script`` in ``processes`` processes on each of ``nodes`` agents of this machine.

    No process outlives the call, whatever happens: a job that does not end within the limit is
    killed with all that it started.

    Args:
        arguments: of the script.
        nodes: so many agents meet on the loopback, as machines would on a network.
        max_restarts: how often the whole group is started again after a rank has failed.
        port: of the rendezvous; None: a free one.
        static: each agent is told its number and where the first one is, as Slurm tells them;
            else the agents agree on their numbers when they meet.
        environment: variables on top of this process's own, without those of another job
            (`clean_environment`).

    Raises:
        CourseError: no such script, a rank failed, the job did not end, or the port is in use.
    """
    if not Path(script).is_file():
        raise CourseError(f"there is no script {script} here: write it first, or give its path")
    job = f"course-{uuid.uuid4().hex}"
    meeting = f"127.0.0.1:{_require_free(port) if port else _find_free_port()}"
    options: dict[str, object] = {
        "nnodes": nodes,
        "nproc_per_node": processes,
        "max_restarts": max_restarts,
        "rdzv_backend": "static" if static else "c10d",
        "rdzv_endpoint": meeting,
        "rdzv_id": job,
        "rdzv_conf": "timeout=60" if static else "join_timeout=60,last_call_timeout=1",
        "local_addr": "127.0.0.1",
    }
    own: list[dict[str, object]] = [{"node_rank": i} if static else {} for i in range(nodes)]
    # a store of its own for every start of the group: in the shared one a restarted rank can find
    # the address of the rank that died, and waits for it
    own_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    variables = (
        clean_environment(os.environ)
        | {"OMP_NUM_THREADS": "1"}
        | own_store
        | dict(environment or {})
    )
    deadline = time.monotonic() + time_limit_s
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / f"node{number}" for number in range(nodes)]
        says = [Path(folder) / f"agent{number}.log" for number in range(nodes)]
        agents = []
        try:
            for log, said, number in zip(logs, says, own, strict=True):
                command = _command(Path(script), arguments, log, options | number)
                with said.open("w") as out:
                    agents.append(subprocess.Popen(command, env=variables, stdout=out, stderr=out))
            for agent in agents:
                agent.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            reason = _find_error(_read(logs, "stderr.log")) or SAME_CALLS
            raise CourseError(
                f"{Path(script).name} did not end within {time_limit_s:g} s and was stopped: "
                f"{reason} (last line of output: {_last_line(_read(logs, 'stdout.log'))})"
            ) from None
        finally:
            _end(agents, job)
        if any(agent.returncode for agent in agents):
            if any(agent.returncode == -signal.SIGKILL for agent in agents):
                raise CourseError(
                    "torchrun itself was killed (SIGKILL; out of memory?): run it again, with "
                    "fewer processes or a smaller batch"
                )
            errors, outputs = _read(logs, "stderr.log"), _read(logs, "stdout.log")
            reason = _find_reason(errors, outputs, [path.read_text() for path in says])
            raise CourseError(f"{Path(script).name} failed: {reason}")
        return Ranks(tuple(_read(logs, "stdout.log")))
