"""What lesson 13's study measures, and what the lesson says of it is what the study found."""

from functools import partial

import lightning as L
import nbformat
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch import nn
from torch.nn.utils import parameters_to_vector

from course_tools.run.lessons import NOTEBOOKS
from course_tools.study.lesson_code import read_definitions
from course_utils.config import load_config
from course_utils.data.load import load_data
from course_utils.measure.paired import PairedDifference, paired_difference
from course_utils.study_results import read_study
from course_utils.training import LitClassifier, quiet_trainer
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


# ---- What the lesson says of Lightning's callback; `fit` guards against it.


class WatchWeights(L.Callback):
    """The weights (P,) of the network in each validation."""

    def __init__(self):
        self.validated = []

    def on_validation_batch_start(self, trainer, pl_module, batch, batch_idx, *_):
        if batch_idx == 0:
            self.validated.append(flatten(pl_module))


def flatten(module):
    return parameters_to_vector(module.parameters()).detach().clone()


def train_with_lightning(averaging=None):
    """Two epochs of four steps: the weights before, in each validation, and after."""
    config = load_config("smoke", dataset="shapes").replace(
        num_train=64, num_val=40, batch_size=16, epochs=2
    )
    data = load_data(config)
    L.seed_everything(0, verbose=False)
    network = make_network(data.num_classes)
    optimizer = partial(torch.optim.AdamW, lr=1e-2)
    lit = LitClassifier(network, data.num_classes, make_optimizer=optimizer)
    before, watching = flatten(lit), WatchWeights()
    used = [averaging or L.Callback(), watching]
    trainer = quiet_trainer(max_epochs=2, accelerator="cpu", callbacks=used)
    trainer.fit(lit, data.train_loader(), data.eval_loader())
    return before, watching.validated, flatten(lit)


def test_before_a_late_start_the_initial_weights_are_validated():
    before, plain, _ = train_with_lightning()
    assert not torch.equal(plain[0], before)
    _, late, after = train_with_lightning(EMAWeightAveraging(decay=0.8, update_starting_at_step=4))
    assert torch.equal(late[0], before)
    assert not torch.equal(late[1], before)
    assert torch.equal(late[1], after)


def test_a_callback_that_is_used_twice_returns_the_initial_weights():
    averaging = EMAWeightAveraging(decay=0.8)
    before, _, first = train_with_lightning(averaging)
    assert not torch.equal(first, before)
    _, validated, second = train_with_lightning(averaging)
    assert torch.equal(second, before)
    assert torch.equal(validated[-1], before)


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
    ema, last = read_search(SHORT, EMA), read_search(SHORT, EMA, "last")
    return {
        "lead": f"by {write_means(lead)} after 4, 8 and 12 epochs",
        "cooled": f"{write_means(cooled)} above the cooldown, which is equivalent after 4 epochs",
        "old": (
            f"the last weights are {-worse[12].mean:.1f} points worse after 12 epochs, so the gain "
            f"would look like {long['old'].mean:.1f} instead of {long['last'].mean:.1f} points"
        ),
        "last": write(long["last"]),
        "cosine": write(long["cosine"], "+"),
        "beside": write(long["beside"], "+"),
        "short_last": write(short["last"], "+"),
        "short_cosine": write(short["cosine"], "+"),
        "verdict": (
            f"From random weights at a constant learning rate an EMA was {long['last'].mean:.1f} "
            f"points better than the last weights and {long['cosine'].mean:.1f} better than a "
            "cosine"
        ),
        "texts": write(points, "+"),
        "short_decay": (
            "the cosine *hurts*, by "
            f"{write(paired_difference(read(SHORT, LAST), read(SHORT, COSINE)), '+')} against"
        ),
        "statistics": (
            f"bring the last weights {write(gain(LONG, 'last', 'last_old'))} from random weights "
            f"and {write(gain(SHORT, 'last', 'last_old'))} in fine-tuning"
        ),
        "statistics_ema": (
            f"the EMA loses {write(gain(LONG, ACCURACY, 'ema_last_statistics'))} if it has those "
            "of the last weights. With averaged ones it loses "
            f"{write(gain(LONG, ACCURACY, 'ema_averaged_statistics'))}, which is equivalent"
        ),
        "decay": (
            f"From random weights the rising decay is {gain(LONG, ACCURACY, 'ema_0.9').mean:.1f} "
            f"points ahead of 0.9 and {gain(LONG, ACCURACY, 'swa').mean:.1f} ahead of the mean of "
            "the second half, which is equivalent, whereas 0.999 reaches only "
            f"{read(LONG, EMA, 'ema_0.999').mean():.0f} %"
        ),
        "decay_short": f"and {read(SHORT, EMA, 'ema_0.999').mean():.0f} % in fine-tuning",
        "search_ema": (
            f"the EMA was {ema[0.0032] - last[0.0032]:.1f} points ahead at 0.0032 and "
            f"{ema[0.0008] - last[0.0008]:.1f} at 0.0008"
        ),
    }


