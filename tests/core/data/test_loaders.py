from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from course_utils.data.augment import flip_and_shift, train_transform
from course_utils.data.image_data import Images
from course_utils.data.loaders import seed_worker


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def numbered(count, size=8):
    """Images in which every pixel has a number of its own."""
    return torch.arange(count * size * size * 3).reshape(count, size, size, 3)


def test_without_shift_an_image_is_itself_or_mirrored():
    images = numbered(200)
    changed = flip_and_shift(images, generator(), max_shift=0)
    same = (changed == images).flatten(1).all(1)
    mirrored = (changed == images.flip(2)).flatten(1).all(1)
    assert (same ^ mirrored).all()
    assert 70 < mirrored.sum() < 130  # about half of 200


def test_shifts_are_whole_pixels_with_reflected_borders():
    image = numbered(1)
    padded = np.pad(image[0].numpy(), ((2, 2), (2, 2), (0, 0)), mode="reflect")
    crops = [padded[y : y + 8, x : x + 8] for y in range(5) for x in range(5)]
    possible = {crop.tobytes() for crop in crops}
    possible |= {np.ascontiguousarray(crop[:, ::-1]).tobytes() for crop in crops}
    changed = flip_and_shift(image.expand(2000, -1, -1, -1), generator(), max_shift=2)
    assert {one.numpy().tobytes() for one in changed} == possible  # each of them, nothing else


def test_every_image_of_a_batch_draws_its_own_change():
    changed = flip_and_shift(numbered(1).expand(64, -1, -1, -1), generator())
    assert len(changed.unique(dim=0)) > 30


def test_the_input_stays_and_the_generator_decides():
    images = numbered(16)
    kept = images.clone()
    first, again, other = (flip_and_shift(images, generator(seed)) for seed in (0, 0, 1))
    assert torch.equal(images, kept)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_seeded_workers_draw_other_augmentations_in_each_worker_and_epoch(tiny_data, num_workers):
    transform = train_transform(tiny_data.mean, tiny_data.std, seed=0)
    same = Images(np.stack([tiny_data.train.images[0]] * 16), np.zeros(16, int), transform)
    loader = DataLoader(same, 4, num_workers=num_workers, worker_init_fn=seed_worker)
    images = torch.cat([images for _ in range(2) for images, _ in loader])
    assert len({image.numpy().tobytes() for image in images}) == 32


def test_order_and_types_are_those_of_a_plain_loader(tiny_data):
    """The targets are numbered, so that they tell who is in which batch."""
    images = torch.from_numpy(tiny_data.train.images).permute(0, 3, 1, 2).float()
    numbers = torch.arange(len(images))
    data = replace(tiny_data, train=Images(tiny_data.train.images, numbers.numpy()))
    options = {"shuffle": True, "drop_last": True, "generator": torch.Generator().manual_seed(3)}
    plain = DataLoader(TensorDataset(images, numbers), tiny_data.batch_size, **options)
    ours = data.train_loader(3)
    assert len(ours) == len(plain)
    for _ in range(2):  # epochs
        for (changed, targets), (expected, order) in zip(ours, plain, strict=True):
            assert torch.equal(targets, order)
            assert (changed.dtype, changed.shape) == (expected.dtype, expected.shape)
            assert changed.is_contiguous(memory_format=torch.channels_last)


def test_images_are_normalised_as_in_validation(tiny_data):
    """Grey images stay what they are when flipped and shifted."""
    levels = np.arange(len(tiny_data.train), dtype=np.uint8)[:, None, None, None]
    same = np.repeat(np.repeat(np.repeat(levels, 32, axis=1), 32, axis=2), 3, axis=3)
    grey = Images(same, np.arange(len(levels)))
    data = replace(tiny_data, train=grey)
    expected = torch.cat([images for images, _ in data.eval_loader(data.train)])
    for images, numbers in data.train_loader():
        torch.testing.assert_close(images, expected[numbers], rtol=1e-5, atol=1e-5)


def test_an_augmentation_gets_images_as_they_are_stored(tiny_data):
    data = replace(tiny_data, val=tiny_data.train)
    plain = next(iter(data.eval_loader()))[0]
    augmented = data._batches(data.train, lambda images: images).loader(batch_size=256)
    assert torch.equal(next(iter(augmented))[0], plain)


def test_batch_size(tiny_data):
    expected = {None: tiny_data.batch_size, 8: 8, 10_000: len(tiny_data.train)}
    found = {size: len(next(iter(tiny_data.train_loader(0, size)))[1]) for size in expected}
    assert found == expected


def test_batches_are_augmented(tiny_data):
    loaders = tiny_data.train_loader(), tiny_data.plain_loader()  # of one order
    for (images, numbers), (plain, expected) in zip(*loaders, strict=True):
        assert torch.equal(numbers, expected)
        assert not torch.equal(images, plain)
