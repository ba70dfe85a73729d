"""A class in nbgrader, set up as docs/teaching.md says; its kernels take ports: tests/groups.py."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import nbformat

from tests.places import NO_NETWORK, ROOT

__all__ = ["make_class", "read_scores", "run_nbgrader"]


def run_nbgrader(folder: Path, *arguments: str, statuses: tuple[int, ...] = (0,)) -> str:
    """In an activated environment, without a network; returns what it logged."""
    binaries = Path(sys.executable).parent
    variables = {"PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    path = os.pathsep.join([str(NO_NETWORK), str(ROOT)])
    variables |= {"PYTHONPATH": path, "JUPYTER_RUNTIME_DIR": str(folder / "runtime")}
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


def make_class(
    folder: Path, lesson: str, source: nbformat.NotebookNode, limits: dict[str, str]
) -> nbformat.NotebookNode:
    """Give a class its configuration and a lesson; returns the notebook that students get.

    Args:
        limits: what stands in the configuration of the course, and what to write there.
    """
    text = (ROOT / "docs" / "nbgrader_config.py").read_text()
    for limit, less in limits.items():
        assert limit in text
        text = text.replace(limit, less)
    (folder / "nbgrader_config.py").write_text(text)
    (folder / "source" / lesson).mkdir(parents=True)
    nbformat.write(source, folder / "source" / lesson / f"{lesson}.ipynb")
    run_nbgrader(folder, "generate_assignment", lesson, "--create")
    return nbformat.read(folder / "release" / lesson / f"{lesson}.ipynb", as_version=4)


def read_scores(folder: Path) -> dict[str, float]:
    """Each student's points."""
    run_nbgrader(folder, "export")
    with (folder / "grades.csv").open(encoding="utf-8") as file:
        return {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
