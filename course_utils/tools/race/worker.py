"""In a process of its own: train one recipe at one seed, then name the classes of images.

The process that starts this module takes part by files in the working folder. `READY` says that
the budget begins, `TRAINED` that it may end; then come the hidden images without their classes.
"""

import io
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from course_utils.config import Config
from course_utils.files import write_atomically
from course_utils.tools.race.budget import Budget
from course_utils.tools.race.guard import forbid
from course_utils.tools.race.load import describe_failure
from course_utils.tools.race.split import decode_data
from course_utils.tools.teach.limits import limit_process

__all__ = ["ASKED", "DATA", "FAILED", "HIDDEN", "PREDICTED", "READY", "TRAINED"]

ASKED, DATA = "asked.json", "data.npz"  # what the process gets, in a folder that it only reads
READY, TRAINED, HIDDEN, PREDICTED, FAILED = (
    "ready",
    "trained",
    "hidden.npy",
    "predicted.npy",
    "failed.json",
)
POLL_S = 0.02


def _await_images(path: Path) -> np.ndarray:
    while not path.exists():
        time.sleep(POLL_S)
    return np.load(path, allow_pickle=False)


def _save(path: Path, classes: np.ndarray) -> None:
    file = io.BytesIO()
    np.save(file, classes.astype(np.int64))
    write_atomically(path, file.getvalue())


def main() -> None:
    """Train the recipe that the first argument's folder asks for; write to the second one."""
    course, work = (Path(argument).resolve() for argument in sys.argv[1:])
    asked = json.loads((course / ASKED).read_text(encoding="utf-8"))
    budget, recipe = Budget(**asked["budget"]), course / asked["recipe"]

    # before anything of the recipe runs: its imports are not part of the budget
    from course_utils.tools.race.train import classify, train_recipe

    config, data = Config(**asked["config"]), decode_data(course / DATA, asked["data"])
    ours = os.getpid()

    def tell(problem: str) -> None:
        write_atomically(work / FAILED, json.dumps({"problem": problem}))

    limit_process(budget.memory_gib)
    forbid(asked["forbidden"], tell)
    write_atomically(work / READY, "")
    try:
        started_s = time.monotonic()
        model = train_recipe(recipe, config, data, asked["seed"], budget, started_s)
        write_atomically(work / TRAINED, "")
        _save(work / PREDICTED, classify(model, data, _await_images(work / HIDDEN)))
    except BaseException as error:  # what this process prints is not shown
        if os.getpid() == ours:  # not one that the recipe has forked
            tell(describe_failure(error, recipe))


if __name__ == "__main__":
    main()
