"""What lesson 23 reads: one training by many loops, whether the weights agree, and µs per batch.

*Gaps*: convnet_small on photographs, by each loop, with full groups of micro-batches and with an
incomplete last one. They are the same in every run on one machine. *µs per batch*: see
`overhead.py`. Which loops there are, and the tolerance, was declared before anything was measured.

fastai, skorch and Ignite take part where they are installed (`extras.py`). About two minutes:

    .venv/bin/python -m lesson_code.loops_and_engines.study --rounds 20 --save
"""

import time
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from course_tools.study.keep import keep
from lesson_code.loops_and_engines.extras import EXTRAS, count_extra_lines, find_versions
from lesson_code.loops_and_engines.job import Job, Loop, find_gap, make_photograph_jobs
from lesson_code.loops_and_engines.loops import LOOPS, count_lines
from lesson_code.loops_and_engines.overhead import TOLERANCE, measure_overhead
from lesson_code.loops_and_engines.plain import train_plain

BATCHES = 300
REAL_REPEATS = 5


def find_loops() -> dict[str, Loop]:
    """The course's loops, and the extras that are installed."""
    return LOOPS | {name: EXTRAS[name] for name in find_versions()}


def name_version(name: str) -> str:
    """Of the library that a loop uses."""
    packages = {"Fabric": "lightning", "Accelerate": "accelerate", "transformers": "transformers"}
    packages |= {"Lightning": "lightning", "Lightning, manual": "lightning"}
    return find_versions().get(name) or version(packages.get(name, "torch"))


def time_real_batch(job: Job) -> float:
    """Milliseconds of a batch of the real network in the plain loop: the median of some runs."""
    found = []
    for _ in range(REAL_REPEATS):
        start = time.process_time()
        train_plain(job)
        found.append(1000 * (time.process_time() - start) / (job.epochs * job.count_batches()))
    return sorted(found)[REAL_REPEATS // 2]


def measure(rounds: int, batches: int) -> dict[str, Any]:
    """Everything that the file holds."""
    found, jobs = find_loops(), make_photograph_jobs()
    plain = {kind: train_plain(job) for kind, job in jobs.items()}
    gaps = {
        name: {kind: find_gap(loop(job), plain[kind]) for kind, job in jobs.items()}
        for name, loop in found.items()
    }
    times = measure_overhead(found, rounds, batches)
    rows = [
        {
            "loop": name,
            "version": name_version(name),
            "lines": count_lines(name) if name in LOOPS else count_extra_lines(name),
            "gaps": gaps[name],
            "batch_us": times[name],
        }
        for name in found
    ]
    real_batch_ms = round(time_real_batch(jobs["full groups"]), 2)
    return {"rounds": rounds, "batches": batches, "real_batch_ms": real_batch_ms, "rows": rows}


def main(
    rounds: Annotated[int, typer.Option(min=2, help="each of them has all loops")] = 20,
    batches: Annotated[int, typer.Option(min=30, help="of a loop in a round")] = BATCHES,
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Measure; print, and keep, what was found."""
    torch.set_num_threads(1)
    found = measure(rounds, batches)
    if save:
        command = f"python -m lesson_code.loops_and_engines.study --rounds {rounds} --save"
        keep(Path(__file__).with_suffix(".json"), command, threads=1, tolerance=TOLERANCE, **found)
    for row in found["rows"]:
        print({name: value for name, value in row.items() if name != "batch_us"})
        print(f"   {sorted(row['batch_us'])[len(row['batch_us']) // 2]:.0f} µs")


if __name__ == "__main__":
    typer.run(main)
