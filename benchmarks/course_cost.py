"""What the course costs: time and memory of every lesson, and how a training's time grows.

Lessons are read from the results in ``data/results`` and from the last ``course run``; trainings
of several sizes take turns (forth and back), and their times are fitted by the line
``seconds = a + b · images · epochs``. Run it on an otherwise idle machine: ``make bench``.
Lessons and trainings may have been measured on different machines, so each block names its own.
"""

import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import typer

from course_utils.config import load_config
from course_utils.data.image_data import load_data
from course_utils.errors import CourseError
from course_utils.files import ROOT
from course_utils.measure.provenance import describe_hardware, read_versions
from course_utils.results import LessonResult, list_results, read_results
from course_utils.tools.report.keep import keep
from course_utils.tools.run.peak_memory import PeakMemory
from course_utils.tools.run.record import read_course
from course_utils.training.fit import fit

LAST_RUN = "build/quick/course.json"
IMAGES = (250, 500, 1000, 2000)
EPOCHS = (2, 4, 8)


def make_block(hardware: dict, results: Sequence[LessonResult]) -> dict:
    """What lessons cost, with the machine on which that was measured."""
    lessons = [
        {"name": x.name, "time_s": x.time_s, "peak_memory_bytes": x.peak_memory_bytes}
        for x in results
    ]
    return {"hardware": hardware, "lessons": lessons}


def read_costs() -> dict[str, dict]:
    """Machine, and for each lesson name, seconds and peak bytes, by where it was measured.

    Raises:
        CourseError: results, or the last run, are damaged or of an older version of the course.
    """
    blocks = {}
    for name in list_results():
        kept = read_results(name)
        results = [LessonResult.from_json(entry) for entry in kept["lessons"]]
        blocks[name] = make_block(kept["hardware"], results)
    if (ROOT / LAST_RUN).exists():
        course = read_course(ROOT / LAST_RUN)
        blocks[LAST_RUN] = make_block(course.hardware, course.lessons)
    return blocks


def name_machine(hardware: dict) -> str:
    return f"{hardware['gpu'] or hardware['cpu']}, {hardware['cores']} cores"


def format_costs(name: str, block: dict) -> str:
    """A table of what each lesson cost, with the sum of the times and the highest peak."""
    lessons = block["lessons"]
    total = {
        "name": "all",
        "time_s": sum(lesson["time_s"] for lesson in lessons),
        "peak_memory_bytes": max((x["peak_memory_bytes"] for x in lessons), default=0),
    }
    rows = [
        f"{x['name']:28} {x['time_s'] / 60:8.2f} {x['peak_memory_bytes'] / 1e6:10,.0f}"
        for x in [*lessons, total]
    ]
    measured_on = f"measured on {name_machine(block['hardware'])}"
    return "\n".join([measured_on, f"{name:28} {'minutes':>8} {'peak (MB)':>10}", *rows])


def time_trainings(seeds: int) -> list[dict]:
    """Seconds of a training, validation on as many images included, for every size and seed."""
    config = load_config("quick", dataset="photos", first_seed=0)
    sizes = list(itertools.product(IMAGES, EPOCHS))
    trainings = []
    with tempfile.TemporaryDirectory() as runs:
        os.environ["COURSE_RUNS_DIR"] = runs
        smallest = config.replace(num_train=IMAGES[0], num_val=IMAGES[0], epochs=1)
        fit(smallest, load_data(smallest))  # what only the first training of a process takes
        for seed in range(seeds):
            for images, epochs in sizes[:: 1 if seed % 2 == 0 else -1]:
                asked = config.replace(num_train=images, num_val=images, epochs=epochs)
                run = fit(asked, load_data(asked), seed=seed)
                about = {"images": images, "epochs": epochs, "seed": seed}
                trainings.append(about | {"time_s": round(run.time_s, 3)})
    return trainings


def fit_line(trainings: list[dict]) -> dict[str, float]:
    """Least squares for ``time_s = a + b · images · epochs``, and how far off the line they are."""
    work = np.array([t["images"] * t["epochs"] for t in trainings], dtype=float)
    time_s = np.array([t["time_s"] for t in trainings])
    b, a = np.polyfit(work, time_s, 1)
    residuals = time_s - (a + b * work)
    # two degrees of freedom went into the line
    spread_s = float(np.sqrt((residuals**2).sum() / (len(residuals) - 2)))
    return {
        "a_s": float(a),
        "b_s": float(b),
        "residual_std_s": spread_s,
        "residual_max_s": float(abs(residuals).max()),
    }


def time_tests() -> dict[str, float]:
    """Seconds and peak bytes of ``make test``, run once."""
    start = time.perf_counter()
    with PeakMemory() as memory:
        subprocess.run(["make", "test"], cwd=ROOT)
    return {"time_s": time.perf_counter() - start, "peak_memory_bytes": memory.peak_bytes}


def main(
    seeds: Annotated[int, typer.Option(help="trainings of every size", min=1)] = 3,
    tests: Annotated[bool, typer.Option(help="run all tests too: minutes")] = False,
    save: Annotated[str, typer.Option(help="name of a file in data/results")] = "",
) -> None:
    """Print what lessons, trainings and, if asked for, the tests cost."""
    try:
        costs = read_costs()
    except CourseError as error:
        sys.exit(str(error))
    trainings = time_trainings(seeds)
    for name, block in costs.items():
        print(format_costs(name, block), end="\n\n")
    hardware = describe_hardware()
    line = fit_line(trainings)
    print(f"measured on {name_machine(hardware)}, {read_versions()}")
    print(
        f"seconds = {line['a_s']:.2f} + {line['b_s']:.6f} · images · epochs, for each of "
        f"{len(trainings)} trainings of {min(IMAGES)} to {max(IMAGES)} images, {min(EPOCHS)} to "
        f"{max(EPOCHS)} epochs, {seeds} seeds; off that line: {line['residual_std_s']:.2f} s "
        f"(standard deviation), {line['residual_max_s']:.2f} s at most"
    )
    for seed in range(seeds):
        total_s = sum(t["time_s"] for t in trainings if t["seed"] == seed)
        print(f"seed {seed}: {total_s:.1f} s for all sizes")
    suite = None
    if tests:
        suite = {"hardware": hardware, "lessons": [{"name": "make test"} | time_tests()]}
        print(format_costs("tests", suite))
    if save:
        command = f"benchmarks/course_cost.py --seeds {seeds}{' --tests' * tests}"
        growth = {"hardware": hardware, "line": line, "trainings": trainings}
        keep(save, command, costs=costs, growth=growth, tests=suite)


if __name__ == "__main__":
    typer.run(main)
