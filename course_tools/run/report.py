"""``course report``: one static, self-contained page from ``course.json``."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from markupsafe import Markup

from course_tools.pages import render_page
from course_tools.run.record import COURSE_FILE, describe_status, read_course
from course_utils.files import write_atomically
from course_utils.measure.paired import METRICS
from course_utils.results import LessonResult, values_by_arm

__all__ = ["write_report"]

TEMPLATE = Path(__file__).with_name("report.html")


def _draw_comparison(name: str, runs: Sequence[Mapping]) -> Markup:
    """The paired differences of one comparison as inline SVG."""
    import matplotlib.pyplot as plt

    from course_utils.plots import plot_paired

    metric = next(iter(METRICS))
    values = values_by_arm(runs, metric)
    seeds = len(next(iter(values.values())))
    if not seeds:
        return Markup("<p>{}: no seed was trained in every variant</p>").format(name)
    axis = plot_paired(values, metric, f"{name} · seeds: {seeds}")
    drawn = io.StringIO()
    figure = axis.get_figure(root=True)
    assert figure is not None  # for the type checker: the axis is drawn on one
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    plt.close(figure)
    return Markup(drawn.getvalue()[drawn.getvalue().index("<svg") :])


def _draw_comparisons(result: LessonResult) -> list[Markup]:
    """One plot for each comparison of a lesson."""
    named = [r for r in result.runs if r["comparison"] and "val_accuracy" in r["metrics"]]
    names = sorted({str(run["comparison"]) for run in named})
    return [_draw_comparison(x, [r for r in named if r["comparison"] == x]) for x in names]


def write_report(folder: Path) -> Path:
    """Read ``folder/course.json``, write ``folder/report.html`` and return its path.

    Raises:
        CourseError: there is no run to report on, or its record is damaged.
    """
    course = read_course(folder / COURSE_FILE)
    matplotlib.use("agg")
    from course_utils.plots import use_style

    use_style()
    matplotlib.rcParams["text.parse_math"] = False  # a variant called $x$ is no formula
    matplotlib.rcParams["svg.hashsalt"] = "course"  # the same run gives the same bytes
    page = render_page(
        TEMPLATE,
        course=course,
        plots={result.name: _draw_comparisons(result) for result in course.lessons},
        describe_status=describe_status,
    )
    write_atomically(folder / "report.html", page)
    return folder / "report.html"
