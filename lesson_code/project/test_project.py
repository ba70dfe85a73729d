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
from lesson_code.project.study import FINE_TUNING, in_fine_tuning

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


def test_the_text_says_what_the_study_found(cells):
    study = read_study("project")

    def worth(part):
        return study.difference(RANDOM, "recipe", f"without {part}")

    whole = study.difference(RANDOM, "recipe", "baseline")
    schedule, augmentation, smoothing = map(worth, ("schedule", "augmentation", "smoothing"))
    words = [x.verdict(margin=study.margin) for x in (whole, schedule, augmentation, smoothing)]
    assert words == ["helps", "helps", "helps", "equivalent"]
    assert schedule.mean > augmentation.mean
    assert schedule.mean + augmentation.mean + smoothing.mean > whole.mean
    first = cells["first-read"]
    assert f"better than the baseline by {say(whole)}" in first
    assert (
        f"recipe loses {say(schedule)[1:]}, and without augmentation {say(augmentation)[1:]}."
        in first
    )
    assert f"Label smoothing is worth {say(smoothing)}: the recipe is *equivalent*" in first
    alone = [
        study.difference(RANDOM, f"without {x}", "baseline") for x in ("schedule", "augmentation")
    ]
    assert max(x.high for x in alone) < whole.mean
    assert min(x.high for x in alone) > 0, "one of them hurts: say so"
    without = "schedule lies at {} from the baseline, and the recipe without augmentation at {}."
    assert without.format(*map(say, alone)) in cells["ablation-sum"]
    verdict = cells["verdict-read"]
    for found in (whole, schedule, augmentation, smoothing):
        assert say(found) in verdict
    order = study.difference(RANDOM, "without schedule", "without augmentation")
    assert order.verdict(margin=study.margin) == "inconclusive"
    assert f"without it the recipe is at {say(order)} from the recipe without augm" in verdict
    assert study.best[RANDOM]["without augmentation"] == "lr 0.004"  # the highest: a limit
    assert (
        f'"make_optimizer": partial(AdamW, lr={study.best[RANDOM]["recipe"][3:]})'
        in cells["recipe"]
    )


def test_the_text_says_how_one_seed_chose_a_bad_rate(cells):
    found = {}
    for row in read_study("project").trainings:
        if (row.regime, row.variant) == (RANDOM, "baseline"):
            found[row.trial, row.seed] = row.read_metric("val_accuracy")
    assert abs(found["lr 0.0005", 100] - found["lr 0.001", 100]) < 0.002
    gaps = [found["lr 0.001", seed] - found["lr 0.0005", seed] for seed in range(10)]
    assert (
        f"on ten it had {100 * sum(gaps) / 10:.1f} points less at 0.0005" in cells["verdict-read"]
    )


def test_the_answer_of_the_experiment_is_that_of_the_second_recipe(cells):
    study = read_study("project")
    schedule = study.difference(TUNED, "recipe", "without schedule")
    whole = study.difference(TUNED, "recipe", "baseline")
    assert whole.verdict(margin=study.margin) == "equivalent"
    given = in_fine_tuning["recipe"]
    smoothing = given["loss"].keywords["label_smoothing"]
    assert f'"loss": partial(F.cross_entropy, label_smoothing={smoothing})' in cells["exercises"]
    assert given["make_optimizer"].keywords["lr"] == 3 * FINE_TUNING.peak_lr
    assert {*given} - {*in_fine_tuning["without schedule"]} == {"make_schedule"}
    answer = cells["minutes-md"]
    assert f"the cosine is worth {say(schedule)} over ten seeds" in answer
    assert f"equivalent to plain fine-tuning all the same ({say(whole)})" in answer
