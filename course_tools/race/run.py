"""Train one recipe at one seed in a process of its own, keep the time, and judge its answers.

The process that runs the recipe cannot decide its own result. Time is taken here, the classes of
the hidden images are here alone, and the accuracy is computed here.
"""

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from subprocess import Popen

from course_tools.grade.isolate import isolated_process, read_messages
from course_tools.grade.pristine import read_package, write_package
from course_tools.grade.strangers import disposable_folder, is_regular, read_regular
from course_tools.race import worker
from course_tools.race.budget import Budget
from course_tools.race.memory import measure_memory
from course_tools.race.split import HiddenSplit, describe_data, encode_data, list_forbidden
from course_tools.run.lessons import NOTEBOOKS
from course_utils.config import Config
from course_utils.data.image_data import ImageData
from course_utils.errors import CourseError
from course_utils.files import ROOT, write_atomically

__all__ = ["NotStartedError", "Race", "Trained"]

PACKAGE = ("course_utils", "course_tools", "data/weights")  # what a recipe may use of the course
RECIPE = "race_recipe.py"
STARTING_S = 120  # for the imports of PyTorch and Lightning: then it is the machine that is slow
POLL_S = 0.02
MEMORY_POLL_S = 0.5
SHOWN = 400  # characters of what a recipe's process says
MOST_DIGITS = 12  # of a number of steps
ENDED = "its process ended before the training did: does it exit, or need too much memory?"
STARTLESS = "no training starts here: try course doctor"
TOO_MUCH = "it needs more memory than the race allows: {:.1f} GiB in all its processes together"


class NotStartedError(CourseError):
    """No line of a recipe has run: the machine is at fault, and would be for the next one."""


@dataclass(frozen=True)
class Trained:
    """One training: its accuracy on the hidden split in [0, 1], its seconds, and its steps."""

    accuracy: float
    time_s: float  # from before the recipe is imported until the hidden images are classified
    steps: int  # of all optimizers; counted in the recipe's own process, so on trust


@dataclass(frozen=True)
class Race:
    """Trains recipes on the same images within the same budget, each in a fresh process."""

    config: Config
    data: ImageData
    hidden: HiddenSplit
    budget: Budget
    sandbox: bool
    package: dict[str, bytes] = field(default_factory=lambda: read_package(ROOT, PACKAGE))

    def train(self, source: bytes, seed: int) -> Trained:
        """Train a recipe once.

        Args:
            source: of its file.

        Raises:
            CourseError: the recipe is refused, with the reason in one line.
            NotStartedError: no training starts on this machine.
        """
        forbidden = list_forbidden(self.config)
        asked = {
            "recipe": RECIPE,
            "config": asdict(self.config),
            "data": describe_data(self.data),
            "seed": seed,
            "budget": asdict(self.budget),
            "forbidden": forbidden,
            "sandbox": self.sandbox,
        }
        files: dict[str, bytes] = {
            worker.ASKED: json.dumps(asked).encode(),
            worker.DATA: encode_data(self.data),
            RECIPE: source,
        }
        with disposable_folder() as folder:
            course, work = folder / "course", folder / "work"
            work.mkdir()
            write_package(self.package | files, course)
            with isolated_process(
                worker.__name__,
                [str(course), str(work)],
                course,
                work,
                sandbox=self.sandbox,
                hidden=[str(NOTEBOOKS), *forbidden, *self._find_dataset()],
            ) as process:
                return self._follow(process, course, work)

    def _find_dataset(self) -> list[str]:
        """The folder of the data, in which an archive of all images may lie too."""
        return [self.config.dataset] if Path(self.config.dataset).is_dir() else []

    def _follow(self, process: Popen, course: Path, work: Path) -> Trained:
        memory = self.budget.memory_gib
        try:
            _await(process, work, worker.READY, memory, STARTING_S, STARTLESS)
        except CourseError as error:
            problem = str(error) if str(error) == STARTLESS else f"{STARTLESS} ({error})"
            raise NotStartedError(problem) from None
        write_atomically(course / worker.GO, "")
        limit_s = self.budget.seconds + self.budget.grace_s
        time_s = _await(process, work, worker.TRAINED, memory, limit_s, self._explain_time())
        steps = _read_steps(work / worker.TRAINED)
        try:
            write_atomically(course / worker.HIDDEN, self.hidden.encode_images())
        except OSError as error:  # the recipe has filled the disk, or the folder is no longer one
            raise CourseError(
                f"it leaves no room for the hidden images ({error.strerror})"
            ) from None
        answer_s = self.budget.answer_s
        late = f"its network takes longer than {answer_s:g} s to classify the hidden images"
        time_s += _await(process, work, worker.PREDICTED, memory, answer_s, late)
        return Trained(self.hidden.judge(work / worker.PREDICTED), time_s, steps)

    def _explain_time(self) -> str:
        return (
            f"it takes longer than {self.budget.seconds:g} s: is there a loop of its own, or one "
            "without end?"
        )


def _read_steps(path: Path) -> int:
    """The number in a file that the recipe's process wrote.

    Raises:
        CourseError: there is no number in it.
    """
    try:
        text = read_regular(path, MOST_DIGITS).decode("ascii")
    except (OSError, ValueError):
        text = ""
    if not text.isdecimal():
        raise CourseError("it changes the files of the race: leave them alone")
    return int(text)


def _await(
    process: Popen, work: Path, name: str, memory_gib: float, limit_s: float, late: str
) -> float:
    """Wait until the process has written a file; the seconds that it took.

    Raises:
        CourseError: the process says what is wrong, ends, needs too much memory, or is too late.
    """
    start = measured = time.monotonic()
    while not is_regular(work / name):
        running = process.poll() is None
        _raise_problem(work)
        now = time.monotonic()
        if not running and not is_regular(work / name):
            raise CourseError(ENDED)
        if now - start > limit_s:
            raise CourseError(late)
        if now - measured > MEMORY_POLL_S:
            measured = now
            held_gib = measure_memory(process.pid) / 2**30
            if held_gib > memory_gib:
                raise CourseError(TOO_MUCH.format(held_gib))
        time.sleep(POLL_S)
    _raise_problem(work)
    return time.monotonic() - start


def _raise_problem(work: Path) -> None:
    if problem := read_messages(work / worker.FAILED).get("problem"):
        raise CourseError(problem if len(problem) <= SHOWN else f"{problem[:SHOWN]} …")
