"""Several lessons at a time: they do run at once, and end as one after the other would."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from course_utils.errors import CourseError
from course_utils.hardware import describe_hardware
from course_utils.tools.running import run_lessons

PASS = "print('fine')"
MEET = """
import pathlib, time
pathlib.Path({folder!r}, {own!r}).touch()
deadline = time.monotonic() + 60
while not pathlib.Path({folder!r}, {other!r}).exists():
    assert time.monotonic() < deadline, "nobody came"
    time.sleep(0.05)
"""
LOOK = "import os, pathlib; pathlib.Path({path!r}).write_text(os.environ.get({name!r}, 'not set'))"
THREADS = "OMP_NUM_THREADS"


def run(school, **options):
    return run_lessons(school.lessons, school.plan(jobs=2, **options), school.console)


def statuses(course):
    return {entry["name"]: entry["status"] for entry in course["lessons"]}


def test_two_lessons_run_at_once(school, tmp_path):
    folder = str(tmp_path)
    school.write("01_one", MEET.format(folder=folder, own="one", other="two"))
    school.write("02_two", MEET.format(folder=folder, own="two", other="one"))
    course = run(school)
    assert statuses(course) == {"01_one": "passed", "02_two": "passed"}
    assert course == json.loads((school.build / "smoke" / "course.json").read_text())
    assert statuses(run(school)) == {"01_one": "skipped", "02_two": "skipped"}


def test_they_share_the_cores_and_one_that_needs_all_runs_after_them(school, tmp_path, monkeypatch):
    monkeypatch.delenv(THREADS, raising=False)
    shared, alone = tmp_path / "shared", tmp_path / "alone"
    school.write("01_one", LOOK.format(path=str(alone), name=THREADS), alone=True)
    school.write("02_two", LOOK.format(path=str(shared), name=THREADS))
    assert statuses(run(school)) == {"01_one": "passed", "02_two": "passed"}
    assert shared.read_text() == str(max(1, describe_hardware()["cores"] // 2))
    assert alone.read_text() == "not set"
    assert shared.stat().st_mtime < alone.stat().st_mtime


def test_seconds_that_are_kept_are_those_of_a_lesson_with_all_cores(school):
    school.write("01_one", PASS)
    school.write("02_two", PASS, budget_s=0)
    assert [entry["jobs"] for entry in run(school, profile="quick")["lessons"]] == [2, 2]
    assert not any(entry["over_budget"] for entry in run(school, profile="quick")["lessons"])
    plan = school.plan(profile="quick", keep_seconds=True)
    course = run_lessons(school.lessons, plan, school.console)
    assert statuses(course) == {"01_one": "passed", "02_two": "passed"}
    assert [entry["over_budget"] for entry in course["lessons"]] == [False, True]


def test_a_failing_lesson_does_not_stop_the_others(school):
    school.write("01_one", "1 / 0")
    school.write("02_two", PASS)
    course = run(school)
    assert statuses(course) == {"01_one": "failed", "02_two": "passed"}
    assert course["lessons"][0]["reason"] == "cell 2 of 2: ZeroDivisionError: division by zero"


def test_a_killed_process_is_one_line_and_what_ended_before_is_kept(school):
    school.write("01_one", "import os, psutil, time", "psutil.Process(os.getppid()).kill()")
    with pytest.raises(CourseError, match="a process that executed lessons was killed"):
        run(school)
    assert json.loads((school.build / "smoke" / "course.json").read_text())["lessons"] == []


KILLED = """
import sys
from pathlib import Path
from course_utils.tools.running import run_lessons
from tests.tools.conftest import School
if __name__ == "__main__":
    school = School(Path(sys.argv[1]))
    run_lessons(school.lessons, school.plan(jobs=2), school.console)
"""


def test_kill_9_leaves_nothing_running(school, tmp_path):
    school.write("01_one", "import time", "time.sleep(120)")
    script = tmp_path / "start.py"  # its processes import it, so it has to be a file
    script.write_text(KILLED)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    process = subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=environment)
    deadline = time.monotonic() + 90
    while not (school.build / "smoke" / ".01_one.ipynb").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    left = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not psutil.wait_procs(left, timeout=20)[1]
