"""nbgrader works on the notebooks as they are: generate, autograde, export, and bad submissions."""

import copy
import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.places import NO_NETWORK, ROOT
from tests.tools.conftest import find_cell

LESSON = "90_find_the_bug"  # quick to run, and the one with the most exercises


def nbgrader(folder, *arguments, statuses=(0,)):
    """Run nbgrader as docs/teaching.md says, in an activated environment, without a network."""
    binaries = Path(sys.executable).parent
    variables = {"PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    variables |= {"PYTHONPATH": str(NO_NETWORK), "JUPYTER_RUNTIME_DIR": str(folder / "runtime")}
    done = subprocess.run(
        [binaries / "nbgrader", *arguments],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode in statuses, done.stderr[-3000:]
    return done.stderr


@pytest.fixture(scope="module")
def gradebook(tmp_path_factory):
    """A class of students who hand in right, half-right, wrong and broken notebooks."""
    folder = tmp_path_factory.mktemp("class")
    shutil.copy(ROOT / "docs" / "nbgrader_config.py", folder)
    config = folder / "nbgrader_config.py"
    text = config.read_text()
    for limit, less in {"timeout = 120  #": "timeout = 15  #", "6 * 2**30": "3 * 2**30"}.items():
        assert limit in text
        text = text.replace(limit, less)
    config.write_text(text)
    (folder / "source" / LESSON).mkdir(parents=True)
    shutil.copy(ROOT / "notebooks" / f"{LESSON}.ipynb", folder / "source" / LESSON)
    nbgrader(folder, "generate_assignment", LESSON, "--create")
    source = nbformat.read(folder / "source" / LESSON / f"{LESSON}.ipynb", as_version=4)
    released = nbformat.read(folder / "release" / LESSON / f"{LESSON}.ipynb", as_version=4)
    assert "### BEGIN SOLUTION" not in "".join(cell.source for cell in released.cells)
    names = [
        cell.metadata.nbgrader.grade_id
        for cell in source.cells
        if cell.metadata.get("nbgrader", {}).get("solution")
    ]

    def hand_in(student, solved, **changed):
        notebook = copy.deepcopy(released)
        for name in solved:
            find_cell(notebook, name).source = find_cell(source, name).source
        for name, text in changed.items():
            if text is None:
                notebook.cells.remove(find_cell(notebook, name))
            else:
                find_cell(notebook, name).source = text
        path = folder / "submitted" / student / LESSON / f"{LESSON}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)

    renamed = find_cell(source, names[3]).source.replace(names[3], "mend")
    hand_in("right", names)
    hand_in("half", names[:5])
    hand_in("wrong", [], **{name: f"def {name}(*_, **__):\n    return 0" for name in names})
    broken = {
        names[0]: "def repair_schedule(:",  # a syntax error
        f"check_{names[1]}": None,  # a deleted check cell
        names[2]: "while True:\n    pass",  # an endless loop
        names[3]: renamed,
    }
    hand_in("broken", names, **broken)
    hand_in(
        "hoarder", names, **{names[4]: "all = []\nwhile True:\n    all.append(bytearray(2**28))"}
    )
    # 1 where the hoarder's kernel dies of it: then nbgrader names the student, and goes on
    log = nbgrader(folder, "autograde", LESSON, "--create", statuses=(0, 1))
    nbgrader(folder, "export")
    with (folder / "grades.csv").open(encoding="utf-8") as file:
        scores = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
    points = [find_cell(source, f"check_{name}").metadata.nbgrader.points for name in names]
    return scores, points, log


def test_right_half_right_and_wrong_submissions_get_their_points(gradebook):
    scores, points, _ = gradebook
    assert scores["right"] == sum(points)
    assert scores["half"] == sum(points[:5])
    assert scores["wrong"] == 0


def test_a_broken_submission_loses_only_what_is_broken(gradebook):
    scores, points, log = gradebook
    assert scores["broken"] == sum(points[4:])
    assert "Timeout waiting for execute reply" in log


def test_a_submission_that_fills_the_memory_harms_no_other(gradebook):
    scores, points, log = gradebook
    named = "There was an error processing assignment '90_find_the_bug' for student 'hoarder'"
    assert scores["right"] == sum(points)
    score = scores.get("hoarder", 0)
    assert score < sum(points)
    assert named in log or score >= sum(points[:4])  # what stands above the full cell
