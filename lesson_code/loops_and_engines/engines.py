"""Many trainings on an engine: processes, Dask, Ray or SLURM, all as an ``executor=``."""

import contextlib
import logging
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
)
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW

from course_utils.config import Config, load_config
from course_utils.data.load import Data, load_data
from course_utils.errors import CourseError
from lesson_code.loops_and_engines.job import make_images, make_network

__all__ = [
    "ENGINES",
    "DieOnce",
    "JobExecutor",
    "describe_missing_engine",
    "list_variants",
    "load_small",
    "open_engine",
    "train_all",
    "train_seed",
]

LOOPBACK = "127.0.0.1"
STEPS = 10  # of `train_seed`


def load_small() -> tuple[Config, Data]:
    """Config and data of trainings that take less than a second each."""
    config = load_config("quick", dataset="shapes", first_seed=0).replace(
        num_train=64, num_val=64, epochs=1, batch_size=32, progress=False
    )
    return config, load_data(config)


def list_variants() -> dict[str, dict[str, Any]]:
    """Two optimizers as variants of `compare`; all of it can be pickled."""
    return {
        "SGD": {"make_optimizer": partial(SGD, lr=0.05, momentum=0.9)},
        "AdamW": {"make_optimizer": partial(AdamW, lr=1e-3)},
    }


def use_one_thread() -> None:
    """Let a worker train with one thread, since its numbers must not depend on its neighbours."""
    torch.set_num_threads(1)


@dataclass(frozen=True)
class DieOnce:
    """A model transform that kills its process, at the first call of all processes together.

    Args:
        marker: a file that does not exist yet; it tells later calls that one has died.
    """

    marker: Path

    def __call__(self, model: nn.Module) -> nn.Module:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
            psutil.Process().kill()  # SIGKILL: nothing is written, and nobody is told
        return model


def train_seed(seed: int, log: Path, dies: DieOnce | None = None) -> float:
    """A training that takes a moment, with initial weights of its own; its last loss.

    Args:
        seed: of the initial weights.
        log: gets a line with the seed when the training begins.
        dies: may kill the process.
    """
    use_one_thread()
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{seed}\n")
    model, (images, targets) = make_network(seed), make_images(64)
    if dies:
        dies(model)
    optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = cross_entropy(model(images), targets)
        loss.backward()
        optimizer.step()
    return loss.item()


def train_all(
    seeds: Iterable[int],
    train: Callable[[int], float],
    open_pool: Callable[[], contextlib.AbstractContextManager[Executor]],
    attempts: int = 3,
) -> tuple[dict[int, float], int]:
    """Results by seed, and how often an engine was opened.

    If an engine breaks, what has ended is kept, and the rest runs on a new one.

    Raises:
        RuntimeError: it has broken as often as there are ``attempts``.
    """
    seeds, kept, opened = list(seeds), {}, 0
    while missing := [seed for seed in seeds if seed not in kept]:
        if opened == attempts:
            raise RuntimeError(f"{attempts} engines broke, and seeds {missing} have no result")
        opened += 1
        with contextlib.suppress(BrokenExecutor), open_pool() as pool:
            futures = {pool.submit(train, seed): seed for seed in missing}
            for future in as_completed(futures):
                with contextlib.suppress(BrokenExecutor):  # others of this pool may have ended
                    kept[futures[future]] = future.result()  # a study also writes it to a file
    return kept, opened


class JobExecutor(Executor):
    """Makes an executor of an engine whose jobs only have ``result()``, as submitit's have.

    Args:
        start: starts a call, and returns its job.
        jobs: that run at the same time.
        lost: what ``result()`` raises if the job's process has died; the call is started again.
    """

    def __init__(self, start: Callable[[Callable[[], Any]], Any], jobs: int, lost: type[Exception]):
        self._start, self._lost, self._pool = start, lost, ThreadPoolExecutor(jobs)

    def submit(self, function: Callable, /, *arguments: Any, **options: Any) -> Future:
        return self._pool.submit(self._run, partial(function, *arguments, **options))

    def _run(self, call: Callable[[], Any]) -> Any:
        try:
            return self._start(call).result()
        except self._lost:
            return self._start(call).result()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


def _call(call: Callable[[], Any]) -> Any:
    return call()


class RayExecutor(Executor):
    """Ray's tasks as futures; Ray starts a task again if its worker dies."""

    def submit(self, function: Callable, /, *arguments: Any, **options: Any) -> Future:
        import ray

        call = partial(function, *arguments, **options)
        return ray.remote(num_cpus=1)(_call).remote(call).future()


@contextlib.contextmanager
def _open_processes(workers: int) -> Iterator[Executor]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=use_one_thread) as pool:
        yield pool


@contextlib.contextmanager
def _open_dask(workers: int) -> Iterator[Executor]:
    import dask
    from distributed import Client, LocalCluster

    options: dict[str, Any] = {"threads_per_worker": 1, "host": LOOPBACK, "dashboard_address": ":0"}
    with (
        tempfile.TemporaryDirectory() as folder,
        dask.config.set({"distributed.admin.log-length": 0}),
    ):
        options |= {"silence_logs": logging.CRITICAL, "local_directory": folder}
        with LocalCluster(n_workers=workers, **options) as cluster, Client(cluster) as client:
            client.run(use_one_thread)
            yield client.get_executor()


@contextlib.contextmanager
def _open_submitit(workers: int) -> Iterator[Executor]:
    import submitit

    with tempfile.TemporaryDirectory() as folder:
        cluster = submitit.AutoExecutor(folder, cluster="local")  # "slurm" on a cluster
        cluster.update_parameters(timeout_min=10)
        lost = submitit.core.utils.UncompletedJobError
        with JobExecutor(cluster.submit, workers, lost) as executor:
            yield executor


@contextlib.contextmanager
def _open_ray(workers: int) -> Iterator[Executor]:
    import ray

    environment = {"env_vars": {"OMP_NUM_THREADS": "1"}}
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 lets all other programs go first
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False,
             logging_level=logging.ERROR, runtime_env=environment)  # fmt: skip
    try:
        yield RayExecutor()
    finally:
        ray.shutdown()


# By name: how it is opened, and the module that it needs.
ENGINES: dict[str, tuple[Callable[[int], contextlib.AbstractContextManager[Executor]], str]] = {
    "threads": (ThreadPoolExecutor, ""),
    "processes": (_open_processes, ""),
    "Dask": (_open_dask, "distributed"),
    "submitit": (_open_submitit, "submitit"),
    "Ray": (_open_ray, "ray"),
}


def describe_missing_engine(name: str) -> str:
    """One sentence if the module of an engine is not installed; else empty."""
    module = ENGINES[name][1]
    if not module or find_spec(module):
        return ""
    return f"{name} is not installed, so its part is left out: pip install {module}"


def open_engine(name: str, workers: int = 2) -> contextlib.AbstractContextManager[Executor]:
    """A context with the executor of one of `ENGINES`.

    Raises:
        CourseError: its module is not installed.
    """
    if missing := describe_missing_engine(name):
        raise CourseError(missing)
    return ENGINES[name][0](workers)
