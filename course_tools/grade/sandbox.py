"""Run a command in a sandbox of bubblewrap (``bwrap``, Linux): it sees little and changes nothing.

Inside there is no network and no process but its own. Of the disk there are the system's programs
and libraries and Python, to read, and one folder to write into. Files in memory are limited. When
the command ends, or the process that started it, all that it started ends with it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from course_utils.errors import CourseError

__all__ = ["find_sandbox", "list_python_folders", "make_sandbox_command"]

PROGRAM = "bwrap"
SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/group",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/ssl",
    "/sys/devices/system/cpu",  # PyTorch asks how many there are
)
# of a Python's folder, which may be somebody's home or hold data too
PARTS = ("bin", "etc", "include", "lib", "lib32", "lib64", "libexec", "pyvenv.cfg", "share", "ssl")
IN_MEMORY = ("/tmp", "/dev/shm")  # files in them are memory that no process is charged for
IN_MEMORY_BYTES = 2**30  # of each
START_LIMIT_S = 60


def list_python_folders() -> list[str]:
    """Where this Python and its libraries are, as they are called and where links lead."""
    named = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]
    program = Path(sys.executable).resolve().parents[1]  # <folder>/bin/python
    folders = dict.fromkeys([*named, *map(os.path.realpath, named), str(program)])
    paths = [os.path.join(folder, part) for folder in folders for part in PARTS]
    return [path for path in paths if os.path.exists(path)]


def make_sandbox_command(
    command: Sequence[str],
    *,
    readable: Sequence[str],
    writable: str,
    folder: str,
    hidden: Sequence[str] = (),
) -> list[str]:
    """The command line that runs ``command`` in the sandbox.

    Args:
        command: with whole paths.
        readable: folders, beside those of the system.
        writable: one folder. The temporary folder can be written too, and is lost at the end.
        folder: where the command begins.
        hidden: folders that are empty inside, and files that cannot be opened, wherever they lie.
            A folder that holds a readable one or the writable one stays as it is: hide its parts.
    """
    options = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    options += ["--proc", "/proc", "--dev", "/dev"]
    for path in IN_MEMORY:
        options += ["--size", str(IN_MEMORY_BYTES), "--tmpfs", path]
    for path in SYSTEM:
        options += ["--ro-bind-try", path, path]
    for path in readable:
        options += ["--ro-bind", path, path]
    closed = ["/dev", "/"]  # memory too, until they cannot be written
    for path in sorted(hidden):  # a folder before what lies in it
        if any(_holds(folder, [path]) for folder in closed[2:]):
            continue
        if os.path.isdir(path) and not _holds(path, [*readable, writable]):
            options += ["--tmpfs", path]
            closed.append(path)
        elif os.path.isfile(path):
            options += ["--ro-bind", os.devnull, path]
    options += ["--bind", writable, writable]
    for path in closed:
        options += ["--remount-ro", path]
    options += ["--setenv", "HOME", "/tmp", "--setenv", "TMPDIR", "/tmp"]
    return [PROGRAM, *options, "--chdir", folder, "--", *command]


def _holds(folder: str, paths: Sequence[str]) -> bool:
    """Whether the folder is one of the paths, or one of them lies in it."""
    real = Path(folder).resolve()
    return any(Path(path).resolve().is_relative_to(real) for path in paths)


def _explain_absence() -> str:
    """Why there is no sandbox on this machine; empty if there is one."""
    if shutil.which(PROGRAM) is None:
        return f"{PROGRAM} is not installed (Debian, Ubuntu: apt install bubblewrap)"
    command = make_sandbox_command(
        [sys.executable, "-c", ""], readable=list_python_folders(), writable="/tmp", folder="/tmp"
    )
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{PROGRAM} does not start ({error})"
    reason = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
    return f"{PROGRAM} does not work here ({reason})" if done.returncode else ""


def find_sandbox(wanted: bool | None) -> tuple[bool, str]:
    """Whether to use the sandbox, and why not where it is missing.

    Args:
        wanted: None takes it where there is one.

    Raises:
        CourseError: it is wanted and missing.
    """
    if wanted is False:
        return False, "as you asked"
    missing = _explain_absence()
    if missing and wanted:
        raise CourseError(f"no sandbox, {missing}: add --no-sandbox to go on without one")
    return not missing, missing
