"""Kernels are reached over Unix sockets in a folder of their own, not over TCP ports."""

import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from course_utils.files import write_atomically
from course_utils.tools.interrupts import ending_on_interrupt
from course_utils.tools.run import kernel_manager
from course_utils.tools.run.kernel_manager import IPCKernelManager
from tests.tools.conftest import START_LIMIT_S

START_THREE = """
from course_utils.tools.run.kernel_manager import IPCKernelManager
managers = [IPCKernelManager() for _ in range(3)]
for manager in managers:
    manager.start_kernel()
clients = [manager.client() for manager in managers]
for client in clients:
    client.start_channels()
for client in clients:
    client.wait_for_ready(timeout=90)
    assert client.execute_interactive("1 + 1", timeout=90)["content"]["status"] == "ok"
for manager in managers:
    manager.shutdown_kernel(now=True)
"""


def list_listening(pid):
    return [c for c in psutil.Process(pid).net_connections() if c.status == psutil.CONN_LISTEN]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no IPC")
def test_a_kernel_is_reached_over_five_sockets_and_leaves_no_folder(temporary):
    """One port is left: ipykernel opens it for what processes of the kernel print.

    The system chooses and opens that port in one step, so it cannot collide.
    """
    manager = IPCKernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=START_LIMIT_S)
    [folder] = temporary.iterdir()
    assert len([path for path in folder.iterdir() if path.is_socket()]) == 5
    assert len(list_listening(manager.provisioner.pid)) <= 1  # over TCP: 6
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    assert list(temporary.iterdir()) == []


def test_a_users_own_kernel_of_the_same_name_is_not_taken(tmp_path, monkeypatch):
    other = tmp_path / "kernels" / "python3" / "kernel.json"
    write_atomically(other, '{"argv": ["false"], "display_name": "x", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    manager = IPCKernelManager(kernel_name="python3")
    manager.start_kernel()
    try:
        command = psutil.Process(manager.provisioner.pid).cmdline()
    finally:
        manager.shutdown_kernel(now=True)
    assert command[:3] == [sys.executable, "-m", "ipykernel_launcher"]


def test_kernels_of_several_processes_start_at_once():
    command = [sys.executable, "-c", START_THREE]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        _, error = process.communicate(timeout=3 * START_LIMIT_S)
        assert process.returncode == 0, error


def test_two_kernels_share_no_path_and_socket_paths_are_short_enough():
    with ending_on_interrupt(Console(), ""):  # the longest path: its folder holds the kernels'
        one, other = IPCKernelManager(), IPCKernelManager()
    assert Path(one.ip).parent != Path(other.ip).parent
    begin = "/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T"  # macOS takes 103 bytes, Linux 107
    assert len(f"{begin}{one.ip.removeprefix(tempfile.gettempdir())}-1".encode()) <= 103


def test_windows_takes_tcp(monkeypatch):
    monkeypatch.setattr(kernel_manager.sys, "platform", "win32")
    assert IPCKernelManager().transport == "tcp"
