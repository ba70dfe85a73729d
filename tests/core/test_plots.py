import warnings

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from fontTools.ttLib import TTFont
from matplotlib import font_manager

from course_utils import plots
from course_utils.errors import CourseError
from course_utils.models.create import create_model
from course_utils.plots import (
    COLOURS,
    plot_against_parameters,
    plot_confusion,
    plot_cuts,
    plot_images,
    plot_paired,
    use_style,
)
from course_utils.training.compare import Comparison
from course_utils.training.run import Run


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


def test_a_users_latex_is_switched_off(monkeypatch):  # own-usetex
    monkeypatch.setitem(matplotlib.rcParams, "text.usetex", True)
    use_style()
    assert not matplotlib.rcParams["text.usetex"]


def test_colours_differ():
    assert len(set(COLOURS)) == len(COLOURS)


def make_run(arm, seed, trained):
    metrics = {"val_accuracy": 0.5 + 0.1 * seed - trained / 1000}
    return Run(arm, seed, metrics, [], 1.0, None, trained, 100, None, None, {})


def make_comparison(seeds):
    arms = {"full": 100, "last": 10}
    runs = [make_run(arm, seed, trained) for seed in seeds for arm, trained in arms.items()]
    return Comparison("name", ("full", "last"), tuple(seeds), tuple(runs))


def test_accuracy_stands_above_the_parameters_that_were_trained():
    panels = {"few": make_comparison((0, 1)), "many": make_comparison((0, 1, 2))}
    figure = plot_against_parameters(panels, "title")
    few, many = figure.axes
    assert [axis.get_title(loc="left") for axis in (few, many)] == ["few", "many"]
    assert [x for line in few.lines[::4] for x in set(line.get_xdata())] == [100, 10]
    dots = [sorted(line.get_ydata()) for line in few.lines[::4]]  # per cent, a dot a seed
    assert np.allclose(dots, [[40, 50], [49, 59]])
    labels = [text.get_text() for text in many.get_legend().get_texts()]
    assert labels == ["full", "last"]


def test_one_seed_has_no_interval_against_parameters():
    figure = plot_against_parameters({"one": make_comparison((0,))}, "title")
    assert not figure.axes[0].collections  # no error bar was drawn


def test_cuts_name_every_child_with_parameters_and_their_share():
    model = create_model("convnet_small", num_classes=10)
    axis = plot_cuts(model, {"last": "fc", "full": "stem"}, "title")
    texts = [text.get_text() for text in axis.texts]
    assert texts[5] == "fc\n2,570"
    assert [text for text in texts if "trained" in text] == ["0.2% trained", "100.0% trained"]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_any_number_of_comparisons_has_a_panel_each(count):
    panels = {str(k): make_comparison((0, 1)) for k in range(count)}
    assert len(plot_against_parameters(panels, "title").axes) == count


def test_cuts_may_be_at_a_child_without_parameters_and_must_be_at_a_child():
    model = create_model("convnet_small", num_classes=10)
    texts = [text.get_text() for text in plot_cuts(model, {"cut": "global_pool"}, "title").texts]
    assert texts[-1] == "0.2% trained"
    with pytest.raises(CourseError, match="no child 'layer9'"):
        plot_cuts(model, {"cut": "layer9"}, "title")


@pytest.fixture
def fonts(monkeypatch, tmp_path):
    """A machine that has matplotlib's own fonts only; returns a function that installs one more."""
    own = [x for x in font_manager.fontManager.ttflist if "mpl-data" in x.fname]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    monkeypatch.setattr(plots, "_without_font", set())
    found = []
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: found)

    def install(name, signs):
        font = TTFont(font_manager.findfont("DejaVu Sans"))
        for table in font["cmap"].tables:
            if table.isUnicode():
                table.cmap = {ord(sign): "A" for sign in signs}
        for record in font["name"].names:
            if record.nameID in (1, 4, 6, 16):
                record.string = name
        path = tmp_path / f"{name}.ttf"
        font.save(path)
        found.append(str(path))

    with warnings.catch_warnings(), matplotlib.rc_context():
        use_style()
        yield install


def draw_names(names):
    """The warnings of two figures with the names of classes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plots.cover_signs(names)  # its filter counts after the one above
        for _ in range(2):
            plot_confusion(np.eye(len(names)), names, "title").canvas.draw()
    # a collection of garbage may warn of what earlier tests left open
    return [str(x.message) for x in caught if not issubclass(x.category, ResourceWarning)]


@pytest.mark.parametrize(
    "names", [("圆盘", "条纹"), ("ねこ", "いぬ"), ("고양이", "개"), ("แมว", "a")]
)
def test_a_font_of_the_machine_draws_what_the_usual_one_lacks(fonts, names, capsys):
    fonts("One Sign", names[0][0])
    fonts("All Signs", "".join(names))
    assert draw_names(names) == []
    assert plt.rcParams["font.family"] == ["sans-serif", "All Signs"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("names", [("圆盘", "条纹"), ("ねこ", "cat"), ("고양이", "개")])
def test_without_a_font_it_is_said_once(fonts, names, capsys):
    assert draw_names(names) == []
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert f"No font of this machine has the signs {min(''.join(names).strip('cat'))}" in out
    assert plt.rcParams["font.family"] == ["sans-serif"]


def test_the_font_that_has_most_is_taken_and_the_rest_is_said(fonts, capsys):
    fonts("Some Signs", "圆盘条")
    assert draw_names(("圆盘", "条纹")) == []
    assert "has the signs 纹: figures show boxes" in capsys.readouterr().out
    assert plt.rcParams["font.family"] == ["sans-serif", "Some Signs"]


def test_names_that_can_be_drawn_change_nothing(fonts, capsys):
    fonts("Other", "é")
    assert draw_names(("café", "Ölfaß\nas ñandú", "кошка – λ")) == []
    assert plt.rcParams["font.family"] == ["sans-serif"]
    assert capsys.readouterr().out == ""
