"""The recipe with which lesson 91 begins takes part in a race."""

import time

import nbformat

from course_tools.race.budget import Budget
from course_tools.race.train import classify, train_recipe
from course_utils.config import load_config
from course_utils.data import load_data
from tests.places import ROOT


def test_the_recipe_of_91_project_takes_part(tmp_path):
    """Its cell is a file as it stands."""
    config = load_config("smoke", dataset="shapes", first_seed=0)
    config = config.replace(num_train=64, num_val=40, batch_size=16, progress=False)
    notebook = nbformat.read(ROOT / "notebooks" / "91_project.ipynb", as_version=4)
    (cell,) = [cell for cell in notebook.cells if cell.id == "recipe"]
    (tmp_path / "recipe.py").write_text(cell.source, encoding="utf-8")
    data = load_data(config)
    budget = Budget(600, steps=2)
    model = train_recipe(tmp_path / "recipe.py", config, data, 0, budget, time.monotonic())
    assert classify(model, data, data.val.images).shape == (40,)
