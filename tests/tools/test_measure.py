"""`course measure`: rows are kept one by one, and a file holds rows of one machine alone."""

import json

import pytest
import torch

from course_tools.measure import command
from course_tools.measure.row import Impossible, Row
from course_tools.measure.scale import LARGE, SMALL
from course_utils.errors import CourseError

CPU = torch.device("cpu")


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """A function that measures two made-up rows, and the list of what was measured."""
    done = []
    values = {"first": {"ms": 1.23456}, "second": {"ms": 2.0}}

    def make_row(name):
        def measure(device):
            done.append(name)
            if isinstance(values[name], BaseException):
                raise values[name]
            return values[name]

        return Row("table", {"name": name}, measure)

    monkeypatch.setattr(command, "list_rows", lambda scale: [make_row(name) for name in values])

    def run(minutes=5.0, **options):
        return command.measure(CPU, tmp_path, minutes, say=lambda line: None, **options)

    run.done, run.values = done, values
    return run


def read_names(path):
    return [row["settings"]["name"] for row in json.loads(path.read_text())["rows"]]


def test_a_second_call_measures_what_is_missing(measured):
    path, rows, left = measured()
    assert (path.name, left, measured.done) == ("measured_cpu.json", 0, ["first", "second"])
    assert rows[0]["ms"] == 1.235
    assert read_names(path) == measured.done
    assert measured()[1] == rows
    assert measured.done == ["first", "second"]
    measured(force=True)
    assert measured.done == ["first", "second"] * 2


def test_rows_before_an_interruption_are_kept(measured):
    measured.values["second"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        measured()
    measured.values["second"] = {"ms": 2.0}
    path, _, _ = measured()
    assert measured.done == ["first", "second", "second"]
    assert read_names(path) == ["first", "second"]


def test_no_row_is_started_after_the_time(measured, monkeypatch):
    monkeypatch.setattr(command.time, "monotonic", iter([0.0, 59.0, 61.0]).__next__)
    _, rows, left = measured(minutes=1)
    assert ([row["settings"]["name"] for row in rows], left) == (["first"], 1)


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (Impossible("no such unit here"), "no such unit here"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried …"), "out of memory"),
        (RuntimeError("no compiler\nmore"), "RuntimeError: no compiler"),
    ],
)
def test_a_row_that_fails_says_why_and_the_next_is_measured(measured, error, problem):
    measured.values["first"] = error
    _, rows, _ = measured()
    assert rows[0]["problem"] == problem
    assert rows[1]["ms"] == 2.0


def test_rows_of_other_versions_are_not_mixed(measured, monkeypatch):
    path, _, _ = measured()
    before = path.read_text()
    monkeypatch.setattr(command, "read_versions", lambda: {"torch": "0.1"})
    with pytest.raises(CourseError, match="other versions: add --force to measure all"):
        measured()
    assert path.read_text() == before
    measured(force=True)
    assert json.loads(path.read_text())["about"]["versions"] == {"torch": "0.1"}


def test_a_device_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command.find_device("auto") == CPU
    with pytest.raises(CourseError, match="finds no GPU: see `course doctor`, or take cpu"):
        command.find_device("cuda")
    with pytest.raises(CourseError, match="--device tpu: measure cpu or cuda"):
        command.find_device("tpu")


@pytest.mark.parametrize("scale", [SMALL, LARGE], ids=lambda scale: scale.name)
def test_no_two_rows_are_of_the_same_settings(scale):
    keys = [(row.table, json.dumps(row.settings)) for row in command.list_rows(scale)]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("table", ["copies", "optimizers", "checkpointing", "accumulation"])
def test_a_real_row_of_each_kind_is_measured_on_a_cpu(table):
    row = next(row for row in command.list_rows(SMALL) if row.table == table)
    if table == "copies":
        with pytest.raises(Impossible, match="no other device"):
            row.measure(CPU)
    else:
        assert row.measure(CPU)["ms"] > 0
