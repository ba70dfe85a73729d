"""Lesson 91: its recipe takes part in a race, and its text says what its study found."""

import time

import nbformat
import pytest

from course_tools.race.budget import Budget
from course_tools.race.train import classify, train_recipe
from course_tools.run.lessons import NOTEBOOKS
from course_utils.config import load_config
from course_utils.data import load_data
from course_utils.study_results import read_study

RANDOM, TUNED = "from random weights", "fine-tuning"


@pytest.fixture(scope="module")
def cells():
    notebook = nbformat.read(NOTEBOOKS / "91_project.ipynb", as_version=4)
    return {cell.id: cell.source for cell in notebook.cells}


def test_the_recipe_takes_part(tmp_path, cells):
    """Its cell is a file as it stands."""
    config = load_config("smoke", dataset="shapes", first_seed=0)
    config = config.replace(num_train=64, num_val=40, batch_size=16, progress=False)
    (tmp_path / "recipe.py").write_text(cells["recipe"], encoding="utf-8")
    data = load_data(config)
    budget = Budget(600, steps=2)
    model = train_recipe(tmp_path / "recipe.py", config, data, 0, budget, time.monotonic())
    assert classify(model, data, data.val.images).shape == (40,)


def say(found):
    return f"{100 * found.mean:+.1f} points ({100 * found.low:+.1f} to {100 * found.high:+.1f})"
