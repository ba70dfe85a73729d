"""Lessons that end early, leave something behind, or print what nobody wants to read."""

import shutil
import subprocess
import sys

import nbformat
import psutil
import pytest

from course_tools.run import execute
from course_tools.run.execute import execute_lesson
from course_tools.run.record import read_course
from course_tools.run.runner import run_lessons
from course_utils.files import ROOT
from course_utils.results import LessonResult
from tests.own_folder import write_images

CHECK = "assert False, 'never reached'"


def run(school, execution=execute_lesson, **options):
    return run_lessons(school.lessons, school.plan(**options), school.console, execute=execution)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import sys; sys.exit(0)", "cell 2 of 3 ended the lesson"),
        pytest.param("import sys; sys.exit()", "cell 2 of 3 ended the lesson", id="none"),
        ("raise SystemExit", "cell 2 of 3 ended the lesson"),
        ("exit()", "cell 3 of 3: "),
        ("import os; os._exit(0)", "does the cell end it?"),
    ],
)
def test_a_lesson_that_a_cell_ends_fails(school, capfd, source, reason):
    school.write("01_one", source, CHECK)
    (entry,) = run(school).lessons
    assert entry.status == "failed"
    assert reason in entry.reason
    assert entry.key == ""  # so it is never taken for finished
    assert "Kernel died" not in capfd.readouterr().err  # a stray line of nbclient


def test_the_last_cell_may_end_with_exit(school):
    school.write("01_one", "print('fine'); exit()")
    assert [entry.status for entry in run(school).lessons] == ["passed"]


def test_a_lesson_imports_the_package_of_this_clone(school, tmp_path, monkeypatch):
    other = tmp_path / "other" / "course_utils"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise RuntimeError('another clone')")
    monkeypatch.setenv("PYTHONPATH", str(other.parent))  # stands for an installed other clone
    school.write("01_one", "import course_utils; print(course_utils.__file__)")
    (entry,) = run(school).lessons
    assert (entry.status, entry.reason) == ("passed", "")
    executed = nbformat.read(school.build / "smoke" / "01_one.ipynb", as_version=4)
    assert executed.cells[1].outputs[0].text.strip() == str(ROOT / "course_utils" / "__init__.py")


LEAVE = """
import pathlib, subprocess, sys
sleep = [sys.executable, "-S", "-c", "import time; time.sleep(300)"]
processes = [subprocess.Popen(sleep), subprocess.Popen(sleep, start_new_session=True)]
pathlib.Path({path!r}).write_text(" ".join(str(process.pid) for process in processes))
"""


def test_no_process_of_a_lesson_outlives_it(school, tmp_path):
    school.write("01_one", LEAVE.format(path=str(tmp_path / "pids")))
    (entry,) = run(school).lessons
    assert entry.status == "passed"
    left = [int(word) for word in (tmp_path / "pids").read_text().split()]
    try:
        assert [pid for pid in left if psutil.pid_exists(pid)] == []
    finally:
        for pid in filter(psutil.pid_exists, left):
            psutil.Process(pid).kill()


@pytest.mark.faults
def test_a_missing_test_split_is_found_before_anything_is_trained(tmp_path):
    images = write_images(tmp_path / "mine", count=40)
    shutil.rmtree(images / "test")
    asked = ["12", "--profile", "smoke", "--dataset", str(images), "--build", str(tmp_path)]
    command = [sys.executable, "-m", "course_tools", "run", *asked]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    (path,) = tmp_path.glob("*/course.json")
    (entry,) = read_course(path).lessons
    assert "has no folder test/" in entry.reason
    assert entry.runs == []


def test_escape_sequences_of_a_lesson_do_not_reach_the_terminal(school):
    school.write(
        "01_one", r"raise ValueError('\x1b]0;title\x07 \x1b[31mred\x1b[0m [bold]x[/bold]')"
    )
    (entry,) = run(school).lessons
    assert entry.reason == "cell 2 of 2: ValueError: �]0;title� �[31mred�[0m [bold]x[/bold]"


def test_more_output_than_a_notebook_can_hold_is_a_failure(school, monkeypatch):
    def print_much(source, output, *arguments, **options):
        cell = nbformat.v4.new_code_cell("print('x' * 10**8)", execution_count=1)
        cell.outputs = [nbformat.v4.new_output("stream", text="x" * 2000)]
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), output)

    school.write("01_one", "print('x' * 10**8)")
    monkeypatch.setattr(execute, "MOST_BYTES", 1000)
    monkeypatch.setattr(execute.papermill, "execute_notebook", print_much)
    (entry,) = run(school).lessons
    assert entry.status == "failed"
    assert "its outputs take 0 MB and are not kept: print less than" in entry.reason
    assert not list((school.build / "smoke").glob("*.ipynb"))


def test_a_disk_that_fills_while_the_notebook_is_written_is_named(school, monkeypatch):
    def refuse(source, output, *arguments, **options):
        raise OSError(28, "No space left on device")

    school.write("01_one", "print('fine')")
    monkeypatch.setattr(execute.papermill, "execute_notebook", refuse)
    with pytest.raises(OSError, match=r"smoke/\.01_one\.ipynb"):
        run(school)


def test_a_result_that_passed_stands_for_all_cells(school):
    """What `execute_lesson` returns of a lesson without a fault is as before."""
    school.write("01_one", "print('fine')", "")  # an empty cell is not executed
    (entry,) = run(school).lessons
    assert isinstance(entry, LessonResult)
    assert (entry.status, entry.reason) == ("passed", "")
