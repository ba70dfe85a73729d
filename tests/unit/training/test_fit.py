import os
from dataclasses import replace
from pathlib import Path

import lightning as L
import pytest
import torch

from course_utils.errors import CourseError
from course_utils.results import read_records
from course_utils.training.fit import fit


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
    assert run.parameters == run.trainable_parameters == 464_762
    assert run.saved_bytes > 0
    assert run.time_s > 0
    assert run.peak_memory_bytes is None or run.peak_memory_bytes > 0
    assert run.provenance["profile"] == "smoke"
    assert run.provenance["versions"]["torch"] == torch.__version__.partition("+")[0]


def test_run_is_recorded(run):
    run, folder = run
    (row,) = read_records(folder, "run")
    assert (row["arm"], row["seed"]) == ("baseline", 0)
    assert row["metrics"] == run.metrics
    assert "model" not in row


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
        train_loader=as_loader,
        trainer={"max_epochs": 2},
    )
    assert run.trainable_parameters == 1290
    assert len(run.history) == 2
    assert run.images_per_s > 0  # 4 steps, 3 of them warm-up


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
    assert run.images_per_s > 0
    assert "train_loss" in run.metrics


def test_nothing_trained_is_said_in_one_sentence(tiny_config, tiny_data):
    with pytest.raises(CourseError, match="no epoch was trained in this process"):
        fit(tiny_config, tiny_data, trainer={"max_epochs": 0})


def test_one_callback_needs_no_list(tiny_config, tiny_data):
    class Counter(L.Callback):
        steps = 0

        def on_train_batch_end(self, *args):
            self.steps += 1

    counter = Counter()
    fit(tiny_config, tiny_data, trainer={"callbacks": counter})
    assert counter.steps == 6


def test_too_few_steps_have_no_throughput(tiny_config, tiny_data):
    run = fit(tiny_config, tiny_data, trainer={"limit_train_batches": 2})
    assert run.images_per_s is None


def test_runs_of_the_same_name_are_all_kept(run):
    run, _ = run
    for seed in (0, 0, 1):
        replace(run, seed=seed, arm="mixup α = 0.2 / λ", comparison="../short").save()
    rows = read_records(Path(os.environ["COURSE_RUNS_DIR"]), "run")
    assert [row["seed"] for row in rows] == [0, 0, 1]
    assert rows[0] == rows[1]
    assert rows[0]["arm"] == "mixup α = 0.2 / λ"


def test_the_end_of_each_epoch_is_timed(tiny_config, tiny_data):
    run = fit(tiny_config.replace(epochs=3), tiny_data)
    assert len(run.epoch_ends_s) == len(run.history) == 3
    assert run.epoch_ends_s == sorted(run.epoch_ends_s)
    assert 0 < run.epoch_ends_s[0] < run.epoch_ends_s[-1] <= run.time_s
