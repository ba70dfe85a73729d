"""Every lesson runs: with papermill in an empty folder without network, and under nbval."""

import os
import shutil
import subprocess
import sys

import nbformat
import papermill
import pytest

from course_utils.config import load_config
from course_utils.errors import CourseError
from course_utils.tools.run.execute import execute_lesson
from course_utils.tools.run.lessons import find_lessons
from course_utils.tools.run.plan import Plan
from course_utils.tools.run.runner import run_lessons
from tests.conftest import ROOT
from tests.unit.data.test_image_data import write_images

LESSONS = {lesson.path: lesson for lesson in find_lessons()}
TIME_LIMIT_S = 300  # a guard against a hang, not a measurement


def run_smoke(lesson, folder, environment, dataset="shapes"):
    return execute_lesson(
        lesson,
        folder / "out" / lesson.path.name,
        folder / "work",
        environment={"COURSE_PROFILE": "smoke", "COURSE_DATASET": dataset} | environment,
        time_limit_s=TIME_LIMIT_S,
    )


def test_lesson_runs_without_network_in_an_empty_folder(
    notebook_path, tmp_path_factory, tmp_path, offline_environment, monkeypatch
):
    """On three classes and 56 training images: fewer than the profile asks for, one step an epoch.

    nbval, below, runs every lesson on `shapes`.
    """
    images = write_images(tmp_path_factory.mktemp("mine"), ("bird", "cat", "dog"), count=30)
    monkeypatch.chdir(tmp_path)
    entry = run_smoke(LESSONS[notebook_path], tmp_path, offline_environment, dataset=str(images))
    assert entry.status == "passed", entry.reason
    assert all(claim["holds"] for claim in entry.claims if claim["kind"] == "identity")
    assert (tmp_path / "out" / notebook_path.name).exists()
    assert sorted(os.listdir(tmp_path)) == ["out", "work"]


def test_parameters_are_known_and_no_others_are_taken(notebook_path, tmp_path):
    lesson = LESSONS[notebook_path]
    known = papermill.inspect_notebook(str(notebook_path))
    if not notebook_path.stem.startswith("00"):
        assert {"PROFILE", "DATASET", "FIRST_SEED"} <= set(known)
    plan = Plan(load_config("smoke"), tmp_path, TIME_LIMIT_S, parameters={"NO_SUCH": 1})
    with pytest.raises(CourseError, match="has no parameter 'NO_SUCH'"):
        run_lessons([lesson], plan, console=None)


def test_checked_outputs_come_out_again(notebook_path, offline_environment, tmp_path):
    """nbval compares the cells tagged nbval-check-output with the outputs in the repository."""
    copy = shutil.copy(notebook_path, tmp_path)  # nbval runs a notebook where it lies
    environment = os.environ | offline_environment
    environment |= {"COURSE_PROFILE": "smoke", "COURSE_PROGRESS": "0"}
    plugins = ["-p", "no:cacheprovider", "-p", "tests.notebooks.nbval_over_ipc"]
    pytest_here = [sys.executable, "-m", "pytest", "-q", *plugins]
    nbval = ["--nbval-lax", "--nbval-current-env", f"--nbval-cell-timeout={TIME_LIMIT_S}"]
    done = subprocess.run(
        [*pytest_here, *nbval, copy],
        env=environment,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout


def test_the_lesson_on_dali_says_where_it_is_absent(tmp_path):
    [lesson] = [lesson for path, lesson in LESSONS.items() if path.stem == "11_dali"]
    entry = run_smoke(lesson, tmp_path, {"PYTHONPATH": str(ROOT / "tests" / "no_dali")})
    assert entry.status == "passed", entry.reason
    cells = nbformat.read(tmp_path / "out" / "11_dali.ipynb", as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    printed = "".join(output.get("text", "") for output in outputs)
    assert printed.count("DALI is not installed") == 1
    assert "torchvision v2, by batch" in str(outputs)


def test_lessons_run_on_real_images(notebook_path, cifar_folder, tmp_path, offline_environment):
    entry = run_smoke(
        LESSONS[notebook_path], tmp_path, offline_environment, dataset=str(cifar_folder)
    )
    assert entry.status == "passed", entry.reason
