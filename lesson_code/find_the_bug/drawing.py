"""Figures of lesson 90, without their titles: pairs of curves, differences, measurements."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np

from course_utils import plots
from course_utils.measure.paired import PairedDifference

__all__ = ["BLUE", "ORANGE", "draw_pairs", "draw_readings", "draw_rows"]

BLUE, ORANGE = plots.COLOURS[:2]
COLUMNS = 6
REPORT_LOSS = ("2", "3", "8")  # scripts whose authors report a validation loss
LOSS_MARGIN = 0.05


def draw_pairs(curves: Mapping[str, Sequence], colours: Mapping[str, Sequence]) -> None:
    """A column of two panels for each script: its training loss, and what it reports.

    Args:
        curves: by the script's number, perhaps with a name: for each seed, the two curves of the
            faulty script and those of the corrected one.
        colours: by the same names: that of the faulty and that of the corrected script.
    """
    plots.use_style()
    _, axes = plt.subplots(4, COLUMNS, figsize=(9.6, 5.6), dpi=90, layout="constrained")
    for place in range(2 * COLUMNS):
        column = axes[2 * (place // COLUMNS) :, place % COLUMNS][:2]
        if place >= len(curves):
            [axis.axis("off") for axis in column]
            continue
        name = list(curves)[place]
        for pair in curves[name]:
            for run, colour in zip(pair, colours[name], strict=True):
                for axis, curve in zip(column, run, strict=True):
                    axis.plot(range(1, len(curve) + 1), curve, color=colour, lw=1)
        for axis in column:
            axis.locator_params(axis="x", integer=True, nbins=4)
            axis.tick_params(labelsize=7)
        reported = "val. loss" if name.split()[0] in REPORT_LOSS else "accuracy, %"
        column[0].set_title(name, fontsize=9)
        column[0].set_xlabel("")
        column[1].set_xlabel("epoch", fontsize=8)
        for axis, label in zip(column, ("training loss", reported), strict=True):
            axis.set_ylabel(label, fontsize=7)


def draw_rows(rows: Sequence[PairedDifference]) -> None:
    """One row for each script without its name: the difference of the losses, with its interval."""
    _, axis = plt.subplots(figsize=(8, 3.4))
    axis.axvspan(-LOSS_MARGIN, LOSS_MARGIN, color=plots.GREY, alpha=0.25, lw=0)
    axis.axvline(0, color="black", lw=1)
    for place, found in enumerate(rows):
        word = found.verdict(more_is_better=False, margin=LOSS_MARGIN)
        colour = {"hurts": ORANGE, "helps": BLUE}.get(word, "black")
        half = found.high - found.mean
        axis.errorbar(found.mean, -place, xerr=half, fmt="o", color=colour, capsize=3)
    for colour, label in (
        (ORANGE, "clearly higher"),
        (BLUE, "clearly lower"),
        ("black", "neither"),
    ):
        axis.plot([], [], "o", color=colour, label=label)
    axis.set_xscale("symlog", linthresh=0.1, linscale=0.7)
    ticks = (-3, -1, -0.3, -0.1, 0, 0.1, 0.3, 1, 3)
    axis.set_xticks(ticks, [f"{x:+g}" if x else "0" for x in ticks])
    axis.minorticks_off()
    axis.set_yticks([])
    label = "training loss at the end, faulty minus corrected (grey: ±0.05)"
    axis.set(xlabel=label, ylabel="eleven scripts")
    axis.legend(fontsize=8, loc="upper right")


def draw_readings(
    readings: Mapping[str, Sequence[Sequence[float]]],
    names: Sequence[str],
    margins: Sequence[float],
) -> dict[str, list[bool]]:
    """A table of measurements of faulty scripts and corrections; those that differ are marked.

    Args:
        readings: by script: for each measurement the two numbers; NaN: it has none.
        names: of the measurements.
        margins: differences up to these are no differences.

    Returns:
        by script, for each measurement whether it differs.
    """
    differs = {
        script: [bool(abs(one - two) > m) for (one, two), m in zip(values, margins, strict=True)]
        for script, values in readings.items()
    }
    _, axis = plt.subplots(figsize=(9.4, 3.2))
    marks = np.array(list(differs.values()), dtype=float).reshape(-1, len(names))
    axis.imshow(marks, cmap="Oranges", vmin=0, vmax=2, aspect="auto")
    for row, values in enumerate(readings.values()):
        for column, (one, two) in enumerate(values):
            shown = [f"{round(x, 4) + 0:.3g}" for x in (one, two)]
            text = " | ".join(shown) if np.isfinite(one) else "–"
            weight = "bold" if marks[row, column] else "normal"
            axis.text(column, row, text, ha="center", va="center", fontsize=8, weight=weight)
    axis.set_xticks(range(len(names)), names, fontsize=8, rotation=20)
    axis.set_yticks(range(len(readings)), list(readings))
    axis.grid(visible=False)
    axis.set(xlabel="measurement", ylabel="script")
    return differs
