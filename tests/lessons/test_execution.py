"""Lessons run in `smoke`, under nbval: those whose key has changed, and all of them at night.

The key of a lesson (`course_tools.run.key`) says whether its code, or what it depends on, differs
from what made its stored outputs, or from a revision (``--since``).
"""

import os
import shutil
import subprocess
import sys

import nbformat
import papermill
import pytest

from course_tools.run.choose import choose_lessons, draw_lessons, plan_stored
from course_tools.run.execute import execute_lesson
from course_tools.run.lessons import find_lessons
from course_tools.run.plan import Plan
from course_tools.run.runner import run_lessons
from course_utils.config import load_config
from course_utils.errors import CourseError
from course_utils.results import RUN_FIELDS, read_records
from tests.own_folder import write_images
from tests.places import ROOT

LESSONS = {lesson.path: lesson for lesson in find_lessons()}
TIME_LIMIT_S = 900  # a guard against a hang, not a measurement
MOST_EXECUTED = 2  # by default; `course run --stale` has claims and times as well


def pytest_generate_tests(metafunc):
    if "lesson_to_run" not in metafunc.fixturenames:
        return
    lessons, option = list(LESSONS.values()), metafunc.config.option
    drawn = lessons
    if not option.nightly:
        plan = plan_stored(ROOT / "build")
        lessons = list(choose_lessons(lessons, plan, stale=True, since=option.since, sample=0))
        drawn = draw_lessons(lessons, MOST_EXECUTED)
    left = pytest.mark.skip(reason=f"{len(lessons)} lessons have changed: `course run --stale`")
    cases = [
        pytest.param(lesson, id=lesson.name, marks=[] if lesson in drawn else left)
        for lesson in lessons
    ]
    metafunc.parametrize("lesson_to_run", cases)


def run_smoke(lesson, folder, environment, dataset="photos"):
    return execute_lesson(
        lesson,
        folder / "out" / lesson.path.name,
        folder / "work",
        environment={"COURSE_PROFILE": "smoke", "COURSE_DATASET": dataset} | environment,
        time_limit_s=TIME_LIMIT_S,
    )


def run_nbval(path, folder, environment):
    """Execute a notebook with nbval: its exit status and what it printed.

    The copy in ``folder/work`` is executed there, and ``folder/out`` gets the executed one. All
    that the lesson records is in ``folder/runs``.
    """
    work, out = folder / "work", folder / "out"
    work.mkdir()
    out.mkdir()
    plugins = ["-p", "no:cacheprovider", "-p", "tests.lessons.nbval_plugin"]
    nbval = ["--nbval-lax", "--nbval-current-env", f"--nbval-cell-timeout={TIME_LIMIT_S}"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *nbval, shutil.copy(path, work)]
    settings = {"COURSE_PROGRESS": "0", "COURSE_RUNS_DIR": str(folder / "runs")}
    variables = os.environ | settings | environment
    done = subprocess.run(command, env=variables, capture_output=True, text=True, cwd=out)
    return done.returncode, done.stdout


def test_lesson_runs_offline_on_own_images_and_checked_outputs_come_out_again(
    lesson_to_run, tmp_path_factory, tmp_path, offline_environment
):
    """nbval compares the cells tagged nbval-check-output with the outputs in the repository.

    Those are of the profile `quick` on its data set. They are the same on three
    classes and 56 training images: fewer than the profile asks for, one step an epoch.
    """
    notebook_path = lesson_to_run.path
    images = write_images(tmp_path_factory.mktemp("mine"), ("bird", "cat", "dog"), count=30)
    settings = {"COURSE_PROFILE": "smoke", "COURSE_DATASET": str(images)}
    status, printed = run_nbval(notebook_path, tmp_path, settings | offline_environment)
    assert status == 0, printed[-3000:]
    assert "passed" in printed
    identities = [c for c in read_records(tmp_path / "runs", "claim") if c["kind"] == "identity"]
    assert identities
    assert all(claim["holds"] for claim in identities)
    runs = read_records(tmp_path / "runs", "run")
    assert all(set(row) >= set(RUN_FIELDS) for row in runs)
    executed = nbformat.read(tmp_path / "out" / notebook_path.name, as_version=4)
    assert any(cell.get("outputs") for cell in executed.cells)
    assert sorted(os.listdir(tmp_path)) == ["out", "runs", "work"]
    assert os.listdir(tmp_path / "out") == [notebook_path.name]


def test_parameters_are_known_and_no_others_are_taken(notebook_path, tmp_path):
    lesson = LESSONS[notebook_path]
    known = papermill.inspect_notebook(str(notebook_path))
    if not notebook_path.stem.startswith("00"):
        assert {"PROFILE", "DATASET", "FIRST_SEED"} <= set(known)
    plan = Plan(load_config("smoke"), tmp_path, TIME_LIMIT_S, parameters={"NO_SUCH": 1})
    with pytest.raises(CourseError, match="has no parameter 'NO_SUCH'"):
        run_lessons([lesson], plan, console=None)


@pytest.mark.nightly
def test_the_lesson_on_dali_says_where_it_is_absent(tmp_path):
    [lesson] = [lesson for path, lesson in LESSONS.items() if path.stem == "11_dali"]
    entry = run_smoke(lesson, tmp_path, {"PYTHONPATH": str(ROOT / "tests" / "no_dali")})
    assert entry.status == "passed", entry.reason
    cells = nbformat.read(tmp_path / "out" / "11_dali.ipynb", as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    printed = "".join(output.get("text", "") for output in outputs)
    assert printed.count("DALI is not installed") == 1
    assert "batched augmentation" in str(outputs)


@pytest.mark.nightly
@pytest.mark.parametrize("lesson", draw_lessons(find_lessons(), 3), ids=lambda x: x.name)
def test_lessons_in_rotation_run_on_real_images(
    lesson, cifar_folder, tmp_path, offline_environment
):
    """With papermill, as `course run` does it; the hash of the commit chooses the three lessons.

    Images are at hand where the archive lies beside the repository; elsewhere this is skipped.
    """
    entry = run_smoke(lesson, tmp_path, offline_environment, dataset=str(cifar_folder))
    assert entry.status == "passed", entry.reason
    assert all(claim["holds"] for claim in entry.claims if claim["kind"] == "identity")
    assert (tmp_path / "out" / lesson.path.name).exists()
