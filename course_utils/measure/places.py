"""Places of several recipes: one only where the 95 % intervals do not overlap."""

from collections.abc import Mapping, Sequence

import numpy as np

from course_utils.measure.paired import paired_difference

__all__ = ["Interval", "find_places", "mean_interval"]

Interval = tuple[float, float]


def mean_interval(accuracies: Sequence[float]) -> Interval:
    """The 95 % t-interval of the mean over seeds; infinite for one seed."""
    found = paired_difference(np.zeros(len(accuracies)), np.asarray(accuracies))
    return found.low, found.high


def find_places(intervals: Mapping[str, Interval]) -> dict[str, tuple[int, int]]:
    """The best and the worst place that each entry can have.

    An entry is ahead of another one if its whole interval lies above. Entries whose intervals
    overlap share their places: with the intervals (0.6, 0.7), (0.65, 0.75) and (0.1, 0.2) the
    first two have the places 1 to 2, and the third one has place 3.
    """
    found = {}
    for name, (low, high) in intervals.items():
        above = sum(other_low > high for other_low, _ in intervals.values())
        below = sum(other_high < low for _, other_high in intervals.values())
        found[name] = (above + 1, len(intervals) - below)
    return found
