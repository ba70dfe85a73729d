import json
import math

import numpy as np
import pytest

from benchmarks import course_cost
from course_utils.files import write_atomically
from course_utils.measure.provenance import describe_hardware
from course_utils.results import read_results
from course_utils.tools.report import keep
from tests.tools.report.test_report import make_course

MACHINE = {"cpu": "a processor", "cores": 2, "gpu": None}
LESSONS = [
    {"name": "01_a", "time_s": 30.0, "peak_memory_bytes": 10**9},
    {"name": "02_b", "time_s": 60.0, "peak_memory_bytes": 2 * 10**9},
]


def make_trainings(noise):
    sizes = [(images, epochs) for images in (100, 200, 400) for epochs in (1, 2)]
    return [
        {"images": images, "epochs": epochs, "time_s": 0.5 + 0.002 * images * epochs + off}
        for (images, epochs), off in zip(sizes, noise, strict=True)
    ]


def test_times_on_a_line_give_that_line():
    line = course_cost.fit_line(make_trainings(np.zeros(6)))
    assert line["a_s"] == pytest.approx(0.5)
    assert line["b_s"] == pytest.approx(0.002)
    assert line["residual_max_s"] < 1e-9


def test_what_is_off_the_line_is_said():
    noise = np.array([1, -1, 1, -1, 1, -1]) * 0.1
    line = course_cost.fit_line(make_trainings(noise))
    assert 0.1 < line["residual_std_s"] < 0.1 * math.sqrt(6 / 4)  # less what the line took up
    assert 0.1 < line["residual_max_s"] < 0.2


def test_the_table_has_the_machine_minutes_megabytes_and_a_sum():
    block = {"hardware": MACHINE, "lessons": LESSONS}
    lines = course_cost.format_costs("where", block).splitlines()
    assert lines[0] == "measured on a processor, 2 cores"
    assert lines[1].split() == ["where", "minutes", "peak", "(MB)"]
    assert lines[2].split() == ["01_a", "0.50", "1,000"]
    assert lines[-1].split() == ["all", "1.50", "2,000"]
    empty = course_cost.format_costs("where", block | {"lessons": []})
    assert empty.splitlines()[-1].split() == ["all", "0.00", "0"]


def test_each_block_of_costs_has_the_machine_it_was_measured_on(tmp_path, monkeypatch):
    course = make_course() | {"hardware": MACHINE}
    write_atomically(tmp_path / course_cost.LAST_RUN, json.dumps(course))
    monkeypatch.setattr(course_cost, "ROOT", tmp_path)
    costs = course_cost.read_costs()
    assert costs[course_cost.LAST_RUN]["hardware"] == MACHINE
    assert costs[course_cost.LAST_RUN]["lessons"][0] == {
        "name": "01_a",
        "time_s": 12.3,
        "peak_memory_bytes": 10**9,
    }
    for name in course_cost.list_results():
        assert costs[name]["hardware"] == read_results(name)["hardware"] != MACHINE


def test_a_run_of_an_older_version_is_said_before_anything_is_trained(tmp_path, monkeypatch):
    course = make_course()
    del course["lessons"][0]["peak_memory_bytes"]
    write_atomically(tmp_path / course_cost.LAST_RUN, json.dumps(course))
    monkeypatch.setattr(course_cost, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=r"01_a: no 'peak_memory_bytes'\): run course run --force"):
        course_cost.main()


def test_costs_are_printed_and_kept_apart_from_results(tmp_path, monkeypatch, capsys):
    costs = {"where": {"hardware": MACHINE, "lessons": LESSONS}}
    monkeypatch.setattr(course_cost, "IMAGES", (64, 96))
    monkeypatch.setattr(course_cost, "EPOCHS", (1, 2))
    monkeypatch.setattr(keep, "RESULTS", tmp_path)
    monkeypatch.setattr(course_cost, "read_costs", lambda: costs)
    course_cost.main(seeds=1, tests=False, save="course_cost")
    out = capsys.readouterr().out
    assert "02_b" in out
    assert "measured on a processor, 2 cores" in out
    assert "for each of 4 trainings of 64 to 96 images, 1 to 2 epochs, 1 seeds" in out
    kept = json.loads((tmp_path / "course_cost.json").read_text())
    assert kept["costs"] == costs
    assert kept["growth"]["hardware"] == describe_hardware()
    assert set(kept["growth"]["line"]) == {"a_s", "b_s", "residual_std_s", "residual_max_s"}
    assert len(kept["growth"]["trainings"]) == 4
    assert kept["tests"] is None
    assert kept["command"] == "benchmarks/course_cost.py --seeds 1 --save course_cost"
    assert course_cost.list_results(tmp_path) == []
