"""What `study_race` writes from a description: Lookahead, alternating flip, SGD's groups."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from course_utils.data.image_data import ImageData, Images
from course_utils.results import STUDIES, read_file
from lesson_code.putting_it_together import study_race as race


@pytest.mark.parametrize("total", [7, 10], ids=["between updates", "with the last update"])
def test_lookahead_moves_the_weights_to_their_mean_every_fifth_step_and_at_the_end(total):
    model = nn.Linear(1, 1, bias=False)
    module = SimpleNamespace(model=model)
    callback = race.Lookahead()
    with torch.no_grad():
        model.weight.fill_(2.0)
        callback.on_train_start(SimpleNamespace(), module)
        mean = weight = 2.0
        for step in range(1, total + 1):
            weight += 1.0  # what the optimizer does
            model.weight.fill_(weight)
            trainer = SimpleNamespace(global_step=step, estimated_stepping_batches=total)
            callback.on_train_batch_end(trainer, module, None, None, 0)
            if step % 5 == 0:
                decay = 0.95**5 * (step / total) ** 3
                weight = mean = decay * mean + (1 - decay) * weight
            if step < total:
                assert model.weight.item() == pytest.approx(weight)
    assert model.weight.item() == pytest.approx(mean)


def test_lookahead_averages_the_statistics_of_batchnorm_and_not_its_counter():
    module = SimpleNamespace(model=nn.BatchNorm1d(2))
    callback = race.Lookahead()
    callback.on_train_start(SimpleNamespace(), module)
    module.model.running_mean.fill_(4.0)
    module.model.num_batches_tracked.fill_(3)
    trainer = SimpleNamespace(global_step=1, estimated_stepping_batches=1)
    with torch.no_grad():
        callback.on_train_batch_end(trainer, module, None, None, 0)
    assert module.model.running_mean.tolist() == [0.0, 0.0]
    assert module.model.num_batches_tracked.item() == 3


def test_every_image_is_mirrored_in_every_other_epoch():
    count = 60
    images = np.zeros((count, 8, 8, 3), dtype=np.uint8)
    images[:, :, 4:] = 255  # as it comes, the right half is bright
    own = Images(images, np.arange(count))
    data = ImageData(
        "edges", tuple("abc"), own, own, (0.0,) * 3, (1.0,) * 3, lambda: own, batch_size=8
    )
    loader = race.AlternatingFlip(data, seed=0, batch_size=10)
    assert len(loader) == 6
    epochs = []
    for _ in range(3):
        mirrored = {}
        for batch, targets in loader:
            left, right = batch[..., :4].mean((1, 2, 3)), batch[..., 4:].mean((1, 2, 3))
            mirrored |= dict(zip(targets.tolist(), (left > right).tolist(), strict=True))
        epochs.append([mirrored[index] for index in range(count)])
    first, second, third = epochs
    assert 15 <= sum(first) <= 45
    assert second == [not image for image in first]
    assert third == first
    assert images[:, :, :4].max() == 0  # the data are left as they were


def test_images_are_smaller_in_the_first_epochs_only(tiny_data):
    small = race.SmallerFirst(tiny_data, seed=0, batch_size=8, small_epochs=1)
    usual = race.AlternatingFlip(tiny_data, seed=0, batch_size=8)
    assert len(small) == len(usual)
    sides = []
    for _ in range(3):
        for (images, targets), (expected, same) in zip(small, usual, strict=True):
            sides.append(images.shape[-1])
            assert torch.equal(targets, same)
            assert images.is_contiguous(memory_format=torch.channels_last)
            # resizing keeps what is in the image: the mean of its colour changes little
            error = (images.mean((2, 3)) - expected.mean((2, 3))).abs().max()
            assert error < 0.05
    batches = len(usual)
    assert sides == [24] * batches + [32] * 2 * batches


def test_biases_of_norms_have_their_own_learning_rate_and_the_same_decay():
    model = race.make_airbench94(10, (4, 8, 8))
    named = [(name, x) for name, x in model.named_parameters() if x.requires_grad]
    others, biases = race.make_sgd(named).param_groups
    assert {id(x) for x in biases["params"]} == {id(x) for name, x in named if "norm" in name}
    assert len(others["params"]) + len(biases["params"]) == len(named)
    assert biases["lr"] == 64 * others["lr"]
    decay = others["lr"] * others["weight_decay"]
    assert biases["lr"] * biases["weight_decay"] == pytest.approx(decay)


@pytest.mark.parametrize("name", race.RIVALS)
def test_every_rival_trains_for_its_own_epochs(name, tiny_config, tiny_data):
    arguments = race.make_arguments(race.RIVALS[name], tiny_config, tiny_data)
    assert arguments["config"].epochs == race.RIVALS[name].epochs
    assert "max_epochs" not in arguments.get("trainer", {})
    assert arguments.get("pretrained", False) == (name == "backbone")


def test_a_curve_has_the_median_seconds_of_an_epoch_at_each_size_of_the_images():
    rival = race.Rival("a", "b", "c", "wide", epochs=5, small_epochs=2)
    assert (race.shorten(rival).epochs, race.shorten(rival).small_epochs) == (2, 1)
    rounds = [[2.0, 3.0], [9.0, 4.0], [1.0, 9.0]]  # medians 2 and 4
    curve = race.make_curve(rival, [0.1, 0.2, 0.3, 0.4, 0.5], rounds)
    assert curve == [[2, 0.1], [4, 0.2], [8, 0.3], [12, 0.4], [16, 0.5]]
    usual = race.Rival("a", "b", "c", "timm", epochs=2)
    assert (race.shorten(usual).epochs, race.shorten(usual).small_epochs) == (1, 0)
    assert race.make_curve(usual, [0.1, 0.2], [[3.0], [5.0], [30.0]]) == [[5, 0.1], [10, 0.2]]


def test_trainings_of_the_stored_race_are_not_trained_again(tmp_path):
    stored, done = tmp_path / "stored.json", tmp_path / "build" / "done.jsonl"
    race.restore_trainings(stored, done)
    assert not done.exists()
    job = {"rival": "timm", "seed": 1, "epochs": 2}
    row = job | {"curve": [[5.0, 0.1], [10.0, 0.2]], "commit": "c"}
    stored.write_text(json.dumps({"rows": [row]}))
    race.restore_trainings(stored, done)
    [found] = race.run_missing([job], pytest.fail, done)
    assert found == job | {"accuracies": [0.1, 0.2], "commit": "c"}
    done.write_text("")  # what is there is kept
    race.restore_trainings(stored, done)
    assert not done.read_text()


def test_the_stored_race_has_all_rivals_and_no_others():
    stored = read_file(STUDIES / "putting_it_together/study_race.json")
    assert list(stored["rivals"]) == list(race.RIVALS)
    jobs = {(row["rival"], row["seed"], row["epochs"]) for row in stored["rows"]}
    assert jobs == {(job["rival"], job["seed"], job["epochs"]) for job in race.list_jobs()}
    for row in stored["rows"]:
        rival = race.RIVALS[row["rival"]]
        accuracies = [accuracy for _, accuracy in row["curve"]]
        rounds = stored["clock"]["seconds"][rival.recipe]
        assert row["curve"] == race.make_curve(rival, accuracies, rounds)
