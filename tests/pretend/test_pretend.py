"""Runs the tests on the pretend device, which are in ``on_*.py``, in a process of their own.

A process cannot forget the device, see `tests.pretend.device`. All files that are asked for run in
one process, once. One of them alone::

    python -m pytest tests/pretend/on_cards.py -k 05_mixup
"""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.places import ROOT

FILES = {path.stem: path for path in sorted(Path(__file__).parent.glob("on_*.py"))}
TIME_LIMIT_S = 900  # a guard against a hang


def is_of_file(item):
    return getattr(item, "originalname", "") == "test_all_passes_on_the_pretend_device"


@pytest.fixture(scope="module")
def since(pytestconfig):
    """The revision whose unchanged tests are left out; empty: none is."""
    return pytestconfig.getoption("since")


@pytest.fixture(scope="module")
def cases(request, tmp_path_factory, since):
    """For each file that is asked for its test cases, as elements of JUnit's XML."""
    names = {item.callspec.params["file"] for item in request.session.items if is_of_file(item)}
    report = tmp_path_factory.mktemp("pretend") / "report.xml"
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider"]
    command += ["--since", since] if since else []
    done = subprocess.run(
        [*command, f"--junitxml={report}", *(str(FILES[name]) for name in sorted(names))],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
    )
    assert report.exists(), done.stdout + done.stderr
    found = {name: [] for name in names}
    for case in ElementTree.parse(report).iter("testcase"):
        found[case.get("classname").rpartition(".")[2] or case.get("name")].append(case)
    return found


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(name, marks=[pytest.mark.lesson_changed] if name == "on_cards" else [])
        for name in FILES
    ],
)
def test_all_passes_on_the_pretend_device(file, cases, since):
    assert cases[file] or since
    problems = [
        f"{case.get('name')}\n{problem.text}"
        for case in cases[file]
        for problem in (*case.iter("failure"), *case.iter("error"))
    ]
    assert not problems, "\n\n".join(problems)


def test_this_process_has_no_such_device():
    import torch

    with pytest.raises(RuntimeError, match="device type at start of device string: pretend"):
        torch.device("pretend")
    assert not hasattr(torch, "pretend")
