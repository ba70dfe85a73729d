import hashlib

import numpy as np
import pytest

from course_utils.data import shapes
from course_utils.data.shape_outlines import OUTLINES
from course_utils.data.shapes import make_shapes

# of the first 100 images at seed 0: the same on every machine and with every version we lock
SHA256 = "398b1cbd08755e4109f14739a126e9124a3eed8796294c926ced6a12c5445f39"


def test_bytes_are_pinned():
    images, targets = make_shapes(100, seed=0)
    assert hashlib.sha256(images.tobytes() + targets.tobytes()).hexdigest() == SHA256


def test_number_of_threads_does_not_matter(monkeypatch):
    many = make_shapes(700, seed=3)
    monkeypatch.setattr(shapes.os, "cpu_count", lambda: 1)
    one = make_shapes(700, seed=3)
    assert all(np.array_equal(a, b) for a, b in zip(many, one, strict=True))


def test_first_images_do_not_depend_on_how_many_follow():
    few, many = make_shapes(37, seed=1), make_shapes(450, seed=1)
    assert np.array_equal(few[0], many[0][:37])
    assert np.array_equal(few[1], many[1][:37])


def test_types_shapes_and_balance():
    images, targets = make_shapes(250)
    assert images.shape == (250, 32, 32, 3)
    assert images.dtype == np.uint8
    assert targets.dtype == np.int64
    assert np.array_equal(np.bincount(targets), [25] * 10)


@pytest.mark.parametrize("other", [{"seed": 1}, {"split": "test"}])
def test_no_image_is_shared_with_another_stream(other):
    def hashes(images):
        return {image.tobytes() for image in images}

    here, there = hashes(make_shapes(300)[0]), hashes(make_shapes(300, **other)[0])
    assert len(here) == 300
    assert not here & there


def test_outlines_are_negative_inside_and_differ():
    line = np.linspace(-1.5, 1.5, 64, dtype=np.float32)
    x, y = np.broadcast_arrays(line[None, None, :], line[None, :, None])
    inside = {name: draw(x, y) < 0 for name, draw in OUTLINES.items()}
    for name, mask in inside.items():
        assert 0.05 < mask.mean() < 0.5, name
        edge = np.concatenate([mask[0, 0], mask[0, -1], mask[0, :, 0], mask[0, :, -1]])
        assert not edge.any(), f"{name} does not fit into its frame"
    masks = list(inside.values())
    for i, mask in enumerate(masks):
        assert all((mask != other).mean() > 0.02 for other in masks[i + 1 :])


def test_without_difficulty_classes_are_told_apart_by_their_mean_outline():
    """A nearest-mean classifier on edge strength: objects are drawn, and drawn where we say."""

    def edges(images):
        grey = images.mean(axis=3)
        return np.abs(np.diff(grey, axis=1))[:, :, 1:] + np.abs(np.diff(grey, axis=2))[:, 1:]

    images, targets = make_shapes(400, difficulty=0)
    test_images, test_targets = make_shapes(200, split="test", difficulty=0)
    means = np.stack([edges(images[targets == c]).mean(0) for c in range(10)])
    means /= np.linalg.norm(means, axis=(1, 2), keepdims=True)
    scores = np.einsum("nhw,chw->nc", edges(test_images), means)
    assert (scores.argmax(1) == test_targets).mean() > 0.9


@pytest.mark.parametrize(
    "bad",
    [
        {"num_images": 0},
        {"num_images": 5, "seed": -1},
        {"num_images": 5, "difficulty": 1.5},
        {"num_images": 5, "split": "validation"},
    ],
)
def test_bad_arguments(bad):
    with pytest.raises(ValueError, match=r"need|choose from"):
        make_shapes(**bad)
