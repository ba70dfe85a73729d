import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_rgba

from course_utils.gantt import Bar, draw_bars, make_legend

BARS = [Bar("b", "work", 0, 2, "W"), Bar("a", "wait", 1, 1.5), Bar("b", "wait", 2, 3)]
COLOURS = {"wait": "#b0b0b0", "never": "#000000", "work": "#0072B2"}


@pytest.fixture
def axis():
    with plt.style.context("default"):  # another test may have taken the course's style
        figure, axis = plt.subplots()
        yield axis
    plt.close(figure)


def test_each_bar_lies_in_its_lane_at_its_time(axis):
    draw_bars(axis, BARS, COLOURS)
    assert [label.get_text() for label in axis.get_yticklabels()] == ["a", "b"]
    found = [
        (round(patch.get_y() + patch.get_height() / 2), patch.get_x(), patch.get_width())
        for patch in axis.patches
    ]
    assert found == [(1, 0, 2), (0, 1, 0.5), (1, 2, 1)]
    assert [patch.get_facecolor() for patch in axis.patches] == [
        to_rgba(COLOURS[bar.kind]) for bar in BARS
    ]
    assert [text.get_text() for text in axis.texts] == ["W"]
    assert axis.yaxis_inverted()


def test_lanes_may_be_given_and_may_be_empty(axis):
    draw_bars(axis, BARS, COLOURS, lanes=["c", "b", "a"])
    assert [label.get_text() for label in axis.get_yticklabels()] == ["c", "b", "a"]
    assert round(axis.patches[0].get_y() + 0.4) == 1


def test_a_narrow_bar_has_no_label(axis):
    draw_bars(axis, [Bar("a", "work", 0, 1, "no"), Bar("a", "work", 1, 100, "yes")], COLOURS)
    assert [text.get_text() for text in axis.texts] == ["yes"]
    assert len(axis.patches) == 2


def test_the_legend_has_the_kinds_that_occur():
    handles = make_legend(BARS, COLOURS, {"wait": "idle"})
    assert [handle.get_label() for handle in handles] == ["idle", "work"]
