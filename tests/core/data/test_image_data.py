import dataclasses
import tarfile
from urllib.error import URLError

import numpy as np
import pytest
import torch

from course_utils.config import load_config
from course_utils.data.image_data import Images
from course_utils.data.load import load_data
from course_utils.data.split import split_stratified
from course_utils.errors import CourseError

# --- the split


def test_split_is_disjoint_seeded_and_in_proportion():
    targets = np.repeat([0, 1, 2], [600, 300, 100])
    train, val = split_stratified(targets, 500, 200)
    assert len(train) == 500
    assert len(val) == 200
    assert not set(train) & set(val)
    assert np.abs(np.bincount(targets[train]) - [300, 150, 50]).max() <= 1
    assert np.abs(np.bincount(targets[val]) - [120, 60, 20]).max() <= 1
    again = split_stratified(targets, 500, 200)
    assert np.array_equal(train, again[0])
    other = split_stratified(targets, 500, 200, seed=1)
    assert not np.array_equal(np.sort(train), np.sort(other[0]))


def test_split_of_all_images_uses_each_once():
    targets = np.repeat([0, 1], 50)
    train, val = split_stratified(targets, None, 10)
    assert len(val) == 10
    assert np.array_equal(np.sort(np.concatenate([train, val])), np.arange(100))


def test_split_of_all_images_validates_on_a_tenth_at_most():
    train, val = split_stratified(np.repeat([0, 1], 100), None, 5000)
    assert (len(train), len(val)) == (180, 20)


def test_split_shrinks_both_parts_when_there_are_too_few_images():
    train, val = split_stratified(np.repeat([0, 1], 50), 300, 100)
    assert (len(train), len(val)) == (75, 25)


def test_split_refuses_to_lose_a_class():
    with pytest.raises(CourseError, match="validation images leave out 1: give each class"):
        split_stratified(np.array([0] * 50 + [1]), 30, 10)


@pytest.mark.parametrize(("asked", "offered"), [(50, True), (51, False), (60, False)])
def test_a_larger_profile_is_offered_only_where_images_are_left(asked, offered):
    with pytest.raises(CourseError, match="leave out 1") as caught:
        split_stratified(np.array([0] * 50 + [1]), asked - 10, 10)
    assert ("take a profile that uses more images" in str(caught.value)) == offered


# --- the loaders


@pytest.mark.parametrize(("missing", "named"), [(10, r"(\d+, ){9}\d+:"), (11, r"(\d+, ){10}…:")])
def test_a_message_names_ten_classes_at_most(missing, named):
    with pytest.raises(CourseError, match=f"1 training images leave out {named}"):
        split_stratified(np.arange(missing + 1), num_train=1, num_val=1)


def test_train_and_validation_share_no_image(tiny_data):
    hashes = [
        {image.tobytes() for image in part.images} for part in (tiny_data.train, tiny_data.val)
    ]
    assert not hashes[0] & hashes[1]


def test_validation_is_normalised_and_nothing_else(tiny_data):
    images = torch.cat([images for images, _ in tiny_data.eval_loader()])
    mean, std = torch.tensor(tiny_data.mean), torch.tensor(tiny_data.std)
    expected = (torch.from_numpy(tiny_data.val.images) / 255 - mean) / std
    assert torch.allclose(images, expected.permute(0, 3, 1, 2), atol=1e-5)


def test_mean_and_std_are_those_of_the_training_split(tiny_data):
    pixels = tiny_data.train.images.reshape(-1, 3) / 255
    assert np.allclose(pixels.mean(0), tiny_data.mean)
    assert np.allclose(pixels.std(0), tiny_data.std)


def test_training_batches_follow_their_seed(tiny_data):
    def epoch(seed):
        return torch.cat([images for images, _ in tiny_data.train_loader(seed)])

    assert torch.equal(epoch(0), epoch(0))
    assert not torch.equal(epoch(0), epoch(1))


def test_training_images_are_augmented_anew_in_each_epoch(tiny_data):
    same = Images(np.stack([tiny_data.train.images[0]] * 96), np.zeros(96, int))
    loader = dataclasses.replace(tiny_data, train=same).train_loader(0)
    first, second = (torch.cat([images for images, _ in loader]) for _ in range(2))
    assert (first != second).flatten(1).any(1).sum() > 80  # a few draw the same change twice


def test_last_batch_is_dropped_but_a_small_data_set_is_not(tiny_data):
    assert len(tiny_data.train_loader(0, batch_size=36)) == 2
    small = dataclasses.replace(tiny_data, batch_size=1000)
    assert len(small.train_loader(0)) == 1


def test_a_batch_has_no_more_images_than_there_are(tiny_config, tiny_data):
    """Half of it is a batch for each of two processes."""
    assert tiny_data.batch_size == tiny_config.batch_size
    assert load_data(tiny_config.replace(batch_size=1000)).batch_size == 96
    wide = dataclasses.replace(tiny_data, batch_size=64)
    assert [wide.take_train(count).batch_size for count in (40, 64, 96)] == [40, 64, 64]


# --- CIFAR-10


def test_cifar10_without_network(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise URLError("no network")

    monkeypatch.setenv("COURSE_DATA_DIR", str(tmp_path))
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with pytest.raises(CourseError, match=r"could not be downloaded.*COURSE_DATASET=shapes"):
        load_data(load_config("smoke", dataset="cifar10"))


def test_damaged_cifar10_archive_is_kept_and_named(tmp_path, monkeypatch):
    archive = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(__file__, "cifar-10-batches-py/data_batch_1")
    monkeypatch.setenv("COURSE_DATA_DIR", str(tmp_path))
    with pytest.raises(CourseError, match=r"is damaged .*delete it and run again"):
        load_data(load_config("smoke", dataset="cifar10"))
    assert archive.exists()


def test_fewer_training_images_are_a_part_of_all_in_proportion(tiny_data):
    few = tiny_data.take_train(40)
    assert np.array_equal(few.train.images, tiny_data.train.images[:40])
    counts = np.bincount(few.train.targets)
    assert counts.max() - counts.min() <= 2
    assert few.val is tiny_data.val
    for count in (3, 0, -10):
        with pytest.raises(CourseError, match="training images leave out arrow, cr"):
            tiny_data.take_train(count)


def test_a_class_that_comes_last_is_missed(tiny_data):
    order = np.argsort(tiny_data.train.targets)
    by_class = Images(tiny_data.train.images[order], tiny_data.train.targets[order])
    with pytest.raises(CourseError, match="60 training images leave out square, star, tri"):
        dataclasses.replace(tiny_data, train=by_class).take_train(60)


def test_plain_loader_shuffles_and_never_augments(tiny_data):
    images, targets = (torch.cat(part) for part in zip(*tiny_data.plain_loader(0), strict=True))
    known = next(iter(tiny_data.eval_loader(tiny_data.train)))
    assert not torch.equal(targets, known[1])
    seen = {image.numpy().tobytes(): int(t) for image, t in zip(images, targets, strict=True)}
    assert seen == {i.numpy().tobytes(): int(t) for i, t in zip(*known, strict=True)}
    assert torch.equal(targets, torch.cat([t for _, t in tiny_data.train_loader(0)]))
    again, other = (next(iter(tiny_data.plain_loader(seed)))[1] for seed in (0, 1))
    assert torch.equal(again, targets[: len(again)])
    assert not torch.equal(again, other)
