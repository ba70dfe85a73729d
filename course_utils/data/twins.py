"""Twins: the same picture in two splits or in two classes, as a copy or in another size."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["NamedImages", "find_twins", "tell_leaked", "tell_mixed"]

COARSE_SIDE = 8  # pixels of the reduced images that are compared with all others
# Distances are relative to the two images' contrast. Thumbnails of photographs, 64 to 320 pixels
# wide and of JPEG quality 40 to 85, differ from their originals by at most 0.09 at 8 × 8 pixels;
# the nearest two of 4,000 different photographs of CIFAR-10 by 0.19.
COARSE_DISTANCE = 0.1
FULL_DISTANCE = 0.35  # at 32 × 32; two textures that are the same grey when reduced differ by 1
ROWS = 512  # images that are compared with others at once


class NamedImages(NamedTuple):
    """Images with what a person calls them."""

    images: np.ndarray  # (N, 32, 32, 3) uint8
    targets: np.ndarray  # (N,) int64
    names: Sequence[str]  # of their files


def find_twins(images: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The nearest image of another group, if it shows the same picture.

    Args:
        images: ``(N, 32, 32, 3)`` uint8.
        groups: ``(N,)`` int; images of one group are not compared.

    Returns:
        ``(N,)`` int64, the index of the twin, or -1 where there is none.
    """
    coarse = _reduce(images)
    flat = coarse.reshape(len(images), -1) - 128  # (N, P), about 0 so that squares stay small
    means = flat.mean(1)
    order = np.argsort(means, kind="stable")
    reach = COARSE_DISTANCE * _contrast(coarse).max() + 1e-3  # means differ by less than images do
    twins = np.full(len(images), -1)
    for start in range(0, len(images), ROWS):
        rows = order[start : start + ROWS]
        columns = order[
            np.searchsorted(means, means[rows[0]] - reach, sorter=order) : np.searchsorted(
                means, means[rows[-1]] + reach, side="right", sorter=order
            )
        ]
        distances = _square_distances(flat[rows], flat[columns])
        distances[groups[rows, None] == groups[None, columns]] = np.inf
        nearest = distances.argmin(1)
        pair = rows, columns[nearest]
        same = np.isfinite(distances[np.arange(len(rows)), nearest])
        same &= _are_close(coarse[pair[0]], coarse[pair[1]], COARSE_DISTANCE)
        first, second = (images[one].astype(np.float32) for one in pair)
        same &= _are_close(first, second, FULL_DISTANCE)
        twins[rows[same]] = pair[1][same]
    return twins


def tell_leaked(seen: NamedImages, new: NamedImages, split: str) -> None:
    """Print one line if images of a split show the same as images that were seen before it.

    Args:
        seen: what is trained on, or chosen by.
        new: what the accuracy of ``split`` (``"validation"``, ``"test"``) is measured on.
    """
    images = np.concatenate([seen.images, new.images])
    is_new = np.arange(len(images)) >= len(seen.images)
    twins = find_twins(images, is_new)
    leaked = np.flatnonzero(is_new & (twins >= 0))
    if len(leaked):
        pairs = _name_pairs(leaked, twins, [*seen.names, *new.names])
        print(
            f"{len(leaked):,} of {len(new.images):,} {split} images show the same as a training "
            f"image ({pairs}): delete one of each two, or the accuracy is partly that of images "
            "that were trained on."
        )


def tell_mixed(seen: NamedImages) -> None:
    """Print one line if images show the same as images of another class."""
    twins = find_twins(seen.images, seen.targets)
    mixed = np.flatnonzero(twins >= 0)
    if len(mixed):
        print(
            f"{len(mixed):,} of {len(twins):,} images show the same as one of another class "
            f"({_name_pairs(mixed, twins, seen.names)}): leave each in one class."
        )


def _name_pairs(found: np.ndarray, twins: np.ndarray, names: Sequence[str]) -> str:
    """The first two pairs by their names."""
    pairs = list(dict.fromkeys(tuple(sorted((names[i], names[twins[i]]))) for i in found))
    said = [" and ".join(pair) for pair in pairs[:2]]
    return "; ".join(said) + ("; …" if len(pairs) > 2 else "")


def _reduce(images: np.ndarray) -> np.ndarray:
    """``(N, 8, 8, 3)`` float32: means over blocks."""
    step = images.shape[1] // COARSE_SIDE
    blocks = images.reshape(-1, COARSE_SIDE, step, COARSE_SIDE, step, 3)
    return blocks.mean((2, 4), dtype=np.float32)


def _square_distances(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """``(R, C)``: squared Euclidean distance of each row to each column."""
    squares = (rows**2).sum(1)[:, None] + (columns**2).sum(1)[None]
    return squares - 2 * rows @ columns.T


def _contrast(images: np.ndarray) -> np.ndarray:
    """``(N,)``: standard deviation within a channel of ``(N, H, W, 3)``; 0 of one flat colour."""
    return np.sqrt(images.var((1, 2)).mean(1))


def _are_close(first: np.ndarray, second: np.ndarray, distance: float) -> np.ndarray:
    """``(N,)`` bool: root mean square difference against the geometric mean of the contrasts."""
    difference = np.sqrt(((first - second) ** 2).mean((1, 2, 3)))
    return difference <= distance * np.sqrt(_contrast(first) * _contrast(second))
