"""What torch.compile costs once and saves in each training step; it needs a C++ compiler.

Forward and backward in bf16, without the optimizer's step. Eager and compiled steps take turns.
.venv/bin/python scripts/compiling.py --save FILE
"""

import copy
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
import typer

from course_tools.study.keep import keep
from course_utils.measure.timing import time_calls
from course_utils.models.create import create_model
from course_utils.training.recipes import channels_last

BATCH, ROUNDS = 32, 7
CPU = torch.device("cpu")


def measure(name: str) -> dict[str, object]:
    """Seconds until the first compiled step is done, and each round's milliseconds of a step."""
    torch.manual_seed(0)
    images, targets = torch.randn(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))
    images = images.to(memory_format=torch.channels_last)
    eager = channels_last(create_model(name, num_classes=10))
    compiled = torch.compile(copy.deepcopy(eager))

    def step(model: torch.nn.Module) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(images), targets)
        loss.backward()
        model.zero_grad()

    step(eager)
    start = time.perf_counter()
    step(compiled)
    compile_s = time.perf_counter() - start
    arms = {"eager_ms": eager, "compiled_ms": compiled}
    times: dict[str, list[float]] = {arm: [] for arm in arms}
    for _ in range(ROUNDS):
        for arm, model in arms.items():
            times[arm].append(time_calls(partial(step, model), CPU))
    return {"compile_s": compile_s} | times


def main(save: Annotated[Path | None, typer.Option(help="JSON file to write")] = None) -> None:
    """Print both times for the course's small networks."""
    torch.compiler.config.force_disable_caches = True  # what an earlier run compiled does not count
    torch.compile(torch.nn.Linear(2, 2))(torch.ones(1, 2)).sum().backward()  # imports, the compiler
    models = {name: measure(name) for name in ("convnet_small", "vgg_tiny")}
    for name, found in models.items():
        print(name, {key: round(float(np.median(value)), 2) for key, value in found.items()})
    if save:
        keep(save, f"scripts/compiling.py --save {save}", batch=BATCH, models=models)


if __name__ == "__main__":
    typer.run(main)
