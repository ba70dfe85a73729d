"""Lesson 90: its measurements, by hand; and the curves that it draws first, against its scripts."""

import ast
import math
from types import SimpleNamespace

import nbformat
import pytest
import torch
from torch import nn

from course_utils.results import STUDIES, read_file
from lesson_code.find_the_bug.checks import read_script
from tests.places import ROOT


@pytest.fixture(scope="module")
def cells():
    notebook = nbformat.read(ROOT / "notebooks" / "90_find_the_bug.ipynb", as_version=4)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.fixture(scope="module")
def lesson(cells):
    """The functions of the notebook, without its trainings; four photographs of two pixels."""
    namespace: dict = {"SETTINGS": ()}
    exec(next(c.source for c in cells if "imports" in c.metadata.get("tags", [])), namespace)
    functions = [
        node
        for cell in cells
        for node in ast.parse(cell.source).body
        if isinstance(node, ast.FunctionDef)
    ]
    exec(compile(ast.Module(functions, type_ignores=[]), "90_find_the_bug", "exec"), namespace)
    images = torch.arange(8.0).view(4, 2)
    namespace["images"] = images
    namespace["numbers"] = {image.numpy().tobytes(): n for n, image in enumerate(images)}
    return namespace


def test_data_measurements_count_photographs(lesson):
    images = lesson["images"]
    notes = SimpleNamespace(
        trained=[images[[0, 2]], images[[2, 1]]],
        validated=[images[[1, 3]]],
        targets=[torch.tensor([5, 7]), torch.tensor([7, 0])],
        classes=torch.tensor([5, 6, 7, 8]),
        available=4,
    )
    assert lesson["number_of"](notes.trained) == [0, 2, 2, 1]
    assert lesson["coverage"](notes) == 3 / 4
    assert lesson["target_agreement"](notes) == 3 / 4  # the last one is of class 6
    assert lesson["overlap"](notes) == 1
    notes.validated = [images[[3]]]
    assert lesson["overlap"](notes) == 0


def test_measurements_of_losses_and_learning_rates(lesson):
    notes = SimpleNamespace(losses=[2.0] * 10 + [1.0] * 10, lrs=[0.1, 0.2])
    assert lesson["first_loss"](notes) == 2
    assert lesson["loss_ratio"](notes) == 0.5
    assert lesson["last_learning_rate"](notes) == 0.2
    notes.lrs = []
    assert math.isnan(lesson["last_learning_rate"](notes))


def test_only_frozen_parts_count_as_moved(lesson):
    model = nn.Sequential(nn.BatchNorm1d(2).requires_grad_(False), nn.BatchNorm1d(2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    notes = SimpleNamespace(model=model, before=before)
    model.eval()(torch.randn(4, 2))
    assert lesson["changed_entries"](notes) == 0
    model.train()(torch.randn(4, 2))
    assert lesson["changed_entries"](notes) == 3  # running mean, variance, and the batches' number
    notes.model = None  # a search that makes its own models
    assert lesson["changed_entries"](notes) == 0


def test_watch_notes_each_batch_once_and_ends(lesson):
    functional = lesson["F"]
    plain = functional.cross_entropy
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 3)))
    with lesson["watch"](model) as notes:
        functional.cross_entropy(model(lesson["images"]), torch.tensor([0, 1, 2, 0])).backward()
        with torch.no_grad():
            model(lesson["images"][:1])
    assert [len(batch) for batch in notes.trained] == [4]
    assert [len(batch) for batch in notes.validated] == [1]
    assert len(notes.losses) == len(notes.targets) == 1
    assert functional.cross_entropy is plain
    model(lesson["images"])
    assert len(notes.trained) == 1


def test_stored_curves_are_those_of_the_ten_scripts(cells):
    stored = read_file(STUDIES / "find_the_bug/study.json")
    (source,) = [cell.source for cell in cells if "\ncurves = {}" in cell.source]
    pairs = next(node for node in ast.parse(source).body if isinstance(node, ast.Assign))
    assert list(stored["curves"]) == [ast.literal_eval(key) for key in pairs.value.keys]
    assert len(stored["curves"]) == 10
    for name, runs in stored["curves"].items():
        assert len(runs) == len(stored["seeds"]), name
        for faulty, corrected in runs:
            assert [len(curve) for curve in faulty] == [len(curve) for curve in corrected], name
            assert bool(faulty[0]) == (name not in ("2 Ben", "10 Jun"))


def test_the_long_script_is_as_long_as_the_issue_says():
    assert 70 <= len(read_script().splitlines()) <= 80
