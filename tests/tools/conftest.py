"""Small lessons, and an execution of lessons that starts no kernel."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from rich.console import Console

from course_tools.cli import main as cli
from course_tools.cli import teaching
from course_tools.run import runner
from course_tools.run.lessons import find_lessons
from course_tools.run.plan import Plan
from course_utils import results
from course_utils.config import load_config
from course_utils.files import ROOT, write_atomically
from course_utils.results import LessonResult

START_LIMIT_S = 300  # a guard against a hang, not a measurement: other work may run beside
# a process that was started in the background ignores interrupts, and so do its children
HEED = "import signal; [signal.signal(n, signal.SIG_DFL) for n in (1, 2, 15)]\n"
ABOUT = {"question": "?", "technique": "t", "seam": "s", "minutes": 1, "budget_s": 10}


def interrupt(script: str, begun: Path) -> tuple[int, str]:
    """Run Python code, interrupt it when ``begun`` exists: its exit code and its stderr."""
    with begin(script) as process:
        wait_for(begun.exists, process)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=START_LIMIT_S)
    return process.returncode, error.strip()


@contextmanager
def begin(script: str, **variables: str) -> Iterator[subprocess.Popen]:
    """A process that runs Python code and heeds signals; it ends with the context at the latest."""
    command = [sys.executable, "-c", HEED + script]
    environment = os.environ | variables
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(condition: Callable[[], object], process: subprocess.Popen | None = None) -> None:
    """Wait until a condition holds, at most until the process that brings it about has ended."""
    deadline = time.monotonic() + START_LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, process.communicate()[1]
        time.sleep(0.1)


def write_lesson(
    folder: Path, name: str, *sources: str, parameters: str = "ALPHA = 1", **about
) -> Path:
    """A notebook with a parameters cell and one cell for each source."""
    folder.mkdir(parents=True, exist_ok=True)
    cells = [nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})]
    cells += [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["course"] = ABOUT | about
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    path = folder / f"{name}.ipynb"
    nbformat.write(notebook, path)
    return path


def find_cell(notebook, name):
    """The cell of an exercise's answer or check, by its ``grade_id``."""
    return next(c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == name)


class Pretend:
    """Stands for `execute_lesson`, with the same arguments, and starts no kernel.

    Every lesson passes, but for what ``results`` says of it.
    """

    def __init__(self):
        self.executed: list[str] = []  # the lessons' names, in order
        self.asked: dict[str, dict] = {}  # for each, the options of its last execution
        self.results: dict[str, dict] = {}  # for each, fields of its `LessonResult`

    def __call__(
        self,
        lesson,
        output,
        work,
        *,
        environment,
        parameters=None,
        time_limit_s,
        on_cell=lambda done, total: None,
    ):
        self.executed.append(lesson.name)
        self.asked[lesson.name] = {
            "environment": environment,
            "parameters": parameters,
            "time_limit_s": time_limit_s,
        }
        notebook = load_notebook_node(str(lesson.path))
        on_cell(1, len(notebook.cells))
        if parameters:
            notebook = parameterize_notebook(notebook, parameters)
        write_atomically(output, nbformat.writes(notebook))
        plain = {"time_s": 1.0, "peak_memory_bytes": 1, "claims": [], "runs": []}
        return LessonResult(lesson.name, **plain | self.results.get(lesson.name, {}))


class School:
    """A folder of lessons, a build folder, and a console that is remembered."""

    def __init__(self, folder: Path):
        self.execute = Pretend()
        self.notebooks, self.build = folder / "notebooks", folder / "build"
        self.console = Console(record=True, width=200, file=(folder / "console.txt").open("w"))

    def write(self, name: str, *sources: str, **options) -> Path:
        return write_lesson(self.notebooks, name, *sources, **options)

    @property
    def lessons(self):
        return find_lessons(self.notebooks)

    def plan(self, profile: str = "smoke", dataset: str = "", **options) -> Plan:
        config = load_config(profile, dataset=dataset, first_seed=0)
        return Plan(config, self.build, **{"time_limit_s": 60} | options)


@pytest.fixture
def temporary(monkeypatch):
    """An empty folder that stands for the system's temporary one, here and in new processes.

    Its path is short, as the paths of sockets have to be.
    """
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


@pytest.fixture
def school(tmp_path):
    return School(tmp_path)


@pytest.fixture
def course(monkeypatch, capsys, school):
    """Run ``course …`` in this process on the school's lessons: ``(status, stdout, stderr)``.

    Lessons are executed by ``school.execute``, which starts no kernel.
    """
    run_lessons = runner.run_lessons

    def run_school(*arguments):
        return run_lessons(*arguments, execute=school.execute)

    monkeypatch.setattr(runner, "run_lessons", run_school)
    for module in (cli, teaching):
        monkeypatch.setattr(module, "find_lessons", lambda: school.lessons)

    def run(*arguments):
        if arguments[0] in ("run", "report"):
            arguments = (*arguments, "--build", str(school.build))
        monkeypatch.setattr(sys, "argv", ["course", *arguments])
        try:
            cli.main()
            status = 0
        except SystemExit as stop:
            status = stop.code or 0
        return status, *capsys.readouterr()

    folder = school.notebooks.with_name("results")
    monkeypatch.setattr(results, "RESULTS", folder)
    write_atomically(folder / "other.json", "{}")
    school.write("00_start_here", "print('fine')")
    school.write("01_baseline", "print('fine')")
    return run


def assert_one_line(result, sentence):
    status, _, error = result
    assert status == 2
    assert re.search(sentence, error), error
    assert error.count("\n") == 1
    assert "Traceback" not in error
