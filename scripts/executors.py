"""What do two processes with one thread each gain on two cores? `compare` with and without a pool.

The same comparison runs one after the other with two threads, and in a pool of two processes with
one thread each. Both take turns. The start of the pool counts. On an otherwise idle machine:

    .venv/bin/python scripts/executors.py --save data/results/executors_2cores.json
"""

import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
import typer

from course_tools.study.keep import keep
from course_utils.config import load_config
from course_utils.data.load import load_data
from course_utils.training.compare import compare

VARIANTS = {
    "baseline": {},
    "smoothing": {"loss": partial(F.cross_entropy, label_smoothing=0.1)},
}


def main(
    rounds: Annotated[int, typer.Option(help="of both ways; at least 3")] = 3,
    save: Annotated[Path | None, typer.Option(help="JSON file to write")] = None,
) -> None:
    """Print the seconds of six trainings of 1,000 photographs for 8 epochs, both ways."""
    config = load_config("quick", dataset="photos").replace(progress=False)
    data = load_data(config)
    threads = torch.get_num_threads()
    one_by_one, pooled = [], []
    with tempfile.TemporaryDirectory() as runs:
        os.environ["COURSE_RUNS_DIR"] = runs
        compare(config.replace(epochs=1), data, {"imports": {}}, seeds=[0])
        for number in range(rounds):
            start = time.perf_counter()
            compare(config, data, VARIANTS)
            one_by_one.append(time.perf_counter() - start)
            os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that are started now
            start = time.perf_counter()
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(2, mp_context=context) as pool:
                compare(config, data, VARIANTS, executor=pool)
            pooled.append(time.perf_counter() - start)
            print(f"round {number + 1}: {one_by_one[-1]:.1f} s and {pooled[-1]:.1f} s", flush=True)
    ratios = np.array(one_by_one) / np.array(pooled)
    print(
        f"one after the other, {threads} threads: {np.median(one_by_one):.1f} s; two processes, "
        f"one thread each: {np.median(pooled):.1f} s; × {np.median(ratios):.2f} "
        f"({ratios.min():.2f} to {ratios.max():.2f})"
    )
    if save:
        keep(save, f"scripts/executors.py --save {save}", one_by_one_s=one_by_one, pooled_s=pooled)


if __name__ == "__main__":
    typer.run(main)
