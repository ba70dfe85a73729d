from dataclasses import replace

import numpy as np
import pytest

from course_utils.data.image_data import Images
from course_utils.errors import CourseError
from lesson_code.lora.shuffle_tiles import shuffle_tiles


def tiles_of(image, size):
    rows = np.split(image, image.shape[0] // size, axis=0)
    return [tile.tobytes() for row in rows for tile in np.split(row, row.shape[1] // size, axis=1)]


@pytest.mark.parametrize("size", [4, 8, 16])
def test_each_image_keeps_its_tiles_in_an_order_that_all_share(tiny_data, size):
    noise = np.random.default_rng(0).integers(0, 256, (9, 32, 32, 3), dtype=np.uint8)
    different = Images(noise, np.arange(9))  # no two tiles are equal
    data = replace(tiny_data, train=different, val=different, open_test=lambda: different)
    shuffled = shuffle_tiles(data, size)
    orders = set()
    for after in (shuffled.train, shuffled.val, shuffled.open_test()):
        before = different
        assert np.array_equal(before.targets, after.targets)
        for one, other in zip(before.images, after.images, strict=True):
            old = tiles_of(one, size)
            orders.add(tuple(old.index(tile) for tile in tiles_of(other, size)))
    assert len(orders) == 1
    (order,) = orders
    assert sorted(order) == list(range((32 // size) ** 2)) != list(order)


def test_null_a_tile_as_large_as_the_image_changes_nothing(tiny_data):
    assert np.array_equal(shuffle_tiles(tiny_data, 32).val.images, tiny_data.val.images)


@pytest.mark.parametrize("size", [0, 5, 64])
def test_tiles_must_fill_the_image(tiny_data, size):
    with pytest.raises(CourseError, match=f"tiles of {size} pixels do not fill 32 × 32"):
        shuffle_tiles(tiny_data, size)
