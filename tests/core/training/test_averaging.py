"""Weight averaging in `fit`: what is validated and returned before and after an average begins."""

import pytest
import torch
from lightning.pytorch.callbacks import (
    Callback,
    EMAWeightAveraging,
    StochasticWeightAveraging,
    WeightAveraging,
)
from torch.nn.utils import parameters_to_vector

from course_utils.errors import CourseError
from course_utils.training.fit import fit


class FromEpoch(WeightAveraging):
    """The running mean of the weights at the end of each epoch from ``first`` (0: the first)."""

    def __init__(self, first):
        super().__init__()
        self.first = first

    def should_update(self, step_idx=None, epoch_idx=None):
        return epoch_idx is not None and epoch_idx >= self.first


def weights(run):
    return parameters_to_vector(run.model.parameters()).detach()


@pytest.fixture
def train(tiny_config, tiny_data):
    config = tiny_config.replace(epochs=3)
    return lambda callbacks: fit(config, tiny_data, trainer={"callbacks": callbacks})


def test_before_a_late_start_the_current_weights_are_validated(train):
    plain, late = train([]), train(FromEpoch(2))
    assert late.history[:2] == plain.history[:2]
    # The validation of an epoch comes before its end: the first average is validated one later.
    assert torch.equal(weights(late), weights(plain))


def test_a_late_average_is_that_of_its_steps(train):
    plain, early, late = train([]), train(FromEpoch(0)), train(FromEpoch(1))
    assert early.history[0] == plain.history[0]
    assert late.history[1] == plain.history[1]
    assert early.history[2] != plain.history[2]
    assert not torch.equal(weights(late), weights(plain))
    assert not torch.equal(weights(late), weights(early))


def test_an_ema_from_the_first_step_is_validated_at_once(train):
    plain, ema = train([]), train(EMAWeightAveraging(decay=0.9))
    assert all(
        one["val_loss"] != other["val_loss"]
        for one, other in zip(plain.history, ema.history, strict=True)
    )
    assert [row["train_loss"] for row in plain.history] == [
        row["train_loss"] for row in ema.history
    ]


@pytest.mark.parametrize("steps", [18, 1000])
def test_an_average_that_never_begins_is_said_in_one_sentence(train, steps):
    never = EMAWeightAveraging(update_starting_at_step=steps)
    with pytest.raises(CourseError, match="averaging never began: the training has 18 steps in 3"):
        train(never)


class NoTraining(Callback):
    """Fails if a batch is trained."""

    def on_train_batch_start(self, *arguments):
        raise AssertionError("a batch was trained")


@pytest.mark.parametrize(
    ("averaging", "message"),
    [
        (EMAWeightAveraging(update_starting_at_step=18), "never began"),
        (EMAWeightAveraging(update_every_n_steps=0), "never began"),
        (FromEpoch(3), "never began"),
        (
            StochasticWeightAveraging(1e-3, swa_epoch_start=5),
            "begins in epoch 5 of 3: set swa_epoch_start to 3 or less",
        ),
    ],
    ids=["step", "frequency", "own", "SWA"],
)
def test_an_average_that_would_never_begin_is_said_before_training(train, averaging, message):
    with pytest.raises(CourseError, match=message):
        train([averaging, NoTraining()])


def test_swa_returns_an_average_if_it_comes_to_its_end(train):
    plain = train([])
    swa = train(StochasticWeightAveraging(0.01, swa_epoch_start=3, annealing_epochs=1))
    assert not torch.equal(weights(swa), weights(plain))
    assert len(swa.history) == 4  # one more for BatchNorm


class StopAfterOneEpoch(Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        trainer.should_stop = True


@pytest.mark.parametrize("cut", [{"max_steps": 12}, {"max_steps": 10}, {}], ids=str)
def test_swa_that_is_cut_short_is_said(tiny_config, tiny_data, cut):
    """Lightning would return the last weights, or an average with old BatchNorm statistics."""
    averaging = [StochasticWeightAveraging(1e-3, swa_epoch_start=1)]
    stopping = [] if cut else [StopAfterOneEpoch()]
    trainer = {"callbacks": averaging + stopping} | cut
    with pytest.raises(CourseError, match="ended before StochasticWeightAveraging did"):
        fit(tiny_config.replace(epochs=2), tiny_data, trainer=trainer)


def test_a_callback_that_was_used_before_is_noticed(train, tiny_config, tiny_data):
    used = EMAWeightAveraging(decay=0.9)
    used._latest_update_step = 1000  # as after a training by hand
    with pytest.raises(CourseError, match="never began"):
        train(used)
