import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import lightning as L
import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import EarlyStopping, EMAWeightAveraging
from torchvision.transforms import v2

from course_utils.errors import CourseError
from course_utils.models import create_model
from course_utils.results import RECORDS, read_records
from course_utils.training.compare import compare
from course_utils.training.fit import fit
from course_utils.training.run import seconds_to


@pytest.fixture(scope="module")
def run(tiny_config, tiny_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_RUNS_DIR", str(folder))
        return fit(tiny_config, tiny_data, seed=0), folder


def weights(run):
    return torch.cat([p.detach().flatten() for p in run.model.parameters()])


def test_run_reports_everything(run, tiny_config):
    run, _ = run
    assert {"train_loss", "train_accuracy", "val_loss", "val_accuracy"} < run.metrics.keys()
    assert 0 <= run.metrics["val_calibration_error"] <= 1
    assert len(run.history) == tiny_config.epochs
    assert run.parameters == run.trainable_parameters == 1_572_810
    assert run.saved_bytes > 0
    assert run.time_s > 0
    assert run.peak_memory_bytes is None or run.peak_memory_bytes > 0
    assert not run.model.training
    assert run.provenance["threads"] == torch.get_num_threads()
    assert run.provenance["versions"]["torch"] == torch.__version__.partition("+")[0]


def test_a_run_says_what_was_trained(run, tiny_config, tiny_data):
    """Data by name and size, config, and every filled seam by a name one can read."""
    settings = run[0].settings
    assert settings["data"]["name"] == "shapes"
    assert (settings["data"]["train"], settings["data"]["val"]) == (96, 40)
    assert settings["config"]["epochs"] == tiny_config.epochs
    assert settings["config"]["batch_size"] == tiny_config.batch_size
    assert settings["config"]["peak_lr"] == tiny_config.peak_lr
    assert settings["seams"] == {}  # the baseline
    other = fit(
        tiny_config,
        replace(tiny_data.take_train(64), name="another name"),
        loss=partial(F.cross_entropy, label_smoothing=0.1),
        make_optimizer=partial(torch.optim.SGD, lr=0.1),
        batch_transform=v2.MixUp(alpha=0.2, num_classes=10),
        trainer={"callbacks": EarlyStopping("val_loss", patience=2), "precision": "bf16-mixed"},
    )
    assert other.settings["data"]["train"] == 64
    assert other.settings["data"]["name"] == "another name"
    seams = other.settings["seams"]
    assert seams["loss"] == "cross_entropy(label_smoothing=0.1)"
    assert seams["make_optimizer"] == "SGD(lr=0.1)"
    assert "MixUp" in seams["batch_transform"]
    assert "alpha=0.2" in seams["batch_transform"]
    assert "EarlyStopping(" in seams["trainer"]
    assert "patience=2" in seams["trainer"]
    assert " at 0x" not in json.dumps(other.settings)


def test_runs_are_appended_and_none_is_overwritten(run, tiny_config, tiny_data):
    """Two runs of one name are two records."""
    run, folder = run
    [row] = read_records(folder, "run")
    assert row["metrics"] == run.metrics
    assert row["settings"] == run.settings
    assert not {"model", "callbacks"} & row.keys()
    replace(run, arm="mixup α = 0.2 / λ", comparison="../short").save()
    replace(run, arm="mixup α = 0.2 / λ", comparison="../short").save()
    rows = read_records(Path(os.environ["COURSE_RUNS_DIR"]), "run")
    assert [row["arm"] for row in rows] == ["mixup α = 0.2 / λ"] * 2
    assert os.listdir(os.environ["COURSE_RUNS_DIR"]) == [RECORDS]


def test_a_run_is_saved_only_if_asked(tiny_config, tiny_data):
    fit(tiny_config, tiny_data, save=False)
    assert read_records(Path(os.environ["COURSE_RUNS_DIR"]), "run") == []


def test_only_the_first_process_of_a_job_saves(tiny_config, tiny_data, monkeypatch):
    monkeypatch.setattr(L.Trainer, "is_global_zero", False)
    fit(tiny_config, tiny_data)
    assert not (Path(os.environ["COURSE_RUNS_DIR"]) / RECORDS).exists()


class CountValidations(L.Callback):
    def __init__(self):
        self.count = 0

    def on_validation_start(self, trainer, pl_module):
        self.count += 1


def test_there_is_one_validation_an_epoch_and_none_before(tiny_config, tiny_data):
    trained = fit(tiny_config, tiny_data, trainer={"callbacks": CountValidations()})
    assert trained.callback(CountValidations).count == tiny_config.epochs


def test_same_seed_same_weights_other_seed_other_weights(run, tiny_config, tiny_data):
    again = fit(tiny_config, tiny_data, seed=0)
    other = fit(tiny_config, tiny_data, seed=1)
    assert torch.equal(weights(run[0]), weights(again))
    assert not torch.allclose(weights(run[0]), weights(other))


def test_pairs_see_the_same_batches_though_one_arm_draws_random_numbers(tiny_config, tiny_data):
    seen = {"plain": [], "restless": []}

    def watch(arm):
        def batch_transform(images, targets):
            if arm == "restless":
                torch.rand(100)
            seen[arm].append(images.clone())
            return images, targets

        return batch_transform

    def restless_model(model):
        torch.rand(100)
        return model

    fit(tiny_config, tiny_data, batch_transform=watch("plain"))
    fit(tiny_config, tiny_data, batch_transform=watch("restless"), model_transform=restless_model)
    assert len(seen["plain"]) == 6
    assert all(torch.equal(a, b) for a, b in zip(*seen.values(), strict=True))


def test_model_and_data_seams(tiny_config, tiny_data):
    def freeze_all_but_last(model):
        model.requires_grad_(False)
        model.fc.requires_grad_(True)
        return model

    def two_batches(data, seed):
        return [batch for batch, _ in zip(data.train_loader(seed), range(2), strict=False)]

    def as_loader(data, seed):
        return torch.utils.data.DataLoader(two_batches(data, seed), batch_size=None)

    run = fit(
        tiny_config,
        tiny_data,
        model_transform=freeze_all_but_last,
        make_loader=as_loader,
        trainer={"max_epochs": 2},
    )
    assert run.trainable_parameters == 256 * 10 + 10
    assert len(run.history) == 2
    assert run.examples_per_s > 0  # 4 steps, 3 of them warm-up


def test_seed_decides_order_and_augmentation_too(tiny_config, tiny_data):
    seen = []

    def watch(images, targets):
        seen.append(images.clone())
        return images, targets

    for seed in (0, 1):
        fit(tiny_config, tiny_data, seed=seed, batch_transform=watch)
    assert not any(torch.equal(a, b) for a, b in zip(seen[:6], seen[6:], strict=True))


def test_a_training_cut_short_by_max_steps_is_timed_and_logged(tiny_config, tiny_data):
    run = fit(tiny_config, tiny_data, trainer={"max_epochs": -1, "max_steps": 5})
    assert run.examples_per_s > 0
    assert "train_loss" in run.metrics


def test_nothing_trained_is_said_in_one_sentence(tiny_config, tiny_data):
    with pytest.raises(CourseError, match="no epoch was trained: give the trainer the time"):
        fit(tiny_config, tiny_data, trainer={"max_time": timedelta(0)})


def make_callbacks():
    return {
        "early stopping": EarlyStopping("val_loss", patience=1, mode="max"),
        "EMA": EMAWeightAveraging(decay=0.5),
    }


@pytest.mark.parametrize("name", make_callbacks())
def test_callbacks_are_fresh_for_every_seed(name, tiny_config, tiny_data):
    """Their state does not leak from one training into the next."""
    config = tiny_config.replace(epochs=3, num_seeds=2)
    shared = {"trainer": {"callbacks": [make_callbacks()[name]]}}
    found = compare(config, tiny_data, {"baseline": shared})
    for run in found.runs:
        own = {"callbacks": make_callbacks()[name]}
        alone = fit(config, tiny_data, seed=run.seed, trainer=own)
        assert run.metrics == alone.metrics
        assert run.history == alone.history


def test_the_callbacks_that_trained_come_back_in_the_run(tiny_config, tiny_data):
    class Counter(L.Callback):
        steps = 0

        def on_train_batch_end(self, *args):
            self.steps += 1

    given = Counter()
    run = fit(tiny_config, tiny_data, trainer={"callbacks": given})  # one needs no list
    assert run.callback(Counter).steps == 6
    assert given.steps == 0
    with pytest.raises(CourseError, match="0 callbacks of this run are a EarlyStopping"):
        run.callback(EarlyStopping)


def test_a_model_by_name_or_by_factory(tiny_config, tiny_data):
    named = fit(tiny_config, tiny_data, model="vgg_tiny")
    made = fit(tiny_config, tiny_data, model=lambda classes: create_model("vgg_tiny", classes))
    assert torch.equal(weights(named), weights(made))
    with pytest.raises(CourseError, match="needs a model by name"):
        fit(tiny_config, tiny_data, model=lambda classes: None, pretrained=True)


def test_a_misspelt_argument_of_the_trainer_is_named(tiny_config, tiny_data):
    with pytest.raises(CourseError, match="no argument 'precison': did you mean 'precision'"):
        fit(tiny_config, tiny_data, trainer={"precison": "bf16-mixed"})


def test_threads_train_one_after_the_other(tiny_config, tiny_data, run):
    """A training seeds the process's generator: two at once would disturb each other."""
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda seed: fit(tiny_config, tiny_data, seed=seed), (0, 0)))
    assert both[0].history == both[1].history == run[0].history


