"""What lesson 13's study measures, and what the lesson says of it is what the study found."""

import nbformat
import numpy as np
import pytest
import torch
from torch import nn

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
    data, _, last, watched = trained
    assert watched.metrics[ACCURACY] == last.metrics["ema"]
    assert last.metrics[ACCURACY] == measure_accuracy(last.model, data)
    assert {"swa", "ema_0.9", "cooldown_2", "rise_ema"} < set(watched.metrics)


# ---- The text of the lesson against the study that it reads.

BASELINES = {  # of the first figure: baseline and treated, variant and metric of each
    "old": ((LAST, "last_old"), (EMA, ACCURACY)),
    "last": ((LAST, ACCURACY), (EMA, ACCURACY)),
    "cosine": ((COSINE, ACCURACY), (EMA, ACCURACY)),
    "beside": ((COSINE, ACCURACY), (COSINE, "ema")),
}
EPOCHS = (4, 8, 12)


def read(regime, variant, metric=ACCURACY):
    """Accuracies of the seeds, in percent."""
    return 100 * read_study("weight_averaging").values(regime, variant, metric)


def judge(regime, name) -> PairedDifference:
    """What the EMA gains over a baseline, in points."""
    return paired_difference(*(read(regime, *side) for side in BASELINES[name]))


def read_along(metric, epoch):
    """The EMA's trainings from random weights after an epoch."""
    if epoch == EPOCHS[-1] and metric != "cooldown":
        return read(LONG, EMA, ACCURACY if metric == "ema" else metric)
    return read(LONG, EMA, f"{metric}_{epoch}")


def compare_along(metric, baseline) -> dict[int, PairedDifference]:
    """Their difference at each epoch, in points."""
    return {
        epoch: paired_difference(read_along(baseline, epoch), read_along(metric, epoch))
        for epoch in EPOCHS
    }


def write(found: PairedDifference, sign: str = "") -> str:
    """The mean with its interval."""
    return f"{found.mean:{sign}.1f} points ({found.low:{sign}.1f} to {found.high:{sign}.1f})"


def write_means(found: dict[int, PairedDifference]) -> str:
    """The means at the three epochs."""
    first, second, third = (f"{pair.mean:.1f}" for pair in found.values())
    return f"{first}, {second} and {third} points"


def write_sentences() -> dict[str, str]:
    """What the lesson says of the study, by a name each."""
    long, short = ({name: judge(regime, name) for name in BASELINES} for regime in (LONG, SHORT))
    lead, cooled = compare_along("ema", "last"), compare_along("ema", "cooldown")
    worse = compare_along("last_old", "last")
    texts = read_study("text").difference(
        "texts", "constant, averaged weights", "constant learning rate"
    )
    points = PairedDifference(*(100 * x for x in (texts.mean, texts.low, texts.high)), texts.n)
    old = long["old"].mean - long["last"].mean
    return {
        "lead": f"by {write_means(lead)} after 4, 8 and 12 epochs",
        "cooled": f"{write_means(cooled)} above the cooldown",
        "old": f"makes this gain look {old:.1f} points larger, {long['old'].mean:.1f}",
        "old_4": f"the last weights are {-worse[4].mean:.1f} points worse with them",
        "last": write(long["last"]),
        "cosine": write(long["cosine"], "+"),
        "beside": write(long["beside"], "+"),
        "short_last": write(short["last"], "+"),
        "short_cosine": write(short["cosine"], "+"),
        "short_beside": write(short["beside"], "+"),
        "short_old": write(short["old"], "+"),
        "texts": write(points, "+"),
    }


@pytest.fixture(scope="module")
def text():
    """All that the notebook says, in one line."""
    notebook = nbformat.read(NOTEBOOKS / "13_weight_averaging.ipynb", as_version=4)
    cells = (cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return " ".join("\n".join(cells).split()).replace("−", "-")


@pytest.mark.parametrize("name", write_sentences())
def test_the_lesson_says_what_was_measured(name, text):
    assert write_sentences()[name] in text
