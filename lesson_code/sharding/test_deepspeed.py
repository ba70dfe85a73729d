"""DeepSpeed's stored losses and bytes, and live where it is installed or can be installed."""

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import nbformat
import numpy as np
import pytest

from course_utils.errors import CourseError
from course_utils.results import STUDIES, read_file
from lesson_code.sharding import deepspeed_extra, memory
from tests.places import ROOT


@pytest.fixture(scope="module")
def stored():
    return read_file(STUDIES / "sharding/study_deepspeed.json")


@pytest.fixture(scope="module")
def text():
    notebook = nbformat.read(ROOT / "notebooks/20_sharding.ipynb", as_version=4)
    return "\n".join(cell.source for cell in notebook.cells)


def find_gap(ways, name, other="DDP"):
    """The largest difference of a loss, over ranks and steps."""
    losses = [np.array([rank["losses"] for rank in ways[way]]) for way in (name, other)]
    return np.abs(losses[0] - losses[1]).max()


def check_ways(ways, tolerance):
    """The first three stages train as DDP does, and hold the bytes of the formula."""
    for name in ("ZeRO 1", "ZeRO 2", "ZeRO 3", "ZeRO 2, offloaded"):
        assert find_gap(ways, name) <= tolerance
    parameters = ways["DDP"][0]["weights"] // 4
    for name, ranks in ways.items():
        stage = int(name[5]) if name.startswith("ZeRO") else 0
        length = parameters if stage in (0, 3) else memory.pad(parameters, 4)
        expected = memory.held_bytes([length], stage, len(ranks))
        for rank in ranks:
            assert rank["moments"] == expected["optimizer state"]
            assert rank["copy"] == (expected["optimizer state"] // 2 if stage else 0)
    sharded = memory.held_bytes([parameters], 3, 2)["weights"]
    assert [rank["weights"] for rank in ways["ZeRO 3"]] == [sharded, sharded]


def test_the_stored_losses_and_bytes_are_those_of_the_text(stored, text):
    ways = stored["ways"]
    last_digit = np.spacing(np.float32(max(ways["DDP"][0]["losses"] + ways["DDP"][1]["losses"])))
    check_ways(ways, tolerance=last_digit)
    said = "ZeRO 1 and 2 have DDP's losses in every digit, and ZeRO 3 differs in the last one."
    assert said in text
    assert find_gap(ways, "ZeRO 1") == find_gap(ways, "ZeRO 2") == 0
    assert find_gap(ways, "ZeRO 3") > 0


def test_gradients_are_clipped_where_nothing_is_said(stored, text):
    version, _, _ = stored["deepspeed"].rpartition(".")
    said = f'without `"gradient_clipping": 0` DeepSpeed {version} clips to a norm of 1, silently'
    assert said in text
    ways = stored["ways"]
    assert find_gap(ways, "ZeRO 2, clipping unsaid", "ZeRO 2, clipped") == 0
    assert find_gap(ways, "ZeRO 2, clipped") > 0.01


def test_accumulation_by_hand_takes_twice_the_steps(stored, text):
    assert "gets a step after *each* of them, twice as many as intended" in text
    steps = {name: way["steps"] for name, way in stored["accelerate"].items()}
    assert steps == {"accumulate": stored["steps"], "by hand": 2 * stored["steps"]}
    assert stored["accelerate"]["accumulate"]["gap"] < 1e-3
    assert stored["accelerate"]["by hand"]["gap"] > 1e-2


def test_without_deepspeed_it_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(deepspeed_extra, "find_spec", lambda name: None)
    with pytest.raises(CourseError, match=r"is not installed.*'\.\[deepspeed\]'"):
        deepspeed_extra.run()


def install_apart(folder):
    """A Python that has DeepSpeed, and all else from this environment; None: it cannot be had."""
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    inside = sysconfig.get_path("purelib", "venv", {"base": str(folder)})
    Path(inside, "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    command = [python, "-m", "pip", "install", "--quiet", "--no-build-isolation"]
    done = subprocess.run(
        [*command, *project["optional-dependencies"]["deepspeed"]],
        env=os.environ | {"DS_BUILD_OPS": "0"},
        capture_output=True,
        text=True,
    )
    return None if done.returncode else python


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    if deepspeed_extra.has_deepspeed():
        return sys.executable
    found = install_apart(tmp_path_factory.mktemp("apart"))
    if found is None:
        pytest.skip("DeepSpeed is not installed, and cannot be: is there a package index?")
    return found


RUN = "import json; from lesson_code.sharding.deepspeed_extra import run; "
RUN += "json.dump(run(), open('live.json', 'w'))"


@pytest.mark.nightly
def test_live_ranks_train_as_ddp_and_hold_the_stored_bytes(python, stored, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [python, "-c", RUN], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    live = json.loads((tmp_path / "live.json").read_text())
    check_ways(live["ways"], tolerance=1e-5)
    for name, ranks in stored["ways"].items():
        for rank, other in zip(live["ways"][name], ranks, strict=True):
            assert rank | {"losses": []} == other | {"losses": []}
    assert find_gap(live["ways"], "ZeRO 2, clipped") > 0.01
    steps = {name: way["steps"] for name, way in live["accelerate"].items()}
    assert steps == {name: way["steps"] for name, way in stored["accelerate"].items()}
