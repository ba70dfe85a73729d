import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from course_utils.plots import COLOURS, plot_confusion, plot_images, plot_paired


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def test_paired_plot_draws_each_seed_the_mean_and_the_noise_floor():
    values = {"baseline": np.array([0.5, 0.6, 0.7]), "mixup": np.array([0.51, 0.62, 0.73])}
    axis = plot_paired(values, "val_accuracy", "title")
    dots = axis.lines[1].get_xdata()
    assert np.allclose(dots, [1, 2, 3])  # percentage points
    assert [text.get_text() for text in axis.get_yticklabels()] == ["mixup"]
    labels = [text.get_text() for text in axis.get_legend().get_texts()]
    assert labels == ["noise floor (±1 std of baseline)", "one seed", "mean, 95 % interval"]


def test_paired_plot_of_one_arm_shows_its_spread_about_its_mean():
    axis = plot_paired({"baseline": np.array([0.5, 0.6, 0.7])}, "val_accuracy", "title")
    assert np.allclose(axis.lines[1].get_xdata(), [-10, 0, 10])
    assert "from its mean" in axis.get_xlabel()


def test_paired_plot_of_one_seed_has_no_interval():
    values = {"baseline": np.array([0.5]), "other": np.array([0.6])}
    axis = plot_paired(values, "val_accuracy", "title")
    assert "no interval" in axis.get_legend().get_texts()[-1].get_text()


def test_image_grid_has_a_label_each():
    figure = plot_images(np.zeros((7, 8, 8, 3), np.uint8), list("abcdefg"), "title", columns=4)
    assert [axis.get_title() for axis in figure.axes] == [*"abcdefg", ""]


def test_confusion_matrix_writes_its_counts():
    figure = plot_confusion(np.array([[5, 0], [2, 9]]), ["cat", "dog"], "title")
    assert [text.get_text() for text in figure.axes[0].texts] == ["5", "2", "9"]


def test_colours_differ():
    assert len(set(COLOURS)) == len(COLOURS)
