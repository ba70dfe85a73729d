"""Two nodes on one machine: agents of torchrun, what Slurm tells a task, workers of Dask."""

import os
import signal

import psutil
import pytest
import torch
import torch.distributed as dist
from lightning.fabric.plugins.environments import SLURMEnvironment

from course_utils.errors import CourseError
from course_utils.ranks import ON_CPU, run_ranks
from lesson_code.sharding import checkpoints, nodes


@pytest.fixture(scope="module")
def alone():
    return checkpoints.run_undisturbed(nodes.STEPS)


@pytest.mark.lesson_changed
@pytest.mark.parametrize("static", [True, False])
def test_two_agents_train_as_one_process_does(static, alone, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = run_ranks(nodes, processes=1, nodes=2, static=static, environment=ON_CPU)
    assert found["nodes"] == [0, 1]
    assert checkpoints.find_gap(found["trained"], alone) < 1e-12


@pytest.mark.lesson_changed
def test_a_node_whose_rank_dies_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deadly.py").write_text(
        "import os, signal\n\ndef measure(rank, size):\n    if rank:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with pytest.raises(CourseError, match=r"rank 1 was killed \(SIGKILL") as found:
        run_ranks("deadly", processes=1, nodes=2, static=True, environment=ON_CPU)
    assert "\n" not in str(found.value)


# ---- Slurm


TASK = {"SLURM_PROCID": "9", "SLURM_LOCALID": "1", "SLURM_NTASKS": "16", "SLURM_NODEID": "1"}


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("gpu7", "gpu7"),
        ("gpu7,gpu9", "gpu7"),
        ("gpu[07-08]", "gpu07"),
        ("gpu[07,12-14],login1", "gpu07"),
        ("a-b[3]", "a-b3"),
    ],
)
def test_slurms_variables_are_read_as_lightning_reads_them(hosts, first, monkeypatch):
    variables = TASK | {"SLURM_JOB_NODELIST": hosts, "SLURM_JOB_ID": "104711"}
    found = nodes.read_slurm(variables)
    theirs_too = {"SLURM_NODELIST": hosts, "SLURM_NTASKS_PER_NODE": "8"}
    for name, value in (variables | theirs_too).items():
        monkeypatch.setenv(name, value)
    for name in ("MASTER_ADDR", "MASTER_PORT"):  # Lightning sets them, and they go afterwards
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    theirs = SLURMEnvironment(auto_requeue=False)
    assert found["MASTER_ADDR"] == first == theirs.main_address
    assert found["MASTER_PORT"] == str(theirs.main_port)
    assert found["RANK"] == str(theirs.global_rank())
    assert found["LOCAL_RANK"] == str(theirs.local_rank())
    assert found["WORLD_SIZE"] == str(theirs.world_size())


def test_outside_of_slurm_is_one_sentence():
    with pytest.raises(CourseError, match="SLURM_PROCID is not set: start the script by srun"):
        nodes.read_slurm({})
    with pytest.raises(ValueError, match="no host in"):
        nodes.find_first_host("")


# ---- Dask


def list_workers():
    """Processes that this one has spawned; Python's own tracker of resources is none of them."""
    children = psutil.Process().children(recursive=True)
    return {child.pid for child in children if "spawn_main" in " ".join(child.cmdline())}


def wait_for_the_others(rank, size):
    dist.barrier()
    return torch.tensor(rank)


def die(rank, size):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def fail(rank, size):
    if rank == 1:
        raise ValueError("no such colour")
    dist.barrier()


needs_dask = pytest.mark.skipif(not nodes.has_dask(), reason=nodes.MISSING)


@needs_dask
@pytest.mark.lesson_changed
def test_ranks_of_dask_train_as_one_process_does(alone):
    before = list_workers()
    found, nothing = nodes.run_by_dask(nodes.train_few)
    assert checkpoints.find_gap(found, alone) < 1e-12
    assert nothing == {}, "the state is on rank 0"
    assert list_workers() <= before


@needs_dask
@pytest.mark.nightly
def test_three_ranks_of_dask_answer_in_their_order():
    assert nodes.run_by_dask(wait_for_the_others, size=3) == [0, 1, 2]


@needs_dask
@pytest.mark.lesson_changed
@pytest.mark.parametrize(
    ("task", "sentence"),
    [(die, "a worker of Dask died"), (fail, "a rank failed: ValueError: no such colour")],
)
def test_a_rank_of_dask_that_dies_or_fails_is_one_sentence(task, sentence):
    before = list_workers()
    with pytest.raises(CourseError, match=sentence) as found:
        nodes.run_by_dask(task)
    assert "\n" not in str(found.value)
    assert list_workers() <= before


def test_without_dask_it_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(nodes, "find_spec", lambda name: None)
    with pytest.raises(CourseError, match=r"Dask is not installed.*\[cluster\]"):
        nodes.run_by_dask(wait_for_the_others)
