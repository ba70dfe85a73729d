"""Profiling: a step is measured, and not changed."""

import contextlib
import io
import json
import tempfile
from pathlib import Path
from unittest import mock

import torch
from torch.profiler import record_function

NOT_COMBINED = "it measures a training and changes nothing of it"

PARTS = ("load", "forward", "backward", "update")


def count_rows(profiled):
    return {row.key: row.count for row in profiled.key_averages()}


def check_pytorch_card(card):
    """Each part of the card's own step was seen ten times; warm-up steps run and do not count."""
    rows = count_rows(card["profiled"])
    assert [rows.get(name) for name in PARTS] == [10] * 4, "ten steps are profiled"
    steps = {int(state["step"]) for state in card["adam"].state.values()}
    assert steps == {13}, "three steps come before, to warm up"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        card["profiled"].export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    traced = sum(event.get("name") == "forward" for event in events)
    assert traced == 10, "the trace has all profiled steps"  # and not those of a cycle after them
    calls = []

    def step():
        with record_function("mine"):
            calls.append(torch.ones(1024, 1024) @ torch.ones(1024, 1024))

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        profiled = card["profile_steps"](step, count=4, warm_up=2, lines=5)
    assert len(calls) == 6
    rows = count_rows(profiled)
    assert rows["mine"] == 4
    assert rows["aten::mm"] == 4
    lines = printed.getvalue().splitlines()
    assert any("aten::mm" in line for line in lines), "the table is printed"
    places = [n for n, line in enumerate(lines) if set(line) <= {"-", " "} and line]
    assert places[2] - places[1] - 1 == 5, "with as many lines as were asked for"
    assert any("aten::mm" in line for line in lines[places[1] : places[1] + 3]), "by self time"
    assert any(line.endswith("ms per step  mine") for line in lines), "and the reader's own parts"


def check_lightning_card(card):
    """Means of what runs in each step, without the first calls; the device is waited for."""
    trainer = card["trainer"]
    assert trainer.global_step == 13
    found = trainer.profiler.list_means()
    assert list(found.values()) == sorted(found.values(), reverse=True)
    for part in ("training_step", "backward", "optimizer_step", "train_dataloader_next"):
        assert any(name.endswith(part) for name in found), part
    profiler = card["StepProfiler"]()
    durations = {"a": [9.0, 9.0, 9.0, 1.0, 1.0, 4.0], "b": [5.0] * 4, "c": [1.0]}
    profiler.recorded_durations.update(durations)
    assert profiler.list_means() == {"b": 5000.0, "a": 2000.0}
    assert profiler.list_means(warm_up=0)["a"] == 5500.0
    with mock.patch.dict(card, {"wait": mock.Mock()}):
        profiler.start("part")
        assert card["wait"].call_count == 1
        profiler.stop("part")
        assert card["wait"].call_count == 2
    assert len(profiler.recorded_durations["part"]) == 1
