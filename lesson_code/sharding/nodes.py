"""Several nodes: two agents of torchrun, what Slurm tells its tasks, and ranks that Dask starts."""

import logging
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import torch.distributed as dist

from course_utils.errors import CourseError
from lesson_code.sharding.checkpoints import make_training, read_whole, take_step

MISSING = "Dask is not installed, so its part is left out: pip install '.[cluster]'"
STEPS = 5
LOOPBACK = "127.0.0.1"

Train = Callable[[int, int], Any]  # a rank and the world size to what comes out


def train_few(rank: int, size: int) -> dict[str, Any]:
    """Weights and moments, unsharded, after a few steps of a sharded training; on rank 0."""
    model, optimizer = make_training(size)
    for step in range(STEPS):
        take_step(model, optimizer, step, rank, size)
    return read_whole(model, optimizer)


def measure(rank: int, size: int, **_: object) -> dict[str, Any]:
    """The node of every rank, as torchrun numbers them, and what `train_few` returns."""
    nodes: list[Any] = [None] * size
    dist.all_gather_object(nodes, int(os.environ["GROUP_RANK"]))
    return {"nodes": nodes, "trained": train_few(rank, size)}


# ---- Slurm


def find_first_host(hosts: str) -> str:
    """The first name in a list as Slurm writes it.

    >>> find_first_host("gpu[07-09,12],login1")
    'gpu07'
    """
    found = re.match(r"([^\[,]+)(?:\[(\w+))?", hosts)
    if found is None:
        raise ValueError(f"no host in {hosts!r}")
    return found[1] + (found[2] or "")


def read_slurm(variables: Mapping[str, str]) -> dict[str, str]:
    """What PyTorch reads from the environment, from what ``srun`` has put there for a task.

    Each task is a rank. All of them derive the same port from the number of the job, so that two
    jobs on one machine seldom choose the same.

    Raises:
        CourseError: a variable is missing.
    """
    names = {"RANK": "PROCID", "LOCAL_RANK": "LOCALID", "WORLD_SIZE": "NTASKS"}
    try:
        found = {name: variables[f"SLURM_{theirs}"] for name, theirs in names.items()}
        hosts, job = variables["SLURM_JOB_NODELIST"], variables["SLURM_JOB_ID"]
    except KeyError as error:
        raise CourseError(f"{error.args[0]} is not set: start the script by srun") from None
    return found | {
        "MASTER_ADDR": find_first_host(hosts),
        "MASTER_PORT": str(15000 + int(job[-4:])),
    }


# ---- Dask: each worker of a cluster is a node, and runs one rank


def has_dask() -> bool:
    return find_spec("distributed") is not None


_stores: list[Any] = []  # of rank 0's worker, from one task to the next


def _open_store(size: int) -> int:
    """Rank 0's worker: a store that the ranks meet at; its port, which the system has chosen."""
    store = dist.TCPStore(LOOPBACK, 0, size, is_master=True, wait_for_workers=False)
    _stores.append(store)
    return store.port


def _be_a_rank(train: Train, rank: int, size: int, port: int) -> Any:
    store = _stores.pop() if rank == 0 else dist.TCPStore(LOOPBACK, port, size, is_master=False)
    limit = timedelta(seconds=60)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
    found = train(rank, size)
    dist.barrier()
    return found  # the group ends with the worker, because gloo aborts now and then in its own end


def run_by_dask(train: Train, size: int = 2, time_limit_s: float = 120) -> list[Any]:
    """Start one rank in each of ``size`` workers of a Dask cluster on this machine.

    On real machines it is the same with the address of a scheduler in ``Client(…)``, and with the
    name of the first machine in place of the loopback.

    Returns:
        What ``train(rank, size)`` has returned, rank by rank.

    Raises:
        CourseError: Dask is not installed, a rank failed or died, or the time is over.
    """
    if not has_dask():
        raise CourseError(MISSING)
    import dask
    from distributed import Client, KilledWorker, LocalCluster, as_completed

    settings = {"distributed.scheduler.allowed-failures": 0, "distributed.admin.log-length": 0}
    with tempfile.TemporaryDirectory() as folder, dask.config.set(settings):
        options = {"threads_per_worker": 1, "host": LOOPBACK, "dashboard_address": None}
        quiet = {"silence_logs": logging.CRITICAL, "local_directory": folder}
        with LocalCluster(n_workers=size, **options, **quiet) as cluster, Client(cluster) as client:
            client.wait_for_workers(size, timeout=time_limit_s)
            workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
            port = client.submit(_open_store, size, workers=workers[:1], pure=False).result()
            futures = [
                client.submit(_be_a_rank, train, rank, size, port, workers=[worker], pure=False)
                for rank, worker in enumerate(workers)
            ]
            try:
                for future in as_completed(futures, timeout=time_limit_s):
                    future.result()  # raises at once what a rank has raised
                return client.gather(futures)
            except KilledWorker:
                text = "a worker of Dask died (out of memory?), and its rank with it"
                raise CourseError(text) from None
            except TimeoutError:
                raise CourseError(f"the ranks did not end within {time_limit_s:g} s") from None
            except Exception as error:
                raise CourseError(f"a rank failed: {type(error).__name__}: {error}") from None
