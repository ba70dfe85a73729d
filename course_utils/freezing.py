"""Freezing the first part of a network, and drawing where it is cut."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from torch import nn

from course_utils.errors import CourseError
from course_utils.measure import count_parameters
from course_utils.plots import COLOURS

__all__ = ["freeze_before", "plot_cuts"]


def freeze_before(model: nn.Module, first_trained: str) -> nn.Module:
    """Freeze all children of ``model`` that stand before ``first_trained``, and return it.

    Frozen: no gradients, and BatchNorm2d works with its running statistics and leaves them alone,
    in training too. So are the model's own parameters, such as the positions of a transformer,
    which enter before its blocks. Changes the model in place: `timm.utils.freeze` replaces each
    frozen BatchNorm2d by one whose numbers are buffers, so that they no longer count as
    parameters.

    Args:
        first_trained: name of a child, such as ``"layer3"`` or ``"fc"``; with the name of the
            first child nothing is frozen.

    Raises:
        CourseError: no child of that name.
    """
    frozen = _list_frozen(model, first_trained)
    if frozen:  # timm takes an empty list for the whole model
        from timm.utils import freeze

        freeze(model, frozen)
        for parameter in model.parameters(recurse=False):
            parameter.requires_grad_(False)
    return model


def _list_frozen(model: nn.Module, first_trained: str) -> list[str]:
    children = [name for name, _ in model.named_children()]
    if first_trained not in children:
        raise CourseError(f"no child {first_trained!r} to train from: use {', '.join(children)}")
    return children[: children.index(first_trained)]


def plot_cuts(model: nn.Module, cuts: Mapping[str, str], title: str) -> Axes:
    """Draw each cut as a row of the model's children that have parameters: frozen ones are grey.

    Args:
        cuts: name of a scheme to the first child that it trains.

    Raises:
        CourseError: no child of that name.
    """
    sizes = {name: count_parameters(child) for name, child in model.named_children()}
    sizes = {name: size for name, size in sizes.items() if size}
    _, axis = plt.subplots(figsize=(8, 0.4 + 0.75 * len(cuts)))
    for row, first_trained in enumerate(cuts.values()):
        frozen = _list_frozen(model, first_trained)
        for column, (name, size) in enumerate(sizes.items()):
            box, ink = ("#dddddd", "black") if name in frozen else (COLOURS[0], "white")
            axis.barh(-row, 0.94, left=column, height=0.7, color=box)
            place = {"ha": "center", "va": "center", "fontsize": 8, "color": ink}
            axis.text(column + 0.47, -row, f"{name}\n{size:,}", **place)
        share = 1 - sum(sizes.get(name, 0) for name in frozen) / sum(sizes.values())
        axis.text(len(sizes) + 0.1, -row, f"{share:.1%} trained", va="center")
    axis.set_yticks([-row for row in range(len(cuts))], list(cuts))
    axis.set(xlim=(0, len(sizes) + 1.4), xticks=[], title=title)
    axis.grid(False)
    axis.spines[["left", "bottom"]].set_visible(False)
    return axis
