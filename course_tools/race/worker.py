"""In a process of its own: train one recipe at one seed, then name the classes of images.

The process that starts this module takes part by files. In the working folder `READY` says that
the recipe can run, and `GO` answers it, when the budget begins: no line of a recipe runs before
`READY` was seen, so it cannot take it back. `TRAINED` says that the budget may end, and after how
many steps. Then the hidden images come, without their classes, into the folder that this process
only reads.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from course_tools.grade.limits import end_with_parent, limit_process
from course_tools.race.budget import Budget
from course_tools.race.guard import forbid
from course_tools.race.load import describe_failure
from course_tools.race.split import decode_data, encode_classes
from course_tools.run.leftovers import MARK
from course_utils.config import Config
from course_utils.files import write_atomically

__all__ = ["ASKED", "DATA", "FAILED", "GO", "HIDDEN", "PREDICTED", "READY", "TRAINED"]

# what the process gets, in a folder that it only reads
ASKED, DATA, GO, HIDDEN = "asked.json", "data.npz", "go", "hidden.npy"
READY, TRAINED, PREDICTED, FAILED = "ready", "trained", "predicted", "failed.json"
POLL_S = 0.02


def _await(path: Path) -> Path:
    while not path.exists():
        time.sleep(POLL_S)
    return path


def main() -> None:
    """Train the recipe that the first argument's folder asks for; write to the second one."""
    course, work = (Path(argument).resolve() for argument in sys.argv[1:])
    asked = json.loads((course / ASKED).read_text(encoding="utf-8"))
    if not asked["sandbox"]:
        end_with_parent(int(os.environ[MARK]))
    budget, recipe = Budget(**asked["budget"]), course / asked["recipe"]

    # before anything of the recipe runs: its imports are not part of the budget
    from course_tools.race.train import classify, count_steps, train_recipe

    config, data = Config(**asked["config"]), decode_data(course / DATA, asked["data"])
    ours = os.getpid()

    def tell(problem: str) -> None:
        write_atomically(work / FAILED, json.dumps({"problem": problem}))

    limit_process(budget.memory_gib)
    forbid(asked["forbidden"], tell)
    write_atomically(work / READY, "")
    _await(course / GO)
    try:
        started_s = time.monotonic()
        with count_steps() as steps:
            model = train_recipe(recipe, config, data, asked["seed"], budget, started_s)
        write_atomically(work / TRAINED, str(steps.taken))
        classes = classify(model, data, np.load(_await(course / HIDDEN), allow_pickle=False))
        write_atomically(work / PREDICTED, encode_classes(classes))
    except BaseException as error:  # what this process prints is not shown
        if os.getpid() == ours:  # not one that the recipe has forked
            tell(describe_failure(error, recipe))


if __name__ == "__main__":
    main()
