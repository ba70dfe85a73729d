"""Figures of the course: one look, colours that colour-blind readers can tell apart."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn

from course_utils.measure.memory import count_parameters
from course_utils.measure.paired import METRICS, paired_difference
from course_utils.models.freeze import list_frozen

if TYPE_CHECKING:  # a figure needs no Lightning, which takes seconds to import
    from course_utils.training.compare import Comparison
    from course_utils.training.run import Run

__all__ = [
    "COLOURS",
    "cover_signs",
    "plot_against_parameters",
    "plot_confusion",
    "plot_cuts",
    "plot_images",
    "plot_learning_curves",
    "plot_paired",
    "use_style",
]

# M. Okabe and K. Ito, Color Universal Design, 2008, a brown in place of yellow for the eighth: the
# n-th variant has the n-th colour throughout
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C510A")
GREY = "#999999"
PLACEHOLDERS = "Last Resort"  # a font that comes with matplotlib, with a box for every sign
_without_font: set[str] = set()  # signs of which it was said that they are shown as boxes


def use_style() -> None:
    """Set matplotlib's defaults for a notebook: readable at 100 dpi, no boxes, quiet grid.

    LaTeX is switched off, whatever a user's ``matplotlibrc`` says: it may not be installed, and it
    would read the ``%`` of a label as a comment.
    """
    plt.rcParams.update(
        {
            "figure.dpi": 100,
            "figure.constrained_layout.use": True,
            "axes.prop_cycle": plt.cycler(color=COLOURS),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.titlelocation": "left",
            "axes.titlesize": 11,
            "grid.alpha": 0.25,
            "font.size": 10,
            "legend.frameon": False,
            "svg.hashsalt": "course",
            "text.usetex": False,
        }
    )


def cover_signs(texts: Iterable[str]) -> None:
    """Let figures show the signs of ``texts``, such as class names in Chinese.

    If matplotlib's fonts lack some, the font of this machine that has the most of them is added as
    a fallback; what no font has is said once, and shown as boxes.
    """
    missing = {sign for sign in "".join(texts) if not sign.isspace()} - _without_font
    families = plt.rcParams["font.family"]
    missing = _lacking(
        missing,
        [font_manager.findfont(font_manager.FontProperties(family=[name])) for name in families],
    )
    if not missing:
        return
    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in set(font_manager.findSystemFonts()) - known:  # installed since matplotlib looked
        with suppress(Exception):  # one that matplotlib cannot draw
            font_manager.fontManager.addfont(path)
    left = {
        entry.name: _lacking(missing, [entry.fname])
        for entry in font_manager.fontManager.ttflist
        if entry.style == "normal" and not entry.name.startswith(PLACEHOLDERS)
    }
    best = min(left, key=lambda name: (len(left[name]), "Sans" not in name, name))
    if len(left[best]) < len(missing):
        plt.rcParams["font.family"] = [*families, best]
    if left[best]:
        _without_font.update(left[best])
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # one for each sign
        print(
            f"No font of this machine has the signs {' '.join(sorted(left[best])[:10])}: figures "
            "show boxes. Install one, such as Noto Sans CJK, and restart the kernel."
        )


def _lacking(signs: set[str], paths: Iterable[str]) -> set[str]:
    """Those of ``signs`` that none of the fonts has."""
    for path in paths:
        with suppress(OSError, RuntimeError):  # a font that is gone, or damaged
            font = font_manager.get_font(path)
            signs = {sign for sign in signs if not font.get_char_index(ord(sign))}
    return signs


def plot_images(
    images: np.ndarray, labels: Sequence[str], title: str, columns: int = 10, size: float = 0.7
) -> Figure:
    """A grid of images ``(N, H, W, 3)`` uint8, each with its label above it.

    ``columns`` images per row, each ``size`` inches wide.
    """
    cover_signs(labels)
    rows = -(-len(images) // columns)
    lines = 1 + max(label.count("\n") for label in labels)
    height = rows * (size + 0.16 * lines) + 0.35
    figure, axes = plt.subplots(rows, columns, figsize=(columns * size, height), squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    for axis, image, label in zip(axes.flat, images, labels, strict=False):
        axis.imshow(image, interpolation="nearest")
        axis.set_title(label, fontsize=8, loc="center", pad=2)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def plot_learning_curves(runs: Sequence["Run"], title: str) -> Figure:
    """Loss and accuracy over epochs: training dashed, validation solid, one colour per variant."""
    figure, (loss, accuracy) = plt.subplots(1, 2, figsize=(8, 2.9))
    arms = list(dict.fromkeys(run.arm for run in runs))
    for run in runs:
        colour = COLOURS[arms.index(run.arm) % len(COLOURS)]
        first = run is next(other for other in runs if other.arm == run.arm)
        epochs = [row["epoch"] for row in run.history]
        for axis, metric in ((loss, "loss"), (accuracy, "accuracy")):
            for split, style in (("train", "--"), ("val", "-")):
                values = [row.get(f"{split}_{metric}", np.nan) for row in run.history]
                name = {"train": "training", "val": "validation"}[split]
                label = f"{run.arm}, {name}" if first else None
                axis.plot(epochs, values, style, color=colour, alpha=0.8, label=label, marker=".")
    loss.set(xlabel="epoch", ylabel="cross-entropy (nats)")
    accuracy.set(xlabel="epoch", ylabel="accuracy (share of images)")
    for axis in (loss, accuracy):
        axis.xaxis.get_major_locator().set_params(integer=True)
    loss.legend(fontsize=8)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def plot_paired(values: Mapping[str, np.ndarray], metric: str, title: str) -> Axes:
    """Paired differences from the first variant: one dot per seed, the mean, its 95 % interval.

    The band is the noise floor: one standard deviation of the baseline over its seeds. With one
    variant only, its own values are drawn about their mean.

    Args:
        values: variant to one value per seed, in the metric's own unit; all have the same seeds.
        metric: a name in a run's ``metrics``.
    """
    name, factor, unit, _, _ = METRICS[metric]
    _, axis = plt.subplots(figsize=(7, 1.2 + 0.55 * max(1, len(values) - 1)))
    (baseline, reference), *others = values.items()
    reference = np.asarray(reference, dtype=float)
    if not others:
        others = [(baseline, reference)]
        reference = np.full_like(reference, reference.mean())
    rows = np.arange(len(others))[::-1]
    spread = factor * np.std(values[baseline], ddof=1) if len(reference) > 1 else np.nan
    if spread > 0:  # none with one seed (nan), or where all values are the same
        floor = f"noise floor (±1 std of {baseline})"
        axis.axvspan(-spread, spread, color=GREY, alpha=0.2, lw=0, label=floor)
    axis.axvline(0, color="black", lw=1)
    for row, (arm, arm_values) in zip(rows, others, strict=True):
        found = paired_difference(reference, arm_values)
        dots = factor * (np.asarray(arm_values, dtype=float) - reference)
        lanes = row + np.linspace(0.12, 0.3, len(dots))  # equal values stay visible
        axis.plot(dots, lanes, "o", color=GREY, ms=5, label="one seed")
        half = factor * (found.high - found.mean)
        colour = COLOURS[list(values).index(arm) % len(COLOURS)]
        error = half if np.isfinite(half) else None
        label = "mean, 95 % interval" if error is not None else "mean (one seed: no interval)"
        axis.errorbar(factor * found.mean, row, xerr=error, fmt="D", color=colour, capsize=4)
    axis.plot([], [], "D", color="black", label=label)
    axis.set_yticks(rows, [arm for arm, _ in others])
    axis.set_ylim(-0.6, len(others) - 0.3)
    against = "its mean" if len(values) == 1 else baseline
    axis.set(xlabel=f"{name}: difference from {against} ({unit})", title=title)
    handles = dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    axis.legend(handles.values(), handles, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return axis


def plot_against_parameters(comparisons: Mapping[str, "Comparison"], title: str) -> Figure:
    """Accuracy against trained parameters, a panel a comparison: means with 95 % intervals.

    The interval is of the mean over seeds, not of a difference; small dots are seeds.
    """
    rows = -(-len(comparisons) // 2)
    columns = min(2, len(comparisons))
    size = (3.6 * columns + 2.2, 2.6 * rows + 0.5)
    figure, axes = plt.subplots(
        rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False
    )
    for axis in axes.flat[len(comparisons) :]:
        axis.remove()
    for axis, (name, found) in zip(axes.flat, comparisons.items(), strict=False):
        trained = {run.arm: run.trainable_parameters for run in found.runs}
        for number, arm in enumerate(found.arms):
            values = 100 * found.values(arm)
            mean = paired_difference(np.zeros(len(values)), values)
            half = mean.high - mean.mean
            axis.plot([trained[arm]] * len(values), values, ".", color=GREY, zorder=0)
            axis.errorbar(
                trained[arm],
                mean.mean,
                yerr=half if np.isfinite(half) else None,
                fmt="oDsX^vP*"[number % 8],
                color=COLOURS[number % len(COLOURS)],
                capsize=4,
                label=arm,
            )
        axis.set_xscale("log")
        axis.set_title(name if len(comparisons) > 1 else "", loc="left")
        axis.label_outer()
    figure.supxlabel("trained parameters", fontsize=10)
    figure.supylabel("accuracy (%)", fontsize=10)
    axes[0, -1].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def plot_confusion(counts: np.ndarray, class_names: Sequence[str], title: str) -> Figure:
    """A confusion matrix: ``counts[i, j]`` images of true class i were called class j."""
    cover_signs(class_names)
    figure, axis = plt.subplots(figsize=(4.9, 4.3))
    axis.grid(False)
    image = axis.imshow(counts, cmap="Blues")
    dark = counts.max() / 2
    for (row, column), count in np.ndenumerate(counts):
        if count:
            colour = "white" if count > dark else "black"
            axis.text(
                column, row, str(int(count)), ha="center", va="center", color=colour, fontsize=8
            )
    ticks = range(len(class_names))
    axis.set_xticks(ticks, class_names, rotation=45, ha="right")
    axis.set_yticks(ticks, class_names)
    axis.set(xlabel="predicted class", ylabel="true class", title=title)
    figure.colorbar(image, label="images", shrink=0.8)
    return figure


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
        frozen = list_frozen(model, first_trained)
        for column, (name, size) in enumerate(sizes.items()):
            box, ink = ("#dddddd", "black") if name in frozen else (COLOURS[0], "white")
            axis.barh(-row, 0.94, left=column, height=0.7, color=box)
            axis.text(
                column + 0.47,
                -row,
                f"{name}\n{size:,}",
                ha="center",
                va="center",
                fontsize=8,
                color=ink,
            )
        share = 1 - sum(sizes.get(name, 0) for name in frozen) / sum(sizes.values())
        axis.text(len(sizes) + 0.1, -row, f"{share:.1%} trained", va="center")
    axis.set_yticks([-row for row in range(len(cuts))], list(cuts))
    axis.set(xlim=(0, len(sizes) + 1.4), xticks=[], title=title)
    axis.grid(False)
    axis.spines[["left", "bottom"]].set_visible(False)
    return axis
