"""Facts of lesson 23 that need packages which are no part of the course's environment.

*Engines*: `compare` on every engine that is installed, against one process; then trainings of
which one kills its worker. *fastai*: its loss and its schedule in a plain loop. *W&B*: the logger
without a network. Everything but seconds is the same in each run. About four minutes, and a part
alone (``--part Ray``) leaves the others as they are:

    pip install fastai submitit ray wandb
    .venv/bin/python -m lesson_code.loops_and_engines.study_extras --save
"""

import os
import tempfile
import time
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from course_tools.study.keep import keep
from course_utils.results import read_file
from course_utils.training import compare
from lesson_code.loops_and_engines.engines import (
    ENGINES,
    DieOnce,
    describe_missing_engine,
    list_variants,
    load_small,
    open_engine,
    train_all,
    train_seed,
)
from lesson_code.loops_and_engines.fastai_parts import compare_fastai
from lesson_code.loops_and_engines.offline_loggers import log_with_wandb

SEEDS = range(2)
KILLED_SEEDS = range(4)
METRIC = "val_loss"
PARTS = (*ENGINES, "fastai", "wandb")
EXTRA = ("distributed", "submitit", "ray", "fastai", "wandb")


def measure_engine(name: str, expected: list[float]) -> dict[str, Any]:
    """Whether `compare` gives the same on an engine, and what a killed worker costs."""
    config, data = load_small()
    start = time.perf_counter()
    with open_engine(name) as executor:
        found = compare(config, data, list_variants(), seeds=SEEDS, executor=executor)
    seconds = time.perf_counter() - start
    row = {"seconds": round(seconds, 1), "equal": read_values(found) == expected}
    if name == "threads":  # a thread cannot be killed alone
        return row
    with tempfile.TemporaryDirectory() as folder:
        log, dies = Path(folder, "log"), DieOnce(Path(folder, "died"))
        train = partial(train_seed, log=log, dies=dies)
        kept, opened = train_all(KILLED_SEEDS, train, partial(open_engine, name))
        begun = len(log.read_text(encoding="utf-8").split())
        alone = {seed: train_seed(seed, log) for seed in KILLED_SEEDS}
    killed = {"opened": opened, "begun": begun, "equal": kept == alone}
    return row | {"killed": killed | {"died": not dies.marker.exists() or begun > len(alone)}}


def read_values(comparison: Any) -> list[float]:
    return [x for arm in comparison.arms for x in comparison.values(arm, METRIC).tolist()]


def find_versions() -> dict[str, str]:
    found = {}
    for package in EXTRA:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    return found


def measure_part(name: str, expected: list[float]) -> Any:
    """One of `PARTS`; empty if its package is not installed."""
    if name == "fastai":
        return compare_fastai()
    if name == "wandb":
        return log_with_wandb()
    missing = describe_missing_engine(name)
    return {} if missing else measure_engine(name, expected)


def main(
    part: Annotated[list[str] | None, typer.Option(help="only these; stored others stay")] = None,
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Measure; print, and keep, what was found."""
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # of the workers, too
    path = Path(__file__).with_suffix(".json")
    found = read_file(path) if part and path.is_file() else {"engines": {}}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["COURSE_RUNS_DIR"] = folder
        config, data = load_small()
        start = time.perf_counter()
        expected = read_values(compare(config, data, list_variants(), seeds=SEEDS))
        alone = {"this process": {"seconds": round(time.perf_counter() - start, 1)}}
        engines = alone | {x: y for x, y in found["engines"].items() if x not in alone}
        facts = {name: found.get(name, {}) for name in ("fastai", "wandb")}
        for name in part or PARTS:
            (engines if name in ENGINES else facts)[name] = measure_part(name, expected)
            print(name, engines.get(name, facts.get(name)), flush=True)
            about = {"extras": find_versions(), "trainings": len(expected), "engines": engines}
            if save:  # so that an interrupted measurement leaves the parts that it has
                command = "python -m lesson_code.loops_and_engines.study_extras --save"
                keep(path, command, threads=1, **about, **facts)


if __name__ == "__main__":
    typer.run(main)
