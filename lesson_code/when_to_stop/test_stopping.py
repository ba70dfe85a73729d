"""What lesson 18's study follows is what the lesson calls early stopping."""

import copy
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from course_tools.study.lesson_code import read_definitions
from course_utils.data.load import load_data
from course_utils.training.fit import fit
from lesson_code.when_to_stop import stopping
from lesson_code.when_to_stop.stopping import PATIENCES, FollowStopping, measure_texts
from lesson_code.when_to_stop.study import DEFINITIONS, STUDY

FIND_STOP = read_definitions("18_when_to_stop")["find_stop"]
LOSSES = [3.0, 2.0, 1.5, 1.6, 1.5, 1.7, 1.8, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0, 2.1, 2.2]
ACCURACIES = [0.1, 0.3, 0.5, 0.5, 0.6, 0.4, 0.5, 0.55, 0.6, 0.6, 0.61, *7 * [0.2]]


def follow(monkeypatch):
    """A callback after planted checks; the fresh loss of weights is the number of their check."""
    found, network = FollowStopping(DEFINITIONS, follow=True), nn.Linear(1, 1)
    found.network, found.probe = network, copy.deepcopy(network)
    found.data, found.fresh = SimpleNamespace(val="validation"), "fresh"
    found.checks, found.best, found.ended, found.judged = [], {}, {}, {}

    def measure(judged, texts):
        number = int(judged.weight.item())
        if texts == "fresh":
            return {"loss": float(number), "accuracy": number / 100}
        return {"loss": LOSSES[number - 1], "accuracy": ACCURACIES[number - 1]}

    monkeypatch.setattr(stopping, "measure_texts", measure)
    for number in range(1, len(LOSSES) + 1):
        nn.init.constant_(network.weight, number)
        found._check()
    found._log_rules()
    return found


def test_a_rule_ends_and_restores_as_the_lesson_says(monkeypatch):
    logged = follow(monkeypatch).logged
    for name, patience in PATIENCES.items():
        for score, values in (("loss", [-x for x in LOSSES]), ("accuracy", ACCURACIES)):
            rule = f"by_{score}_{name}"
            end, best = FIND_STOP(values, patience)
            assert (logged[f"{rule}_checks"], logged[f"{rule}_restored"]) == (end, best)
            assert logged[f"{rule}_fresh_loss"] == best, "it is the best weights that are judged"
    assert logged["by_loss_3_checks"] == 6
    assert logged["by_loss_5_restored"] == 8
    assert [logged[f"check_{n}_fresh_loss"] for n in (10,)] == [10]


@pytest.fixture(scope="module")
def config():
    return DEFINITIONS.replace(num_train=64 + stopping.NUM_FRESH, num_val=40, epochs=6)


def train(config, lr=1e-3, **followed):
    data = load_data(config).take_train(64)
    callbacks = FollowStopping(config, **followed) if followed else []
    trainer = {"callbacks": callbacks, "check_val_every_n_epoch": config.epochs}
    optimizer = partial(AdamW, lr=lr)
    return fit(config, data, make_optimizer=optimizer, pretrained=True, trainer=trainer, save=False)


@pytest.fixture(scope="module")
def followed(config):
    return train(config, follow=True)


def test_what_follows_a_training_does_not_change_it(config, followed):
    plain = train(config)
    torch.testing.assert_close(
        followed.model.state_dict(), plain.model.state_dict(), rtol=0, atol=0
    )
    assert plain.metrics["val_accuracy"] == followed.metrics["val_accuracy"]


def test_a_check_measures_what_validation_does(config, followed):
    data = load_data(config)
    for name in ("loss", "accuracy"):
        last = followed.metrics[f"check_4_{name}"]
        assert last == pytest.approx(followed.metrics[f"val_{name}"], abs=1e-5)
    fresh = measure_texts(followed.model, stopping.take_fresh(data))
    assert fresh == pytest.approx(
        {name: followed.metrics[f"fresh_{name}"] for name in ("loss", "accuracy")}, abs=1e-5
    )
    assert followed.metrics["checks"] == 4


def test_fresh_definitions_neither_train_nor_choose():
    data = load_data(DEFINITIONS)
    fresh = {tuple(tokens) for tokens in stopping.take_fresh(data).tokens}
    for regime in STUDY.regimes.values():
        trained = {tuple(tokens) for tokens in data.take_train(regime.few).train.tokens}
        assert len(trained & fresh) <= 2  # two entries may have the same words
    most = max(regime.few for regime in STUDY.regimes.values())
    assert most + stopping.NUM_FRESH == DEFINITIONS.num_train
    assert len(fresh & {tuple(tokens) for tokens in data.val.tokens}) <= 2


def test_a_stopped_training_ends_early_and_returns_its_best_weights(config):
    lr = 0.05  # so high that the loss soon rises
    whole = train(config.replace(epochs=18), lr=lr, follow=True)
    ended = train(config.replace(epochs=18), lr=lr, returned="loss", patience="3")
    assert ended.metrics["checks"] == whole.metrics["by_loss_3_checks"] < 12
    assert ended.metrics["restored"] == whole.metrics["by_loss_3_restored"]
    assert ended.metrics["val_loss"] == pytest.approx(
        whole.metrics[f"check_{ended.metrics['restored']:.0f}_loss"], abs=1e-5
    )
    assert ended.metrics["fresh_accuracy"] == whole.metrics["by_loss_3_fresh_accuracy"]


def test_an_average_is_returned(config, followed):
    averaged = train(config, returned="ema")
    assert averaged.metrics["val_loss"] != pytest.approx(followed.metrics["val_loss"], abs=1e-4)
    other = averaged.model.state_dict()
    assert not all(torch.equal(x, other[name]) for name, x in followed.model.state_dict().items())
