"""Kernels are reached over Unix sockets in a folder of their own, not over TCP ports."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from course_utils.tools.run import kernel_manager
from course_utils.tools.run.kernel_manager import IPCKernelManager, remove_kernel_folders
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


def test_kernels_of_several_processes_start_at_once():
    command = [sys.executable, "-c", START_THREE]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        _, error = process.communicate(timeout=3 * START_LIMIT_S)
        assert process.returncode == 0, error


def test_two_kernels_share_no_path_and_socket_paths_are_short_enough():
    one, other = IPCKernelManager(), IPCKernelManager()
    assert Path(one.ip).parent != Path(other.ip).parent
    assert len(f"{one.ip}-1".encode()) <= 103  # macOS; Linux takes 107 bytes


def test_folders_of_this_process_are_removed_and_no_others(temporary):
    manager = IPCKernelManager()
    folder = Path(manager.connection_file).parent
    (temporary / "kernel-1-other").mkdir()
    assert folder.parent == temporary
    remove_kernel_folders()
    assert [path.name for path in temporary.iterdir()] == ["kernel-1-other"]


def test_windows_takes_tcp(monkeypatch):
    monkeypatch.setattr(kernel_manager.sys, "platform", "win32")
    assert IPCKernelManager().transport == "tcp"
