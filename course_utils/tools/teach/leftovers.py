"""Find and end the processes that an answer leaves behind, daemons too.

A daemon has another parent and another session than the kernel that started it. But it inherits
the kernel's environment, so a mark in there tells whose it is. (A process that clears its
environment is not found: only the sandbox holds it.)
"""

import os
import uuid
from contextlib import suppress

import psutil

__all__ = ["end_marked", "make_mark"]

ROUNDS = 20  # a process that forks meanwhile is met again in the next one


def make_mark(name: str) -> dict[str, str]:
    """The environment variable ``name`` with a value that no other process has."""
    return {name: uuid.uuid4().hex}


def _find_marked(mark: dict[str, str]) -> list[psutil.Process]:
    found = psutil.process_iter(["environ"])
    marked = [p for p in found if mark.items() <= (p.info["environ"] or {}).items()]
    return [p for p in marked if p.pid != os.getpid()]


def end_marked(mark: dict[str, str]) -> None:
    """Kill every process that has the variables of ``mark`` in its environment."""
    for _ in range(ROUNDS):
        marked = _find_marked(mark)
        if not marked:
            return
        for process in marked:
            with suppress(psutil.Error):  # it ended meanwhile
                process.kill()
        psutil.wait_procs(marked, timeout=5)  # a killed process needs a moment to go
