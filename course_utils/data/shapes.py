"""The data set `shapes`: 32×32 RGB images of ten classes, drawn from a seed.

It needs no file. The lessons on transfer use it as images of another domain, and tests because
it is cheap. Every object is a signed-distance function, drawn anti-aliased with random pose,
size, colour and shading over a graded background with distractor lines and noise.

The bytes depend on the seed alone, not on the machine or the number of threads: only
correctly rounded operations (+ − × ÷ √, comparisons) and a rounded table of sines are used,
and every block of images has a random stream of its own.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from course_utils.data.shape_outlines import COS, OUTLINES

__all__ = ["IMAGE_SIZE", "SPLITS", "make_shapes"]

IMAGE_SIZE = 32
SPLITS = ("train", "test")
_BLOCK = 200  # images drawn at a time: small enough for the cache, a multiple of ten classes


def _uniform(rng: np.random.Generator, low: float, high: float, *shape: int) -> np.ndarray:
    """Numbers of ``shape`` for each image of a block; by default one, for all its pixels."""
    unit = rng.random((_BLOCK, *(shape or (1, 1))), dtype=np.float32)
    return np.float32(low) + unit * np.float32(high - low)


def _draw_background(
    rng: np.random.Generator, px: np.ndarray, py: np.ndarray, hard: np.ndarray
) -> np.ndarray:
    """A mix t of two colours, graded across the image, crossed by distractor lines."""
    angle = rng.integers(0, 360, (_BLOCK, 1, 1))
    slope = _uniform(rng, 0, 1 / IMAGE_SIZE)
    mix = px * (COS[angle] * slope) + py * (COS[angle - 90] * slope)
    mix += np.float32(0.5)
    for _ in range(3):
        angle = rng.integers(0, 360, (_BLOCK, 1, 1))
        line = px * COS[angle] + py * COS[angle - 90]
        line -= _uniform(rng, -14, 14)
        np.abs(line, out=line)
        np.subtract(_uniform(rng, 0.2, 1.6), line, out=line)
        np.clip(line, 0, 1, out=line)
        line *= _uniform(rng, -1.5, 1.5) * hard
        mix += line
    return mix


def _place_objects(
    rng: np.random.Generator, px: np.ndarray, py: np.ndarray, hard: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each pixel's ``x, y`` in the frame and units of the object, and its size in pixels."""
    angle = (rng.integers(-180, 180, (_BLOCK, 1, 1)) * hard).astype(np.int64)
    size = 10 + _uniform(rng, -4, 2) * hard
    stretch = 1 + _uniform(rng, -0.25, 0.25) * hard
    x0, y0 = (_uniform(rng, -5, 5) * hard for _ in range(2))
    cos, sin = COS[angle] / size, COS[angle - 90] / size
    x = ((px - x0) * cos + (py - y0) * sin) * stretch
    y = (py - y0) * cos - (px - x0) * sin
    return x, y, size


def _paint(
    rng: np.random.Generator, mix: np.ndarray, x: np.ndarray, cover: np.ndarray, hard: np.ndarray
) -> np.ndarray:
    """Images ``(200, 32, 32, 3)`` uint8: the object over its background, and noise.

    Object and background differ in lightness by ``contrast``, and freely in hue.
    """
    contrast = _uniform(rng, 0.3, 0.5) - np.float32(0.17) * hard
    contrast *= np.where(rng.integers(0, 2, (_BLOCK, 1, 1)), np.float32(1), np.float32(-1))
    light = _uniform(rng, 0.35, 0.65)
    shade = _uniform(rng, -0.25, 0.25) * x
    hue = _uniform(rng, -0.18, 0.18, 3, 3, 1, 1)
    noise = rng.integers(0, 256, (3, _BLOCK, IMAGE_SIZE, IMAGE_SIZE), dtype=np.uint8)
    images = np.empty((_BLOCK, IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
    for channel in range(3):
        first, second, paint = (hue[:, k, channel] for k in range(3))
        value = mix * (second - first)
        value += light - contrast / 2 + first
        paint = shade + (light + contrast / 2 + paint)
        paint -= value
        paint *= cover
        value += paint
        value *= np.float32(255)
        value += (noise[channel] - np.float32(127.5)) * (np.float32(0.24) * hard)
        np.clip(value, 0, 255, out=value)
        images[..., channel] = value
    return images


def _draw_block(draw: list[Callable], seed: tuple[int, ...], difficulty: float) -> tuple:
    """One block of images ``(200, 32, 32, 3)`` uint8 and its targets ``(200,)`` int64.

    The steps share one random stream: their order is part of the data.
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    targets = np.argsort(rng.random((_BLOCK // len(draw), len(draw))), axis=1).ravel()
    pixel = np.arange(IMAGE_SIZE, dtype=np.float32) - np.float32((IMAGE_SIZE - 1) / 2)
    px, py = pixel[None, None, :], pixel[None, :, None]
    hard = _uniform(rng, 0, difficulty)  # of each image: some are easy, some are not
    mix = _draw_background(rng, px, py, hard)
    x, y, size = _place_objects(rng, px, py, hard)

    # signed distance in units of the object's size, then coverage of each pixel
    cover = np.empty_like(x)
    for label, distance in enumerate(draw):
        of_class = targets == label
        cover[of_class] = distance(x[of_class], -y[of_class])
    cover *= -size
    cover += np.float32(0.5)
    np.clip(cover, 0, 1, out=cover)
    return _paint(rng, mix, x, cover, hard), targets


def make_shapes(
    num_images: int,
    seed: int = 0,
    *,
    split: str = "train",
    difficulty: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw ``num_images`` images of ten classes, the same bytes for the same arguments.

    The first k images do not depend on how many follow, and classes are balanced: each run
    of ten images holds every class once.

    Args:
        num_images: how many, at least 1.
        seed: integer ≥ 0; another seed gives other images of the same distribution.
        split: ``"train"`` or ``"test"``; the two never share a random stream.
        difficulty: 0 (upright, centred, no noise, no distractor lines) to 1 (the default).

    Returns:
        images ``(N, 32, 32, 3)`` uint8, targets ``(N,)`` int64 (index into ``OUTLINES``).

    Raises:
        ValueError: for an argument outside the ranges above.
    """
    if num_images < 1 or seed < 0 or not 0 <= difficulty <= 1:
        raise ValueError(
            f"num_images={num_images}, seed={seed}, difficulty={difficulty}: "
            "need num_images ≥ 1, seed ≥ 0 and difficulty between 0 and 1"
        )
    if split not in SPLITS:
        raise ValueError(f"no split {split!r}: choose from {', '.join(SPLITS)}")
    stream = (seed, SPLITS.index(split), 0)  # the 0 has no meaning: without it come other images
    draw = list(OUTLINES.values())
    blocks = range(-(-num_images // _BLOCK))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        drawn = list(
            pool.map(lambda block: _draw_block(draw, (*stream, block), difficulty), blocks)
        )
    images = np.concatenate([images for images, _ in drawn])[:num_images]
    targets = np.concatenate([targets for _, targets in drawn])[:num_images]
    return images, targets.astype(np.int64)