def test_too_few_steps_have_no_throughput(tiny_config, tiny_data):
    run = fit(tiny_config, tiny_data, trainer={"limit_train_batches": 2})
    assert run.examples_per_s is None


def test_the_end_of_each_epoch_is_timed(tiny_config, tiny_data):
    run = fit(tiny_config.replace(epochs=3), tiny_data)
    assert len(run.epoch_ends_s) == len(run.history) == 3
    assert run.epoch_ends_s == sorted(run.epoch_ends_s)
    assert 0 < run.epoch_ends_s[0] < run.epoch_ends_s[-1] <= run.time_s
    ends, accuracies = zip(*run.curve, strict=True)
    assert list(ends) == run.epoch_ends_s
    assert run.seconds_to(max(accuracies)) in ends
    assert run.seconds_to(1.1) == float("inf")


@pytest.mark.parametrize(
    ("epochs", "trainer", "validated"),
    [
        (3, {"check_val_every_n_epoch": 2}, [False, True, True]),
        (2, {"check_val_every_n_epoch": 5}, [False, True]),
        (1, {"max_steps": 3}, [True]),
        # in the middle of an epoch: those are not the weights of its end
        (2, {"check_val_every_n_epoch": None, "val_check_interval": 4}, [False, True]),
    ],
    ids=["every second", "too rarely", "cut short", "within an epoch"],
)
def test_the_trained_weights_are_validated_and_no_epoch_shows_those_of_another(
    tiny_config, tiny_data, epochs, trainer, validated
):
    config = tiny_config.replace(epochs=epochs)
    run = fit(config, tiny_data, trainer=trainer)
    assert ["val_accuracy" in row for row in run.history] == validated
    plain = fit(config, tiny_data, trainer={"max_steps": trainer.get("max_steps", -1)})
    assert run.metrics == run.history[-1] == plain.history[-1]
    assert len(run.curve) == sum(validated)
    assert run.seconds_to(run.metrics["val_accuracy"]) <= run.time_s


def test_seconds_to_an_accuracy_are_those_of_the_first_epoch_that_has_it():
    curve = [(1.5, 0.4), (3.0, 0.7), (4.5, 0.6), (6.0, 0.8)]
    assert [seconds_to(goal, curve) for goal in (0.3, 0.7, 0.75)] == [1.5, 3.0, 6.0]
    assert seconds_to(0.9, curve) == seconds_to(0.1, []) == float("inf")


class _Stop(L.Callback):
    """Somebody presses the stop button in the second epoch."""

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == 1:
            raise KeyboardInterrupt


def test_an_interruption_stays_one_and_the_next_one_is_heeded(tiny_config, tiny_data):
    heeded = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match=r"stopped in epoch 2; .* records\.jsonl"):
        fit(tiny_config.replace(epochs=3), tiny_data, trainer={"callbacks": [_Stop()]})
    assert signal.getsignal(signal.SIGINT) is heeded


class _Exit(L.Callback):
    def on_train_start(self, trainer, pl_module):
        raise SystemExit(3)


def test_an_exit_of_the_persons_own_stays_an_exit(tiny_config, tiny_data):
    with pytest.raises(SystemExit, match="3"):
        fit(tiny_config, tiny_data, trainer={"callbacks": [_Exit()]})
