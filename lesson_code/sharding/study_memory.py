"""What lesson 20 reads: bytes on each rank of DDP and ZeRO 1, 2, 3, and the times of their steps.

A transformer of eight blocks takes three steps of AdamW on 1, 2 and 4 ranks, with the classes that
the notebook writes. Every rank reports the bytes that it holds and sends. They are counted, so
that they are the same in every run and on every machine.

The times were declared before any was measured: on two ranks, in each round every way takes three
steps, in an order that changes from round to round; the slowest rank's time counts. The lesson
reads the ratio of each way's time to DDP's in the same round, and calls it decided if the 95 %
interval of the geometric mean over the rounds excludes 1. All ways stand in each round, so that
what else runs on the machine meets all of them; it makes the interval wider.

About three minutes. The file is written at the end, so an interrupted measurement leaves the old
one:

    .venv/bin/python lesson_code/sharding/study_memory.py --rounds 40 --save
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import nbformat
import torch
import torch.distributed as dist
import typer

from course_tools.study.keep import keep
from course_utils.files import ROOT
from course_utils.ranks import ON_CPU, run_ranks
from lesson_code.sharding import zero

DEPTH, TEXTS = 8, 8
RANKS = (1, 2, 4)
TIMED_RANKS = 2
STEPS = 3  # of each way, in each round


def write_scripts(folder: Path) -> None:
    """The files that the notebook writes for its ranks, in this folder."""
    notebook = nbformat.read(ROOT / "notebooks" / "20_sharding.ipynb", as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source.startswith("%%writefile "):
            first, _, source = cell.source.partition("\n")
            (folder / first.split()[1]).write_text(source, encoding="utf-8")


@contextlib.contextmanager
def with_scripts() -> Iterator[Path]:
    """A temporary folder with the notebook's files, which is the current one meanwhile."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_scripts(Path(folder))
        yield Path(folder)


def time_ways(batch: zero.Batch, rounds: int) -> dict[str, list[float]]:
    """Seconds of a step of each way on this rank, by round; one untimed round comes first."""
    ways = {name: zero.make_way(name, DEPTH) for name in zero.NAMES}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(-1, rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            dist.barrier()
            start = perf_counter()
            for _ in range(STEPS):
                zero.compute_loss(ways[name].model, batch).backward()
                ways[name].step()
            dist.barrier()
            if number >= 0:
                seconds[name].append((perf_counter() - start) / STEPS)
    return seconds


def measure(rank: int, size: int, rounds: int) -> dict[str, Any]:
    """The slowest rank's seconds of a step, by way and round."""
    seconds = time_ways(zero.take_shard(zero.make_batch(TEXTS), rank, size), rounds)
    table = torch.tensor(list(seconds.values()), dtype=torch.float64)  # (ways, rounds)
    dist.all_reduce(table, op=dist.ReduceOp.MAX)
    rows = [[round(value, 5) for value in row] for row in table.tolist()]
    return {"seconds": dict(zip(seconds, rows, strict=True))}


def measure_bytes(ranks: int) -> list[dict[str, Any]]:
    """A row for each way and rank."""
    arguments = {"texts": TEXTS, "depth": DEPTH, "names": zero.NAMES if ranks > 1 else ("DDP",)}
    found = run_ranks(zero, arguments=arguments, processes=ranks, environment=ON_CPU)
    return [
        {
            "ranks": ranks,
            "way": way,
            "rank": rank,
            **row["held"],
            "whole units, for a moment": row["for a moment"],
            "activations": row["activations"],
            "sent": row["sent"] if ranks > 1 else 0,
        }
        for way, rows in found["ways"].items()
        for rank, row in enumerate(rows)
    ]


def main(
    rounds: Annotated[int, typer.Option(min=2, help="each of them times all ways")] = 40,
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Count the bytes of all ways and time their steps; print, and keep, what was found."""
    model = zero.make_model(DEPTH)
    with with_scripts():
        rows = [row for ranks in RANKS for row in measure_bytes(ranks)]
        timed = run_ranks(
            "lesson_code.sharding.study_memory",
            arguments={"rounds": rounds},
            processes=TIMED_RANKS,
            environment=ON_CPU,
            time_limit_s=1200,
        )
    for row in rows:
        print(row)
    for way, values in timed["seconds"].items():
        print(f"{way}: {1000 * sorted(values)[len(values) // 2]:.1f} ms")
    if save:
        keep(
            Path(__file__).with_suffix(".json"),
            f"lesson_code/sharding/study_memory.py --rounds {rounds} --save",
            rounds=rounds,
            timed_ranks=TIMED_RANKS,
            texts=TEXTS,
            units=zero.list_unit_sizes(model),
            activations_of_texts=[
                zero.count_activations(zero.make_batch(texts), DEPTH) for texts in (1, 2)
            ],
            rows=rows,
            **timed,
        )


if __name__ == "__main__":
    typer.run(main)
