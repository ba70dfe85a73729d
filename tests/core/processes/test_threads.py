import os
import subprocess
import sys

import pytest
import torch

from course_utils.processes import threads
from course_utils.processes.threads import choose_threads, find_quota, use_threads

V2, V1 = "0::{}\n", "5:cpu,cpuacct:{}\n4:memory:/m\n"
TOP = "/sys/fs/cgroup"


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        (V2.format("/"), {f"{TOP}/cpu.max": "200000 100000\n"}, 2),
        (V2.format("/"), {f"{TOP}/cpu.max": "max 100000\n"}, None),
        (V2.format("/"), {}, None),  # the host's own top group has no such file
        (V2.format("/a/b"), {f"{TOP}/a/b/cpu.max": "max 1", f"{TOP}/a/cpu.max": "150 100"}, 1.5),
        (V2.format("/a/b"), {f"{TOP}/a/b/cpu.max": "800 100", f"{TOP}/a/cpu.max": "400 100"}, 4),
        (V2.format("/docker/1f"), {f"{TOP}/cpu.max": "50000 100000"}, 0.5),  # the host's path
        (V2.format("/a:b"), {f"{TOP}/a:b/cpu.max": "300 100"}, 3),
        (
            V1.format("/"),
            {f"{TOP}/cpu/cpu.cfs_quota_us": "400", f"{TOP}/cpu/cpu.cfs_period_us": "100"},
            4,
        ),
        (
            V1.format("/docker/1f"),
            {f"{TOP}/cpu/cpu.cfs_quota_us": "-1", f"{TOP}/cpu/cpu.cfs_period_us": "100"},
            None,
        ),
        (V2.format("/"), {f"{TOP}/cpu.max": "200000"}, None),
        (V2.format("/"), {f"{TOP}/cpu.max": "200000 0"}, None),
        ("damaged\n\n", {}, None),
        (None, {}, None),  # another system than Linux
    ],
)
def test_the_quota_is_the_smallest_of_all_groups(groups, files, quota):
    assert find_quota((files | {"/proc/self/cgroup": groups}).get) == quota


@pytest.mark.parametrize(
    ("cores", "quota", "busy", "most", "number", "reason"),
    [
        (2, None, 0.0, 2, 2, "as many as PyTorch takes on 2 cores by itself"),
        (2, None, 0.3, 2, 2, "by itself"),  # what a run's own start may leave
        (2, 2.0, 0.0, 2, 2, "by itself"),
        (16, 2.0, 0.0, 16, 2, "a quota of 2 of 16 CPUs"),
        (16, 2.0, 13.0, 16, 2, "a quota of 2 of 16 CPUs"),  # others on the host have the rest
        (16, 0.5, 0.0, 16, 1, "a quota of 0.5 of 16 CPUs"),
        (2, None, 1.0, 2, 1, "other work keeps 1.0 of 2 cores busy"),
        (2, None, 2.0, 2, 1, "other work keeps 2.0 of 2 cores busy"),
        (16, None, 8.2, 16, 8, "other work keeps 8.2 of 16 cores busy"),
        (16, 12.0, 8.2, 16, 8, "other work keeps 8.2 of 16 cores busy"),
        (16, None, 0.0, 8, 8, "by itself"),  # hyperthreads: PyTorch takes the 8 whole cores
        (1, None, 1.0, 1, 1, "by itself"),
    ],
)
def test_threads_follow_quota_and_load(cores, quota, busy, most, number, reason):
    threads = choose_threads(cores, quota, busy, most, {})
    assert (threads.number, threads.is_reduced) == (number, number < most)
    assert threads.reason.endswith(reason)


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_a_number_that_a_person_has_set_is_left_alone(name):
    threads = choose_threads(16, 2.0, 15.0, 12, {name: "12"})
    assert threads.describe() == f"12 threads: {name} is set"
    assert not threads.is_reduced
    assert choose_threads(16, 2.0, 0.0, 16, {name: ""}).number == 2, "empty is not set"


@pytest.fixture
def machine(monkeypatch):
    """A machine of two cores without a quota; its load is the test's."""
    for name in threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "_list_cores", lambda: [0, 1])
    monkeypatch.setattr(threads, "_read", lambda path: None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    use_threads.cache_clear()
    yield lambda busy: monkeypatch.setattr(threads, "_measure_busy", lambda cores: busy)
    use_threads.cache_clear()
    os.environ.pop("OMP_NUM_THREADS", None)  # before monkeypatch puts its own back


def test_a_smaller_number_is_said_once_and_holds_for_child_processes(machine, monkeypatch, capsys):
    told = []
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    machine(busy=1.0)
    assert use_threads().number == 1
    machine(busy=0.0)
    assert use_threads().number == 1, "it does not change within a process"
    assert capsys.readouterr().out == "1 thread: other work keeps 1.0 of 2 cores busy\n"
    assert told == [1]
    assert os.environ["OMP_NUM_THREADS"] == "1"


def test_an_idle_machine_is_left_as_it_is(machine, monkeypatch, capsys):
    told = []
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    machine(busy=0.2)
    assert use_threads().number == 2
    assert capsys.readouterr().out == ""
    assert told == []
    assert "OMP_NUM_THREADS" not in os.environ


def test_a_short_burst_is_no_load(monkeypatch):
    samples = iter([[100.0, 90.0, 100.0], [10.0, 0.0, 100.0]])
    monkeypatch.setattr(threads.psutil, "cpu_percent", lambda *args, **options: next(samples))
    assert threads._measure_busy([0, 1]) == pytest.approx(0.1), "of the cores that are ours"


FORKS = """
import os, torch
from course_utils.processes.threads import use_threads
use_threads()
matrix = torch.randn(800, 800)
matrix.sin().sum()  # now PyTorch's other thread exists
if child := os.fork():
    _, status = os.waitpid(child, 0)
    print("the child ended with", status)
else:
    matrix.sin().sum()
    os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_does_not_wait_for_threads_that_it_has_not():
    """With a number in OMP_NUM_THREADS, as ``course run`` sets it, it waited for ever."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS],
        env=os.environ | {"OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "the child ended with 0\n", done.stderr
