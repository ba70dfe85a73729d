"""Labels of a figure's lines, placed where they cover neither each other nor a line."""

from collections.abc import Sequence
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

__all__ = ["list_label_boxes", "place_labels"]

GAP = 5  # points between a label and the dot that it stands next to
CLEAR = 3  # pixels that stay free around a label
STEP = 2  # pixels between the points at which a line is looked at
SIDES = (  # horizontal and vertical direction from the dot, and how the text is aligned
    (-1, 1, "right", "bottom"),
    (0, 1, "center", "bottom"),
    (1, 1, "left", "bottom"),
    (1, 0, "left", "center"),
    (1, -1, "left", "top"),
    (0, -1, "center", "top"),
    (-1, -1, "right", "top"),
    (-1, 0, "right", "center"),
)


def _trace(axis: Axes) -> np.ndarray:
    """Places (N, 2) in pixels along all lines of ``axis``, close to each other."""
    traced = []
    for line in axis.lines:
        dots = axis.transData.transform(np.column_stack(line.get_data()).astype(float))
        traced.append(dots)
        for start, end in pairwise(dots):
            count = max(2, int(np.hypot(*(end - start)) / STEP))
            traced.append(start + np.linspace(0, 1, count)[:, None] * (end - start))
    return np.concatenate(traced) if traced else np.empty((0, 2))


def _measure(label: Annotation) -> Bbox:
    """The label's box in pixels, with what stays free around it."""
    return label.get_window_extent().padded(CLEAR)


def _find_cost(box: Bbox, taken: Sequence[Bbox], traced: np.ndarray, frame: Bbox) -> float:
    """How many places of lines the box covers; infinite on a label or outside the frame."""
    inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
    if not inside or any(box.overlaps(other) for other in taken):
        return np.inf
    return float(((traced > box.min) & (traced < box.max)).all(axis=1).sum())


def _move(label: Annotation, dot: tuple[float, float], side: tuple) -> None:
    right, up, across, along = side
    label.xy = dot
    label.set_position((GAP * right, GAP * up))
    label.set(ha=across, va=along)


def place_labels(
    axis: Axes, labels: Sequence[tuple[str, str, Sequence[tuple[float, float]]]]
) -> None:
    """Write each label next to one of its dots, where it covers no label and as little as it can.

    Call it when lines, limits and title of the figure are complete. Of equally good places the
    first is taken: dots in their order, the place up and to the left of a dot first.

    Args:
        axis: with everything else drawn.
        labels: for each its text, its colour and the dots that it may stand next to.

    Raises:
        ValueError: no place in the axis is free of other labels.
    """
    figure = axis.get_figure(root=True)
    assert figure is not None  # for the type checker
    figure.canvas.draw()  # the layout is fixed from here on
    figure.set_layout_engine("none")
    frame, traced = axis.get_window_extent(), _trace(axis)
    taken: list[Bbox] = []
    for text, colour, dots in labels:
        label = axis.annotate(
            text, dots[0], (0, 0), textcoords="offset points", color=colour, fontsize=10
        )
        best = np.inf, dots[0], SIDES[0]
        for dot in dots:
            for side in SIDES:
                _move(label, dot, side)
                cost = _find_cost(_measure(label), taken, traced, frame)
                if cost < best[0]:
                    best = cost, dot, side
        if best[0] == np.inf:
            plt.close(figure)
            raise ValueError(f"no place for the label {text!r}: make it shorter")
        _move(label, best[1], best[2])
        taken.append(_measure(label))


def list_label_boxes(axis: Axes) -> list[Bbox]:
    """The boxes of all labels in pixels, as they are drawn."""
    axis.figure.canvas.draw()
    return [text.get_window_extent() for text in axis.texts]
