"""Run a module of the course in a process of its own, on a fresh copy of the package.

`course grade` checks notebooks so, and `course race` trains recipes. Whatever the code of others
does to the process, or to the package, ends with it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from course_tools.console import make_printable
from course_tools.grade.sandbox import list_python_folders, make_sandbox_command
from course_tools.grade.strangers import read_regular
from course_tools.run.leftovers import MARK, end_leftovers
from course_utils.processes.inherited import clean_environment

__all__ = ["isolated_process", "read_messages"]

TEMPORARY = "t"  # short: the names of sockets in it may have some hundred characters
MOST_BYTES = 2**20  # of a message


@contextmanager
def isolated_process(
    module: str,
    arguments: Sequence[str],
    course: Path,
    work: Path,
    *,
    sandbox: bool,
    hidden: Sequence[str] = (),
) -> Iterator[subprocess.Popen]:
    """A process that runs ``module`` of the package in ``course``; the context ends it.

    All that it leaves running is ended too. What it prints is not shown.

    Args:
        course: the copy of the package, which the process can read.
        work: its working folder, which it can write; it exists.
        sandbox: run it in bubblewrap.
        hidden: what cannot be read in the sandbox, see `make_sandbox_command`.
    """
    (work / TEMPORARY).mkdir(exist_ok=True)
    path = [str(course), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLCONFIGDIR": str(work / "matplotlib"),
        "TMPDIR": str(work / TEMPORARY),  # goes with the folder, however the process ends
        MARK: str(os.getpid()),
    }
    command = [sys.executable, "-m", module, *arguments]
    if sandbox:
        command = make_sandbox_command(
            command,
            readable=[*list_python_folders(), str(course)],
            writable=str(work),
            folder=str(work),
            hidden=hidden,
        )
    process = subprocess.Popen(
        command,
        cwd=work,
        env=clean_environment(os.environ) | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        end_leftovers()
        end_leftovers(process.pid)  # of its kernel


def read_messages(path: Path) -> dict[str, str]:
    """What the process wrote. The code of others could write it too: read it with suspicion."""
    try:
        messages = json.loads(read_regular(path, MOST_BYTES).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(messages, dict):
        return {}
    return {name: make_printable(text) for name, text in messages.items() if isinstance(text, str)}
