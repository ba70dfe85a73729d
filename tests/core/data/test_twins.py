"""The same picture in two groups of images is found; pictures that are merely alike are not."""

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from course_utils.data.photos import open_photos
from course_utils.data.shapes import make_shapes
from course_utils.data.twins import NamedImages, find_twins, tell_mixed

GROUPS = np.arange(200) % 2


@pytest.fixture(scope="module")
def photographs():
    """200 photographs, of two classes of the ten so that few sheets are decoded."""
    _, targets, pick = open_photos()
    return pick(np.flatnonzero(targets < 2)[:200])


def reduce(image, width=160, quality=75, resample=Image.Resampling.LANCZOS):
    """``image`` in large, as a camera has it, as a thumbnail, and back to 32 × 32."""
    large = Image.fromarray(image).resize((640, 640), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    large.resize((width, width), resample).save(file, "jpeg", quality=quality)
    with Image.open(file) as small:
        return np.asarray(ImageOps.fit(small, (32, 32)))


CHANGES = {
    "equal": lambda image: image,
    "thumbnail": reduce,
    "small thumbnail": lambda image: reduce(image, 64),
    "strongly compressed": lambda image: reduce(image, 320, quality=40),
    "another filter": lambda image: reduce(image, 120, resample=Image.Resampling.BILINEAR),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_copy_of_another_size_is_found(photographs, change):
    images = photographs.copy()
    for place in range(0, 40, 4):
        images[place + 1] = change(images[place])
    twins = find_twins(images, GROUPS)
    expected = np.full(200, -1)
    expected[0:40:4] = np.arange(1, 40, 4)
    expected[1:41:4] = np.arange(0, 40, 4)
    assert np.array_equal(twins, expected)


def test_images_of_one_group_are_not_compared(photographs):
    images = photographs.copy()
    images[2] = images[0]
    assert (find_twins(images, GROUPS) == -1).all()
    assert (find_twins(images, np.zeros(200)) == -1).all()


def draw_stripes(rows):
    """Images of stripes that differ in their direction only."""
    stripes = np.zeros((32, 32, 3), np.uint8)
    stripes[::2] = 200
    return np.stack([stripes.swapaxes(0, 1) if number % 2 else stripes for number in range(rows)])


def draw_flat(rows):
    """Images of one colour each, each a little lighter than the one before."""
    return np.stack([np.full((32, 32, 3), 20 + number, np.uint8) for number in range(rows)])


def draw_small_signs(rows):
    """White images, each with a small dark square elsewhere."""
    images = np.full((rows, 32, 32, 3), 255, np.uint8)
    for number in range(rows):
        row, column = divmod(number, 15)
        images[number, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3] = 0
    return images


@pytest.mark.parametrize(
    "draw", [draw_stripes, draw_flat, draw_small_signs, lambda rows: make_shapes(rows)[0]]
)
def test_drawings_that_are_merely_alike_are_no_twins(draw):
    assert (find_twins(draw(200), GROUPS) == -1).all()


def test_more_images_than_are_compared_at_once(photographs, monkeypatch):
    monkeypatch.setattr("course_utils.data.twins.ROWS", 7)
    images = np.concatenate([photographs, photographs[::-1]])
    groups = np.repeat([0, 1], 200)
    assert np.array_equal(find_twins(images, groups), np.arange(400)[::-1])


def test_the_first_image_is_named_and_counted_like_any_other(photographs, capsys):
    images = np.concatenate([photographs[:40], photographs[:1]])
    names = [f"{number}.jpg" for number in range(41)]
    tell_mixed(NamedImages(images, np.append(np.zeros(40, int), 1), names))
    said = "2 of 41 images show the same as one of another class (0.jpg and 40.jpg)"
    assert capsys.readouterr().out.startswith(said)
