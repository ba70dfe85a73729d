"""Runs the tests on the pretend device, which are in ``on_*.py``, in a process of their own.

A process cannot forget the device, see `tests.pretend.device`. All files run in one process, once,
and only if a test of this module is asked for. One of them alone::

    python -m pytest tests/pretend/on_cards.py -k 05_mixup
"""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.places import ROOT

FILES = sorted(Path(__file__).parent.glob("on_*.py"))
TIME_LIMIT_S = 900  # a guard against a hang


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """For each file its test cases, as elements of JUnit's XML."""
    report = tmp_path_factory.mktemp("pretend") / "report.xml"
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, f"--junitxml={report}", *map(str, FILES)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
    )
    assert report.exists(), done.stdout + done.stderr
    found = {path.stem: [] for path in FILES}
    for case in ElementTree.parse(report).iter("testcase"):
        found[case.get("classname").rpartition(".")[2] or case.get("name")].append(case)
    return found


@pytest.mark.parametrize("file", [path.stem for path in FILES])
def test_all_passes_on_the_pretend_device(file, cases):
    assert cases[file]
    problems = [
        f"{case.get('name')}\n{problem.text}"
        for case in cases[file]
        for problem in (*case.iter("failure"), *case.iter("error"))
    ]
    assert not problems, "\n\n".join(problems)


def test_this_process_has_no_such_device(cases):
    import torch

    with pytest.raises(RuntimeError, match="device type at start of device string: pretend"):
        torch.device("pretend")
    assert not hasattr(torch, "pretend")
