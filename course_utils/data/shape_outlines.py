"""Signed-distance outlines of the ten objects that `course_utils.data.shapes` draws.

An outline is a function ``(x, y) -> distance`` of pixel coordinates in units of the object's
size (y points up): negative inside, zero on the edge, positive outside. Union is a minimum,
intersection a maximum, a hole the absolute value.
"""

from collections.abc import Callable

import numpy as np

__all__ = ["COS", "OUTLINES"]

# cosine of whole degrees, rounded: the same table on every machine
COS = np.round(np.cos(np.deg2rad(np.arange(360))), 6).astype(np.float32)

_UPWARD = (30, 150, 270)  # normals of a triangle that stands on its base

Field = np.ndarray  # (N, 32, 32) float32: one value per pixel


def _polygon(x: Field, y: Field, degrees: tuple[int, ...], inradius: float) -> Field:
    """Intersection of half-planes whose outward normals point to ``degrees``."""

    def height(angle: int) -> Field:  # of each pixel, along the normal
        return x * COS[angle % 360] + y * COS[(angle - 90) % 360]

    distance = height(degrees[0])
    for angle in degrees[1:]:
        np.maximum(distance, height(angle), out=distance)
    distance -= np.float32(inradius)
    return distance


def _disc(x: Field, y: Field, radius: float, cx: float = 0.0, cy: float = 0.0) -> Field:
    x = x - np.float32(cx)
    y = y - np.float32(cy)
    return np.sqrt(x * x + y * y) - np.float32(radius)


def _box(x: Field, y: Field, hx: float, hy: float, cx: float = 0.0, cy: float = 0.0) -> Field:
    return np.maximum(
        np.abs(x - np.float32(cx)) - np.float32(hx), np.abs(y - np.float32(cy)) - np.float32(hy)
    )


def _hexagram(x: Field, y: Field) -> Field:
    sides = [x * COS[a] + y * COS[(a - 90) % 360] for a in _UPWARD]
    up = np.maximum(np.maximum(sides[0], sides[1]), sides[2])
    down = -np.minimum(np.minimum(sides[0], sides[1]), sides[2])
    return np.minimum(up, down) - np.float32(0.5)


def _heart(x: Field, y: Field) -> Field:
    x = np.abs(x)
    lobe = _disc(x, y, 0.48, 0.42, 0.34)
    wedge = np.maximum(_polygon(x, y, (318,), 0.565), y - np.float32(0.34))
    return np.minimum(lobe, wedge)


def _arrow(x: Field, y: Field) -> Field:
    head = _polygon(x, y - np.float32(0.3), _UPWARD, 0.4)
    return np.minimum(head, _box(x, y, 0.2, 0.5, cy=-0.45))


OUTLINES: dict[str, Callable[[Field, Field], Field]] = {  # by the name of the class
    "arrow": _arrow,
    "crescent": lambda x, y: np.maximum(_disc(x, y, 0.92), -_disc(x, y, 0.75, cx=0.5)),
    "cross": lambda x, y: np.minimum(_box(x, y, 0.95, 0.3), _box(x, y, 0.3, 0.95)),
    "disc": lambda x, y: _disc(x, y, 0.82),
    "heart": _heart,
    "pentagon": lambda x, y: _polygon(x, y, (54, 126, 198, 270, 342), 0.74),
    "ring": lambda x, y: np.abs(_disc(x, y, 0.7)) - np.float32(0.2),
    "square": lambda x, y: _box(x, y, 0.72, 0.72),
    "star": _hexagram,
    "triangle": lambda x, y: _polygon(x, y, _UPWARD, 0.52),
}
