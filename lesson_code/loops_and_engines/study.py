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
from course_utils.results import read_file
from lesson_code.loops_and_engines.extras import EXTRAS, count_extra_lines, find_versions
from lesson_code.loops_and_engines.job import FULL, Job, Loop, find_gap, make_photograph_jobs
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


def measure_gaps() -> dict[str, dict[str, float]]:
    """For each loop the largest difference of a weight from the plain loop, in both jobs."""
    jobs = make_photograph_jobs()
    plain = {kind: train_plain(job) for kind, job in jobs.items()}
    return {
        name: {kind: find_gap(loop(job), plain[kind]) for kind, job in jobs.items()}
        for name, loop in find_loops().items()
    }


def measure_times(rounds: int, batches: int) -> dict[str, Any]:
    """Microseconds of a batch of each loop, and milliseconds of a real one."""
    return {
        "rounds": rounds,
        "batches": batches,
        "real_batch_ms": round(time_real_batch(make_photograph_jobs()[FULL]), 2),
        "batch_us": measure_overhead(find_loops(), rounds, batches),
    }


def main(
    rounds: Annotated[int, typer.Option(min=2, help="each of them has all loops")] = 20,
    batches: Annotated[int, typer.Option(min=30, help="of a loop in a round")] = BATCHES,
    gaps_only: Annotated[bool, typer.Option(help="leave the stored times as they are")] = False,
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Measure; print, and keep, what was found."""
    torch.set_num_threads(1)
    path, gaps = Path(__file__).with_suffix(".json"), measure_gaps()
    if gaps_only:
        stored = read_file(path)
        times = {name: stored[name] for name in ("rounds", "batches", "real_batch_ms")}
        times["batch_us"] = {row["loop"]: row["batch_us"] for row in stored["rows"]}
    else:
        times = measure_times(rounds, batches)
    rows = [
        {
            "loop": name,
            "version": name_version(name),
            "lines": count_lines(name) if name in LOOPS else count_extra_lines(name),
            "gaps": gaps[name],
            "batch_us": times["batch_us"][name],
        }
        for name in gaps
    ]
    del times["batch_us"]
    if save:
        command = f"python -m lesson_code.loops_and_engines.study --rounds {rounds} --save"
        keep(path, command, threads=1, tolerance=TOLERANCE, **times, rows=rows)
    for row in rows:
        median = sorted(row.pop("batch_us"))[times["rounds"] // 2]
        print(row, f"{median:.0f} µs")


if __name__ == "__main__":
    typer.run(main)
