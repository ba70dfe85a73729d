"""`fit` does what it is asked, or says in one line before a training why not and what to do."""

from functools import partial

import lightning as L
import pytest
import timm.optim
import timm.scheduler
import torch
from lightning.pytorch import callbacks
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import ReduceLROnPlateau

from course_utils.errors import CourseError
from course_utils.training.fit import fit
from course_utils.training.guards import asks_timm_for_layer_decay, check_trainer
from course_utils.training.parameter_groups import make_grouped
from course_utils.training.schedules import warmup_cosine

ANOTHER = nn.Linear(3, 2)
BY_TIMM = partial(timm.optim.create_optimizer_v2, opt="adamw", lr=1e-3)


def with_lr_scale(named):
    """Groups as timm's layer decay writes them."""
    return SGD([{"params": [pair], "lr_scale": 0.5**i} for i, pair in enumerate(named)], lr=0.1)


def two_lists(named):
    return [SGD(named, lr=0.1)], []


class MustNotTrain(L.Callback):
    """Fails when a training step has been taken."""

    def on_train_batch_end(self, *arguments):
        raise AssertionError("a step was trained")


REFUSED = {
    "no step": ({"trainer": {"max_steps": 0}}, "max_steps=0 trains nothing: give"),
    "no epoch": ({"trainer": {"max_epochs": 0}}, "max_epochs=0 trains nothing: give"),
    "no batch": ({"trainer": {"limit_train_batches": 0}}, "limit_train_batches=0 trains nothing"),
    "no validation": ({"trainer": {"limit_val_batches": 0}}, "leave limit_val_batches=0 out"),
    "no metrics": ({"trainer": {"barebones": True}}, "barebones=True records none: leave it out"),
    "without end": ({"trainer": {"max_epochs": -1}}, "give max_steps or max_time too"),
    "forks": ({"trainer": {"strategy": "ddp_notebook"}}, "start several processes with torchrun"),
    "no logger": (
        {"trainer": {"callbacks": callbacks.LearningRateMonitor()}},
        "LearningRateMonitor writes to a logger, and fit has none: add 'logger'",
    ),
    "no logger either": (
        {"trainer": {"callbacks": [callbacks.DeviceStatsMonitor()]}},
        "DeviceStatsMonitor writes to a logger",
    ),
    "finder": (
        {"trainer": {"callbacks": callbacks.LearningRateFinder()}},
        "LearningRateFinder cannot work through fit: choose the learning rate first",
    ),
    "batch size": (
        {"trainer": {"callbacks": callbacks.BatchSizeFinder()}},
        "BatchSizeFinder cannot work through fit: choose the batch size first",
    ),
    "backbone": (
        {"trainer": {"callbacks": callbacks.BackboneFinetuning()}},
        "BackboneFinetuning cannot work through fit: freeze with model_transform",
    ),
    "accumulation changes": (
        {
            "make_schedule": warmup_cosine,
            "trainer": {"callbacks": callbacks.GradientAccumulationScheduler({1: 4})},
        },
        "accumulate_grad_batches in place of GradientAccumulationScheduler",
    ),
    "schedule without end": (
        {"make_schedule": warmup_cosine, "trainer": {"max_epochs": -1, "max_time": "00:00:00:09"}},
        "has to know how many steps there will be: give the trainer max_steps",
    ),
    "timm's schedule": (
        {"make_schedule": timm.scheduler.CosineLRScheduler},
        r"returned timm\.scheduler\.cosine_lr\.CosineLRScheduler: return a schedule of torch",
    ),
    "plateau": (
        {"make_schedule": lambda optimizer, steps: ReduceLROnPlateau(optimizer)},
        "ReduceLROnPlateau follows a metric: use it in a LightningModule",
    ),
    "no schedule": (
        {"make_schedule": lambda optimizer, steps: None},
        "make_schedule returned NoneType: return a schedule",
    ),
    "no optimizer": (
        {"make_optimizer": lambda named: None},
        "make_optimizer returned NoneType: return one torch optimizer",
    ),
    "two lists": ({"make_optimizer": two_lists}, "make_optimizer returned tuple: return one torch"),
    "another model": (
        {"make_optimizer": lambda named: SGD(ANOTHER.parameters(), lr=0.1)},
        "took 2 parameters that are not those to train here: build the optimizer from",
    ),
    "layer decay": ({"make_optimizer": partial(BY_TIMM, layer_decay=0.7)}, "take .*make_grouped"),
    "layer decay in a function": (
        {"make_optimizer": lambda named: timm.optim.create_optimizer_v2(named, layer_decay=0.7)},
        "timm's layer_decay has no effect here",
    ),
    "lr_scale": ({"make_optimizer": with_lr_scale}, "timm's layer_decay has no effect here"),
    "all frozen": (
        {"model_transform": lambda model: model.requires_grad_(False)},
        "model_transform left no parameter to train: let the head require gradients",
    ),
    "no model": ({"model_transform": lambda model: None}, "model_transform returned NoneType: ret"),
    "no network": ({"model": lambda num_classes: None}, "model returned NoneType: return the"),
    "no loader": ({"make_loader": lambda data, seed: None}, "make_loader returned NoneType"),
    "an empty loader": (
        {"make_loader": lambda data, seed: []},
        "make_loader returned no batch: take more images, or a batch size below",
    ),
    "one of two": (
        {"batch_transform": lambda images, targets: images},
        r"batch_transform returned a tensor of shape \(16, 3, 32, 32\): return inputs and targets",
    ),
    "a loss for each": (
        {"loss": nn.CrossEntropyLoss(reduction="none")},
        r"loss returned a tensor of shape \(16,\): return the mean over the batch",
    ),
    "a number": ({"loss": lambda *batch: 1.0}, "loss returned float: return the mean"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_fit_cannot_do_is_said_in_one_line_before_a_step(tiny_config, tiny_data, case):
    options, message = REFUSED[case]
    if "trainer" not in options:
        options = options | {"trainer": {"callbacks": MustNotTrain()}}
    with pytest.raises(CourseError, match=message) as caught:
        fit(tiny_config, tiny_data, save=False, **options)
    assert "\n" not in str(caught.value)


def test_callbacks_that_fit_has_switched_off_work(tiny_config, tiny_data, tmp_path, capsys):
    """A checkpoint, a bar of progress, and with a logger the learning rates."""
    run = fit(
        tiny_config,
        tiny_data,
        make_schedule=warmup_cosine,
        trainer={
            "callbacks": [
                callbacks.ModelCheckpoint(tmp_path / "best", monitor="val_loss"),
                callbacks.TQDMProgressBar(),
                callbacks.LearningRateMonitor(),
            ],
            "logger": CSVLogger(tmp_path),
            "log_every_n_steps": 1,
        },
    )
    best = run.callback(callbacks.ModelCheckpoint).best_model_path
    stored = torch.load(best, weights_only=False)["state_dict"]
    expected = run.model.state_dict()
    assert all(torch.equal(stored[f"model.{name}"], expected[name]) for name in expected)
    assert "Epoch 0" in capsys.readouterr().out
    [log] = tmp_path.rglob("metrics.csv")
    assert "lr-AdamW" in log.read_text()


def test_who_switches_checkpoints_off_hears_of_it_from_lightning(tiny_config, tiny_data, tmp_path):
    trainer = {"callbacks": callbacks.ModelCheckpoint(tmp_path), "enable_checkpointing": False}
    with pytest.raises(Exception, match="enable_checkpointing=False"):
        fit(tiny_config, tiny_data, trainer=trainer)


def test_a_list_of_batches_is_a_loader(tiny_config, tiny_data):
    plain = fit(tiny_config, tiny_data)
    listed = fit(tiny_config, tiny_data, make_loader=lambda data, seed: [*data.train_loader(seed)])
    assert listed.metrics == plain.metrics


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_epochs": -1, "max_time": "00:00:10:00"},
        {"max_epochs": -1, "max_steps": 10},
        {"max_epochs": -1, "callbacks": callbacks.Timer("00:00:10:00")},
        {"max_epochs": -1, "callbacks": callbacks.EarlyStopping("val_loss")},
        {"callbacks": callbacks.GradientAccumulationScheduler({1: 4})},
        {"strategy": "ddp", "limit_val_batches": 1.0, "max_steps": -1},
        {"callbacks": callbacks.LearningRateMonitor(), "logger": True},
    ],
)
def test_null_what_lightning_can_do_is_not_refused(options):
    check_trainer(options, has_schedule=False)


@pytest.mark.parametrize(
    ("make_optimizer", "expected"),
    [
        (AdamW, False),
        (partial(AdamW, lr=0.1), False),
        (partial(make_grouped, AdamW, lr=0.1, layer_decay=0.7), False),
        (BY_TIMM, False),
        (timm.optim.create_optimizer_v2, False),
        (lambda named: BY_TIMM(named), False),
        (partial(partial(BY_TIMM, layer_decay=0.7), lr=0.1), True),
    ],
)
def test_only_a_layer_decay_that_timm_ignores_is_refused(make_optimizer, expected):
    assert asks_timm_for_layer_decay(make_optimizer) == expected
