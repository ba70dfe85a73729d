import socket
import textwrap

import psutil
import pytest

from course_utils.errors import CourseError
from course_utils.training.torchrun import torchrun


@pytest.fixture
def write(tmp_path):
    def write(body, name="job.py"):
        path = tmp_path / name
        head = "import os, sys, time\nrank = int(os.environ['RANK'])\n"
        path.write_text(head + textwrap.dedent(body))
        return path

    return write


def count_left(script):
    """Processes of this machine whose command names the script."""
    found = 0
    for process in psutil.process_iter(["cmdline"]):
        found += any(str(script) in word for word in process.info["cmdline"] or [])
    return found


def test_outputs_come_apart_in_the_order_of_ranks(write, capsys):
    job = write("print('I am', rank, 'of', os.environ['WORLD_SIZE'], *sys.argv[1:])")
    ranks = torchrun(job, "x", 7)
    assert ranks.outputs == ("I am 0 of 2 x 7\n", "I am 1 of 2 x 7\n")
    ranks.show()
    assert capsys.readouterr().out == "[rank 0] I am 0 of 2 x 7\n[rank 1] I am 1 of 2 x 7\n"
    assert not count_left(job)


def test_ranks_do_not_inherit_another_job(write, monkeypatch):
    for name, value in {"SLURM_NTASKS": "4", "PYTHONOPTIMIZE": "1", "PYTHONSAFEPATH": "1"}.items():
        monkeypatch.setenv(name, value)
    write("", "beside.py")
    job = write("import beside; print(os.environ.get('SLURM_NTASKS'), sys.flags.optimize)")
    assert torchrun(job, processes=1).outputs == ("None 0\n",)


def test_two_agents_make_one_job(write):
    ranks = torchrun(write("print(rank, os.environ['WORLD_SIZE'])"), processes=1, nodes=2)
    assert sorted(ranks.outputs) == ["0 2\n", "1 2\n"]


def test_two_agents_that_know_their_numbers_make_one_job_in_this_order(write):
    job = write("print(rank, os.environ['GROUP_RANK'], os.environ['WORLD_SIZE'])")
    ranks = torchrun(job, processes=1, nodes=2, static=True)
    assert ranks.outputs == ("0 0 2\n", "1 1 2\n")


def test_a_failing_rank_is_one_line(write):
    job = write("if rank: raise ValueError('no such colour')")
    with pytest.raises(CourseError, match=r"failed: ValueError: no such colour") as found:
        torchrun(job)
    assert "\n" not in str(found.value)
    assert not count_left(job)


def test_a_job_that_hangs_is_ended_with_all_its_processes(write):
    job = write("print('waiting', flush=True); time.sleep(1000)")
    with pytest.raises(CourseError, match=r"within 6 s .* the same calls\? .*: waiting\)"):
        torchrun(job, time_limit_s=6)
    assert not count_left(job)


def test_workers_end_with_a_killed_agent(write):
    """What torchrun does not do: its workers would go on without it."""
    job = write("if rank == 0: os.kill(os.getppid(), 9)\ntime.sleep(1000)")
    with pytest.raises(CourseError, match=r"torchrun itself was killed .*: run it again, with"):
        torchrun(job, time_limit_s=60)
    assert not count_left(job)


def test_a_port_in_use_is_one_line(write):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(CourseError, match=r"port .* in use: choose another"):
            torchrun(write("pass"), port=other.getsockname()[1], time_limit_s=60)


def test_a_restart_begins_the_whole_group_again(write, tmp_path):
    job = write(
        "attempt = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        "print('attempt', attempt, flush=True)\n"
        "if rank == 1 and attempt == 0: os.kill(os.getpid(), 9)\n"
        "time.sleep(1)"
    )
    assert torchrun(job, max_restarts=2).outputs == ("attempt 1\n", "attempt 1\n")


def test_an_interface_that_is_not_there_is_one_line(write):
    job = write("import torch.distributed as dist; dist.init_process_group('gloo')")
    with pytest.raises(CourseError, match=r"no network interface nope0: set GLOO_SOCKET") as found:
        torchrun(job, environment={"GLOO_SOCKET_IFNAME": "nope0"})
    assert "\n" not in str(found.value)
    assert socket.if_nameindex()[0][1] in str(found.value)


def test_a_killed_rank_is_one_line(write):
    """The other rank fails too, as it loses the connection: that is not the reason.

    Nothing starts again without ``max_restarts``: a second attempt would pass.
    """
    job = write("""
        import torch.distributed as dist
        dist.init_process_group("gloo")
        dist.barrier()
        if rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0": os.kill(os.getpid(), 9)
        dist.barrier()
    """)
    with pytest.raises(CourseError, match=r"rank 1 was killed \(SIGKILL.*with max_restarts"):
        torchrun(job)
    assert not count_left(job)


def test_torchrun_need_not_be_on_the_path(write, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert torchrun(write("print(rank)"), processes=1).outputs == ("0\n",)


def test_a_call_that_one_rank_leaves_out_is_one_line(write):
    job = write("""
        from datetime import timedelta
        import torch, torch.distributed as dist
        dist.init_process_group("gloo", timeout=timedelta(seconds=2))
        if rank == 0: dist.all_reduce(torch.zeros(1))
        time.sleep(4)
    """)
    with pytest.raises(CourseError, match=r"a rank waited 2 s for one that never came: do all"):
        torchrun(job)


def test_an_exit_without_an_error_shows_the_last_line(write):
    with pytest.raises(CourseError, match=r"no error was raised; last line of output: no luck"):
        torchrun(write("print('no luck', flush=True); sys.exit(3)"), processes=1)


def test_an_agent_that_starts_no_rank_says_why(write, tmp_path):
    broken = {"PYTHONHOME": str(tmp_path)}  # Python itself does not start
    with pytest.raises(CourseError, match=r"torchrun started no rank: \S"):
        torchrun(write("print('never')"), environment=broken)


def test_a_missing_script_is_one_line():
    with pytest.raises(CourseError, match=r"no script nowhere\.py here: write it"):
        torchrun("nowhere.py")