def gain(regime, better, worse) -> PairedDifference:
    """By how much the EMA's trainings are better in one metric than in another, in points."""
    return paired_difference(read(regime, EMA, worse), read(regime, EMA, better))


def read_search(regime, variant, metric=ACCURACY) -> dict[float, float]:
    """Accuracies of the search's one seed, in percent, by learning rate."""
    study = read_study("weight_averaging")
    (seed,) = study.search_seeds
    return {
        float(training.trial.removeprefix("lr ")): 100 * training.read_metric(metric)
        for training in study.trainings
        if (training.regime, training.variant, training.seed) == (regime, variant, seed)
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


def test_the_verdicts_are_those_that_the_lesson_names(text):
    verdicts = {
        (regime, name): judge(regime, name).verdict(margin=1)
        for regime in (LONG, SHORT)
        for name in BASELINES
    }
    assert verdicts[LONG, "last"] == verdicts[LONG, "cosine"] == "helps"
    assert verdicts[LONG, "beside"] == verdicts[SHORT, "beside"] == "equivalent"
    assert verdicts[SHORT, "last"] == verdicts[SHORT, "cosine"] == "inconclusive"
    assert judge(SHORT, "last").mean < 0 < judge(SHORT, "cosine").mean
    short_decay = paired_difference(read(SHORT, LAST), read(SHORT, COSINE))
    assert short_decay.verdict(margin=1) == "hurts"
    long_decay = paired_difference(read(LONG, LAST), read(LONG, COSINE))
    assert long_decay.verdict(margin=1) == "helps"  # so the EMA helped where a decay did
    for average in (ACCURACY, "swa"):  # at the constant learning rate the sign stays open
        assert gain(SHORT, average, "last").verdict(margin=1) == "inconclusive"
    cooled = [found.verdict(margin=1) for found in compare_along("ema", "cooldown").values()]
    assert cooled == ["equivalent", "helps", "helps"]
    texts = read_study("text")
    for averaged in ("constant, averaged weights", "constant learning rate"):
        assert texts.difference("texts", averaged).verdict(margin=0.01) == "equivalent"
    assert "helps" in text


def test_what_is_said_of_statistics_and_decays():
    ema, last = read(LONG, EMA), read(LONG, EMA, "ema_last_statistics")
    assert paired_difference(ema, last).verdict(margin=1) == "hurts"
    averaged = paired_difference(ema, read(LONG, EMA, "ema_averaged_statistics"))
    assert averaged.verdict(margin=1) == "equivalent"
    assert gain(LONG, ACCURACY, "ema_0.9").verdict(margin=1) == "helps"
    assert gain(LONG, ACCURACY, "swa").verdict(margin=1) == "equivalent"
    for regime in (LONG, SHORT):  # only 0.999 fails
        assert gain(regime, "last", "ema_0.999").low > 5
        for metric in (ACCURACY, "swa", "ema_0.9"):
            assert gain(regime, metric, "last").verdict(margin=1) != "hurts"
    for metric in ("ema_last_statistics", "ema_averaged_statistics", "swa", "ema_0.9"):
        short = paired_difference(read(SHORT, EMA), read(SHORT, EMA, metric))
        assert short.verdict(margin=1) == "equivalent"


def test_the_trainings_have_as_many_steps_as_the_lesson_says(text):
    configs = {name: found.config for name, found in read_study("weight_averaging").regimes.items()}
    long, short = (
        found.num_train // found.batch_size * found.epochs
        for found in (configs[LONG], configs[SHORT])
    )
    assert f"from random weights has {long} steps and the fine-tuning {short}" in text


def test_no_flatter_minimum_is_shown():
    study = read_study("weight_averaging")
    last, ema = (
        {regime: study.values(regime, EMA, f"rise_{name}") for regime in (LONG, SHORT)}
        for name in ("last", "ema")
    )
    assert (
        paired_difference(last[LONG], ema[LONG]).low
        < 0
        < paired_difference(last[LONG], ema[LONG]).high
    )
    assert paired_difference(last[SHORT], ema[SHORT]).low > 0


def test_both_were_best_at_the_same_learning_rate_and_none_at_an_edge():
    study = read_study("weight_averaging")
    lrs = {
        regime: [float(study.best[regime][x].removeprefix("lr ")) for x in (LAST, EMA, COSINE)]
        for regime in (LONG, SHORT)
    }
    parameters = (
        nbformat.read(NOTEBOOKS / "13_weight_averaging.ipynb", as_version=4).cells[5].source
    )
    assert "\nLR = 0.0008 " in parameters
    assert "\nCOSINE_LR = 0.0016 " in parameters
    assert lrs == {LONG: [0.002, 0.002, 0.004], SHORT: [0.0008, 0.0008, 0.0016]}
    for regime, best in lrs.items():
        for variant, lr in zip((LAST, EMA, COSINE), best, strict=True):
            found = read_search(regime, variant)
            assert len(found) == 4
            assert max(found, key=found.get) == lr
            assert min(found) < lr < max(found)
