"""Train one recipe at one seed in a process of its own, keep the time, and judge its answers.

The process that runs the recipe cannot decide its own result. Time is taken here, the classes of
the hidden images are here alone, and the accuracy is computed here.
"""

import json
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from subprocess import Popen

from course_utils.config import Config
from course_utils.data.image_data import ImageData
from course_utils.data.photos import PHOTOS
from course_utils.errors import CourseError
from course_utils.files import ROOT, write_atomically
from course_utils.tools.race import worker
from course_utils.tools.race.budget import Budget
from course_utils.tools.race.split import (
    HiddenSplit,
    describe_data,
    encode_data,
    list_forbidden,
)
from course_utils.tools.run.lessons import NOTEBOOKS
from course_utils.tools.teach.isolate import isolated_process, read_messages
from course_utils.tools.teach.pristine import read_package, write_package

__all__ = ["Race", "Trained"]

PACKAGE = ("course_utils", "data/weights")  # what a recipe may use of the course
RECIPE = "race_recipe.py"
STARTING_S = 120  # for the imports of PyTorch and Lightning: then it is the machine that is slow
POLL_S = 0.02
ENDED = "its process ended before the training did: does it exit, or need too much memory?"
STARTLESS = "no training starts here: try course doctor"


@dataclass(frozen=True)
class Trained:
    """One training: its accuracy on the hidden split in [0, 1], and its seconds."""

    accuracy: float
    time_s: float  # from before the recipe is imported until the hidden images are classified


@dataclass(frozen=True)
class Race:
    """Trains recipes on the same images within the same budget, each in a fresh process."""

    config: Config
    data: ImageData
    hidden: HiddenSplit
    budget: Budget
    sandbox: bool
    package: dict[str, bytes] = field(default_factory=lambda: read_package(ROOT, PACKAGE))

    def train(self, recipe: Path, seed: int) -> Trained:
        """Train the recipe's file once.

        Raises:
            CourseError: the recipe is refused, with the reason in one line.
        """
        asked = {
            "recipe": RECIPE,
            "config": asdict(self.config),
            "data": describe_data(self.data),
            "seed": seed,
            "budget": asdict(self.budget),
            "forbidden": list_forbidden(self.config),
        }
        files: dict[str, bytes] = {
            worker.ASKED: json.dumps(asked).encode(),
            worker.DATA: encode_data(self.data),
            RECIPE: recipe.read_bytes(),
        }
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            course, work = Path(name, "course").resolve(), Path(name, "work").resolve()
            work.mkdir()
            write_package(self.package | files, course)
            return self._train(course, work)

    def _train(self, course: Path, work: Path) -> Trained:
        limit_s = self.budget.seconds + self.budget.grace_s
        with isolated_process(
            worker.__name__,
            [str(course), str(work)],
            course,
            work,
            sandbox=self.sandbox,
            hidden=[str(NOTEBOOKS), str(PHOTOS)],
        ) as process:
            _await(process, work, worker.READY, STARTING_S, STARTLESS)
            time_s = _await(process, work, worker.TRAINED, limit_s, self._explain_time())
            write_atomically(work / worker.HIDDEN, self.hidden.encode_images())
            answer_s = self.budget.answer_s
            late = f"its network takes longer than {answer_s:g} s to classify the hidden images"
            time_s += _await(process, work, worker.PREDICTED, answer_s, late)
        return Trained(self.hidden.judge(work / worker.PREDICTED), time_s)

    def _explain_time(self) -> str:
        return (
            f"it takes longer than {self.budget.seconds:g} s: is there a loop of its own, or one "
            "without end?"
        )


def _await(process: Popen, work: Path, name: str, limit_s: float, late: str) -> float:
    """Wait until the process has written a file; the seconds that it took.

    Raises:
        CourseError: the process says what is wrong, ends, or is too late.
    """
    start = time.monotonic()
    while not (work / name).is_file():
        running = process.poll() is None
        if problem := read_messages(work / worker.FAILED).get("problem"):
            raise CourseError(problem)
        time_s = time.monotonic() - start
        if not running and not (work / name).is_file():
            raise CourseError(ENDED)
        if time_s > limit_s:
            raise CourseError(late)
        time.sleep(POLL_S)
    if problem := read_messages(work / worker.FAILED).get("problem"):
        raise CourseError(problem)
    return time.monotonic() - start
