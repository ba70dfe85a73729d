import subprocess
import sys

import pytest

from course_tools.run.peak_memory import PeakMemory

MB = 10**6
# two processes; the second gets the first one's pages, and writes to none of them
HOLD = """
import os, time
held = bytearray(os.urandom(1)) * {bytes}
if {fork}:
    os.fork()
time.sleep(2)
"""


def hold(megabytes: int, fork: bool = False) -> int:
    """The peak that is measured while processes hold so many bytes."""
    code = HOLD.format(bytes=megabytes * MB, fork=fork)
    with PeakMemory(interval_s=0.1) as memory:
        subprocess.run([sys.executable, "-S", "-c", code], check=True)
    return memory.peak_bytes


def test_without_children_nothing_is_held():
    with PeakMemory(interval_s=0.01) as memory:
        pass
    assert memory.peak_bytes == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process shares")
def test_what_processes_share_is_counted_once():
    assert 200 * MB < hold(200) < 240 * MB
    assert 200 * MB < hold(200, fork=True) < 240 * MB
