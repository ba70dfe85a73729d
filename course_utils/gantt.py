"""Bars in lanes over time: who does what, and when."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Patch

__all__ = ["Bar", "draw_bars", "make_legend"]

NARROW = 0.015  # of the width of all bars: a label would not fit


@dataclass(frozen=True)
class Bar:
    """One bar: ``lane`` does something of this ``kind`` from ``start`` to ``end``."""

    lane: str
    kind: str
    start: float
    end: float
    label: str = ""  # a short word inside of the bar


def draw_bars(
    axis: Axes, bars: Iterable[Bar], colours: Mapping[str, str], lanes: Sequence[str] = ()
) -> None:
    """Draw each bar in its lane, the first lane on top; a narrow bar has no label.

    Args:
        bars: their times may have any unit, which the caller writes at the x axis.
        colours: of the kinds of bars.
        lanes: from top to bottom; without them, all lanes of the bars in sorted order.
    """
    bars = list(bars)
    lanes = list(lanes) or sorted({bar.lane for bar in bars})
    width = max((bar.end for bar in bars), default=0) - min((bar.start for bar in bars), default=0)
    for bar in bars:
        row, length = lanes.index(bar.lane), bar.end - bar.start
        is_wide = length > NARROW * width
        edge = "white" if is_wide else colours[bar.kind]  # a white one would hide a narrow bar
        axis.barh(row, length, 0.8, left=bar.start, color=colours[bar.kind], edgecolor=edge, lw=0.6)
        if bar.label and is_wide:
            middle = bar.start + length / 2
            axis.text(middle, row, bar.label, ha="center", va="center", fontsize=7, color="white")
    axis.set_yticks(range(len(lanes)), lanes, fontsize=8)
    axis.set(ylim=(len(lanes) - 0.4, -0.6), ylabel="")
    axis.grid(False)


def make_legend(
    bars: Iterable[Bar], colours: Mapping[str, str], names: Mapping[str, str] | None = None
) -> list[Patch]:
    """Handles for a legend: a patch for each kind that occurs, in the order of ``colours``."""
    kinds = {bar.kind for bar in bars}
    return [
        Patch(color=colour, label=(names or {}).get(kind, kind))
        for kind, colour in colours.items()
        if kind in kinds
    ]
