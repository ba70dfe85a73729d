"""What lesson 09 reads: which way to use two cores finishes the most trainings per minute.

Each round runs two trainings in three ways: DDP for each training, one after the other; one
training per process, side by side; one process with two threads, one after the other. The rounds
take the six orders of the ways in turn, and each round has two seeds of its own. All processes
start before the first round and run every way once, untimed.

About 10 s a round on two cores, on which nothing else may run. The file is written at the end, so
an interrupted measurement leaves the old one:

    .venv/bin/python lesson_code/ddp/study_speed.py --rounds 24 --save
"""

import itertools
import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Annotated

import numpy as np
import torch
import torch.distributed as dist
import typer
from torch.utils.data import DataLoader

from course_tools.study.keep import keep, name_data
from course_utils.config import Config, load_config
from course_utils.data.image_data import ImageData
from course_utils.data.load import load_data
from course_utils.models.create import create_model
from course_utils.training.fit import fit
from course_utils.training.run import Run

IMAGES, NUM_VAL, EPOCHS = 512, 500, 3
PROCESSES = 2  # each with one thread; the one process of the third way has as many threads
TRAININGS = 2  # in each round, and in each way
LINK_MB, LINK_ROUNDS = 20, 10
LIMIT_S = 600  # a guard against a hang, not a measurement
WAYS = ("DDP", "one per device", "one after the other")
Train = Callable[[list[int]], list[dict]]  # seeds to what was measured of each training


@cache
def load_plan() -> tuple[Config, ImageData]:
    """The settings, and the first photographs."""
    config = load_config("quick", dataset="photos").replace(
        model="convnet_small", epochs=EPOCHS, num_val=NUM_VAL, progress=False
    )
    return config, load_data(config).take_train(IMAGES)


def describe_run(run: Run) -> dict[str, float | None]:
    speed = run.examples_per_s
    return {
        "accuracy": round(run.metrics["val_accuracy"], 4),
        "examples_per_s": None if speed is None else round(speed, 1),
    }


def train_once(seed: int, **options: object) -> dict[str, float | None]:
    """Fine-tune the pretrained network once, on the CPU; validation at the end alone."""
    config, data = load_plan()
    trainer = {"accelerator": "cpu", "check_val_every_n_epoch": EPOCHS}
    trainer |= options.pop("trainer", {})  # type: ignore[call-overload]
    fixed = {"pretrained": True, "save": False, "trainer": trainer}
    return describe_run(fit(config, data, seed=seed, **fixed, **options))


def train_alone(seed: int) -> dict[str, float | None]:
    """In a process of the pool, with one thread."""
    torch.set_num_threads(1)
    return train_once(seed)


# ---- DDP: two processes that wait for seeds, and train each of them together.


def load_shard(data: ImageData, seed: int, rank: int) -> DataLoader:
    """A loader with the rank's own augmentations; Lightning's sampler deals the images out."""
    own = int(np.random.SeedSequence([seed, rank]).generate_state(1)[0])
    return data.train_loader(own, batch_size=data.batch_size // PROCESSES)


def measure_link() -> float:
    """Bytes per second that each process sends, when a large tensor is reduced."""
    tensor = torch.ones(LINK_MB * 250_000)
    dist.all_reduce(tensor)  # warm-up
    start = perf_counter()
    for _ in range(LINK_ROUNDS):
        dist.all_reduce(tensor)
    sent = 2 * (PROCESSES - 1) / PROCESSES * 4 * tensor.numel() * LINK_ROUNDS
    return sent / (perf_counter() - start)


def work_together(rank: int, port: int, link: Connection) -> None:
    """One rank: train by DDP what comes through the link, until None comes."""
    names = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": PROCESSES}
    names |= {"LOCAL_WORLD_SIZE": PROCESSES, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    names["TORCHELASTIC_RUN_ID"] = "study"  # so that Lightning starts no processes of its own
    os.environ.update({name: str(value) for name, value in names.items()})
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    link.send(measure_link())
    trainer = {"devices": PROCESSES, "strategy": "ddp"}
    load = partial(load_shard, rank=rank)
    while (seeds := link.recv()) is not None:
        link.send([train_once(seed, trainer=trainer, make_loader=load) for seed in seeds])
    os._exit(0)  # gloo aborts now and then in its own end


def receive(links: list[Connection]) -> list:
    """What each rank sends."""
    for link in links:
        if not link.poll(LIMIT_S):
            raise TimeoutError(f"a rank sent nothing for {LIMIT_S} s")
    return [link.recv() for link in links]


@contextmanager
def start_ranks() -> Iterator[tuple[Train, float]]:
    """Both ranks: a function that trains by DDP, and the bytes per second of their link."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    links, ranks = [], []
    for rank in range(PROCESSES):
        own, other = context.Pipe()
        links.append(own)
        ranks.append(context.Process(target=work_together, args=(rank, port, other), daemon=True))
        ranks[-1].start()

    def train(seeds: list[int]) -> list[dict]:
        for link in links:
            link.send(seeds)
        return receive(links)[0]

    try:
        yield train, min(receive(links))
        for link in links:
            link.send(None)
    finally:
        for process in ranks:
            process.join(5)
            process.kill()


# ---- The three ways, round by round.


def measure_round(number: int, ways: dict[str, Train]) -> Iterator[dict]:
    """A row for each way: its seconds, and its trainings."""
    orders = list(itertools.permutations(ways))
    seeds = [TRAININGS * number + place for place in range(TRAININGS)]
    for way in orders[number % len(orders)]:
        start = perf_counter()
        found = ways[way](seeds)
        seconds = perf_counter() - start
        print(f"round {number}, {way}: {seconds:.2f} s", flush=True)
        row = {"round": number, "way": way, "seconds": round(seconds, 3), "seeds": seeds}
        yield row | {name: [run[name] for run in found] for name in found[0]}


def measure(rounds: int) -> dict:
    """The rows of all rounds, and the speed of the link between two processes."""
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that start now
    torch.set_num_threads(PROCESSES)  # of this one
    spawn = multiprocessing.get_context("spawn")
    with start_ranks() as (train, bytes_per_s), ProcessPoolExecutor(PROCESSES, spawn) as pool:
        ways: dict[str, Train] = {
            "DDP": train,
            "one per device": lambda seeds: list(pool.map(train_alone, seeds)),
            "one after the other": lambda seeds: list(map(train_once, seeds)),
        }
        for way in ways.values():  # warm-up
            way([TRAININGS * rounds + place for place in range(TRAININGS)])
        rows = [row for number in range(rounds) for row in measure_round(number, ways)]
    return {"gloo_bytes_per_s": round(bytes_per_s), "rows": rows}


def main(
    rounds: Annotated[int, typer.Option(min=2, help="each of them runs all three ways")] = 24,
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Time the three ways; print, and keep, the seconds."""
    found = measure(rounds)
    if save:
        config, data = load_plan()
        model = create_model(config.model, data.num_classes)
        keep(
            Path(__file__).with_suffix(".json"),
            f"lesson_code/ddp/study_speed.py --rounds {rounds} --save",
            dataset=name_data("photos"),
            num_train=len(data.train),
            num_val=len(data.val),
            epochs=EPOCHS,
            batch_size=config.batch_size,
            processes=PROCESSES,
            trainings=TRAININGS,
            parameters=sum(p.numel() for p in model.parameters()),
            **found,
        )


if __name__ == "__main__":
    typer.run(main)
