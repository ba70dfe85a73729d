"""INT, TERM and HUP at any moment: one sentence, and nothing left."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from course_tools.interrupts import ending_on_interrupt, heed_signals
from tests.tools.conftest import START_LIMIT_S, begin, wait_for

ALL = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def handlers():
    """No signal is ignored in the test; the handlers are put back after it."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ALL}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ALL)
def test_a_signal_ends_a_command_with_one_sentence(handlers, capsys, number):
    heed_signals()
    with pytest.raises(SystemExit) as stop:
        os.kill(os.getpid(), number)
    assert stop.value.code == 128 + number
    assert capsys.readouterr().err == "\ncourse: interrupted\n"


def test_a_signal_that_is_ignored_stays_ignored(handlers):  # own: nohup course run
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    heed_signals()
    with ending_on_interrupt(Console(), "ended"):
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_temporary_files_of_a_command_lie_in_a_folder_that_goes_with_it(temporary, monkeypatch):
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    before = dict(os.environ)
    with ending_on_interrupt(Console(), "ended"):
        inside = Path(tempfile.mkdtemp())
        child = [sys.executable, "-c", "import tempfile; print(tempfile.mkdtemp())"]
        by_child = Path(subprocess.run(child, capture_output=True, text=True).stdout.strip())
        assert inside.parent == by_child.parent
        assert inside.parent.parent == temporary
        cache = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
        assert cache.parent == temporary  # what is compiled is found again by the next run
    assert list(temporary.iterdir()) == []
    assert dict(os.environ) == before
    assert Path(tempfile.gettempdir()) == temporary


WORK = """
import os, subprocess, sys, tempfile, time
from pathlib import Path
from rich.console import Console
from course_tools.interrupts import ending_on_interrupt
from course_tools.run.leftovers import MARK

with ending_on_interrupt(Console(), "course: interrupted; all is well"):
    tempfile.mkdtemp()
    sleep = [sys.executable, "-S", "-c", "import time; time.sleep(300)"]
    marked = os.environ | {{MARK: str(os.getpid())}}
    children = [subprocess.Popen(sleep), subprocess.Popen(["setsid", *sleep], env=marked)]
    Path({begun!r}).write_text(" ".join(str(child.pid) for child in children))
    time.sleep(300)
"""


@pytest.mark.faults
@pytest.mark.parametrize("number", ALL)
def test_a_signal_leaves_no_process_and_no_folder(tmp_path, temporary, number):
    begun = tmp_path / "begun"
    with begin(WORK.format(begun=str(begun))) as process:
        wait_for(lambda: begun.exists() and begun.read_text(), process)
        children = [int(word) for word in begun.read_text().split()]
        process.send_signal(number)
        _, error = process.communicate(timeout=START_LIMIT_S)
    sentence = "course: interrupted; all is well"
    assert (process.returncode, error.strip()) == (128 + number, sentence)
    wait_for(lambda: not any(map(psutil.pid_exists, children)))
    assert list(temporary.iterdir()) == []


@pytest.mark.faults
@pytest.mark.parametrize("number", ALL)
def test_a_signal_while_the_command_imports_is_one_sentence(tmp_path, number):
    """The signal comes when the first of the slow imports begins."""
    begun = tmp_path / "begun"
    (tmp_path / "typer.py").write_text(
        f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(300)\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with begin("from course_tools.cli.start import main; main()", PYTHONPATH=path) as process:
        wait_for(begun.exists, process)
        process.send_signal(number)
        _, error = process.communicate(timeout=START_LIMIT_S)
    assert (process.returncode, error.strip()) == (128 + number, "course: interrupted")


@pytest.mark.faults
@pytest.mark.parametrize("number", ALL)  # the real command, its kernel and its folder
def test_a_signal_while_a_lesson_runs_leaves_nothing(school, tmp_path, temporary, number):
    school.write("01_one", "import time; time.sleep(300)")
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from course_tools.cli import main as cli\n"
        "from tests.tools.conftest import find_lessons\n"
        f"cli.find_lessons = lambda: find_lessons(Path({str(school.notebooks)!r}))\n"
        f"sys.argv = ['course', 'run', '--profile', 'smoke', '--build', {str(school.build)!r}]\n"
        "cli.main()\n"
    )
    with begin(script) as process:
        wait_for((school.build / "smoke" / ".01_one.ipynb").exists, process)
        kernels = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        _, error = process.communicate(timeout=START_LIMIT_S)
    sentence = "course: interrupted; finished lessons are kept, run again to go on"
    assert (process.returncode, error.strip()) == (128 + number, sentence)
    assert not psutil.wait_procs(kernels, timeout=20)[1]
    assert list(temporary.iterdir()) == []
