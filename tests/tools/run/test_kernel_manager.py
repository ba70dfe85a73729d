"""Kernels are reached over Unix sockets in a folder of their own, not over TCP ports."""

import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from course_tools.interrupts import ending_on_interrupt
from course_tools.run import kernel_manager, sockets
from course_tools.run.kernel_manager import AsyncIPCKernelManager, IPCKernelManager
from course_utils.files import write_atomically
from tests.tools.conftest import START_LIMIT_S

START_THREE = """
from course_tools.run.kernel_manager import IPCKernelManager
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


def test_windows_takes_tcp(monkeypatch, temporary):
    monkeypatch.setattr(kernel_manager.sys, "platform", "win32")
    assert IPCKernelManager().transport == "tcp"


@pytest.fixture
def far_away(tmp_path, monkeypatch, temporary):
    """A folder of temporary files with a path as long as clusters give it."""
    folder = tmp_path / ("scratch" * 10)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return folder


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no IPC")
@pytest.mark.parametrize("other_root", ["runtime", "other"])
def test_sockets_lie_in_a_short_folder_wherever_temporary_files_are(
    far_away, monkeypatch, temporary, other_root
):
    if other_root == "runtime":
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(temporary))
    else:
        monkeypatch.setattr(sockets, "OTHER_ROOTS", ("/no/such/folder", str(temporary)))
    with ending_on_interrupt(Console(), ""):
        manager = IPCKernelManager()
        assert manager.transport == "ipc"
        assert len(f"{manager.ip}-1".encode()) <= 103
        [folder] = temporary.iterdir()
        assert folder.stat().st_mode & 0o077 == 0, "it is this user's alone"
        manager.cleanup_connection_file()
        assert not folder.exists()


def test_an_interruption_removes_the_folders_outside_of_the_temporary_one(
    far_away, monkeypatch, temporary
):
    monkeypatch.setattr(sockets, "OTHER_ROOTS", (str(temporary),))
    manager = IPCKernelManager()
    assert list(temporary.iterdir()) == [Path(manager.ip).parent]
    sockets.remove_socket_folders()
    assert list(temporary.iterdir()) == []


def test_without_any_short_folder_a_kernel_takes_tcp(far_away, monkeypatch):
    monkeypatch.setattr(sockets, "OTHER_ROOTS", ("/no/such/folder", str(far_away)))
    manager = IPCKernelManager()
    assert manager.transport == "tcp"
    assert Path(manager.connection_file).is_relative_to(far_away)
    manager.cleanup_connection_file()


@pytest.mark.parametrize("given", [{}, {"env": {"RANK": "1", "HERE": "1", "MPLBACKEND": "TkAgg"}}])
@pytest.mark.parametrize("kind", [IPCKernelManager, AsyncIPCKernelManager])
def test_a_kernel_inherits_a_cleaned_environment(monkeypatch, given, kind):
    monkeypatch.setenv("SLURM_NTASKS", "2")
    monkeypatch.setenv("HERE", "1")
    started = {}
    monkeypatch.setattr(kind.__mro__[2], "start_kernel", lambda self, **kw: started.update(kw))
    manager = kind()
    manager.start_kernel(cwd="/here", **given)
    manager.cleanup_connection_file()
    assert started["cwd"] == "/here"
    assert started["env"]["HERE"] == "1"
    assert not {"RANK", "MPLBACKEND", "SLURM_NTASKS"} & set(started["env"])
