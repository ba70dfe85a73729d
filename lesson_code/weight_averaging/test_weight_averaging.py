"""What lesson 13's study measures, and what the lesson says of it is what the study found."""

import nbformat
import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD

from course_tools.run.lessons import NOTEBOOKS
from course_tools.study.lesson_code import read_definitions
from course_utils.config import load_config
from course_utils.data.load import load_data
from course_utils.measure.paired import PairedDifference, paired_difference
from course_utils.study_results import read_study
from course_utils.training.fit import fit
from lesson_code.weight_averaging.averages import (
    MeasureAverages,
    measure_accuracy,
    recompute_statistics,
    share_of_step,
    update,
)

LONG, SHORT, LAST, EMA, COSINE = "long", "fine-tuning", "last weights", "EMA", "cosine"
ACCURACY = "val_accuracy"


@pytest.fixture(scope="module")
def lesson():
    """The functions and classes of the notebook, without its trainings."""
    return read_definitions("13_weight_averaging", ACCURACY=ACCURACY)


# ---- What the study measures.


def test_the_shares_of_the_study_are_those_of_the_lesson(lesson):
    for step in (1, 2, 37, 496):
        assert share_of_step("ema", step, 496) == pytest.approx(1 - lesson["rising_decay"](step))
        assert share_of_step("ema 0.9", step, 496) == pytest.approx(1.0 if step == 1 else 0.1)
    numbers, mean = np.random.default_rng(0).standard_normal(8), 0.0
    for step, number in enumerate(numbers, start=1):
        mean += share_of_step("swa", step, 8) * (number - mean)
    assert mean == pytest.approx(numbers[4:].mean())


def test_an_update_takes_a_share_and_copies_the_counter_of_batches():
    average, network = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    nn.init.constant_(network.weight, 3.0)
    network(torch.ones(4, 2))
    update(average, network, 0.25)
    torch.testing.assert_close(average.weight.data, torch.full((2,), 1.5))
    torch.testing.assert_close(average.running_mean, 0.25 * network.running_mean)
    assert average.num_batches_tracked == 1


def make_network(num_classes):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(3072, 4), nn.BatchNorm1d(4), nn.Linear(4, num_classes)
    )


@pytest.fixture(scope="module")
def trained():
    """Two epochs with different measurements, and without any."""
    config = load_config("smoke", dataset="shapes").replace(num_train=64, num_val=40, epochs=2)
    data = load_data(config.replace(batch_size=16))
    options = {"model": make_network, "save": False}

    def train(make=torch.optim.AdamW, **measured):
        callbacks = [MeasureAverages(config.replace(batch_size=16), **measured)] if measured else []
        trainer = {"callbacks": callbacks, "check_val_every_n_epoch": 2}
        optimizer = lambda named: make(named, lr=1e-2)  # noqa: E731
        return fit(config, data, make_optimizer=optimizer, trainer=trainer, **options)

    watched = train(judged="ema", other=True, thorough=True, every=2)
    return data, train(), train(judged="last", other=True), watched


def test_what_is_measured_does_not_change_the_training(trained):
    data, plain, last, watched = trained
    expected = recompute_statistics(plain.model, data)
    torch.testing.assert_close(last.model.state_dict(), expected.state_dict(), rtol=0, atol=0)
    assert last.metrics[ACCURACY] == watched.metrics["last"]
    assert last.metrics["last_old"] == watched.metrics["last_old"] == plain.metrics[ACCURACY]


def test_what_is_judged_is_validated(trained):
    data, plain, last, watched = trained
    assert watched.metrics[ACCURACY] == last.metrics["ema"]
    assert last.metrics[ACCURACY] == measure_accuracy(last.model, data)
    assert {"swa", "ema_0.9", "cooldown_2", "rise_ema"} < set(watched.metrics)


# ---- The text of the lesson against the study that it reads.
