"""The README's figure: accuracy on photographs against seconds of training, on two cores.

It is drawn from results in ``data/results``, and `course sync` draws it again when one of these
files has changed: the picture holds their digest.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from PIL import Image

from course_utils.errors import CourseError
from course_utils.plots import COLOURS, use_style
from course_utils.results import CURE, read_file
from course_utils.tools.run.key import digest_file

__all__ = ["FIGURE", "FILES", "Series", "draw_figure", "format_figure", "is_stale", "read_series"]

FIGURE = "docs/accuracy_in_seconds.png"  # below the repository
FINE_TUNING = "quick_photos_2cores.json"  # by `course run 02`
RACE = "fair_race_2cores.json"  # by benchmarks/race.py
FILES = (FINE_TUNING, RACE)
FEW = {  # variants of lesson 02's comparison on 2,000 photographs, and what the figure calls them
    "from scratch": ("2,000 images, from scratch", "grey"),
    "linear probe": ("2,000 images,\npretrained", "blue"),
}
FEW_COMPARISON = "many photographs"
RACERS = {"scratch_short": "green", "scratch_long": "orange"}  # rivals of the race: ours
RECORD = "speedrun"  # and the one to beat
DIGEST = "Results"  # a text in the PNG
INK = {
    "grey": "#777777",
    "blue": COLOURS[0],
    "green": COLOURS[2],
    "orange": COLOURS[1],
    "purple": COLOURS[3],
}


class Series(NamedTuple):
    """One training recipe: a curve ``(seconds, accuracy)`` for each seed."""

    label: str
    colour: str  # a key of INK
    curves: Sequence[Sequence[Sequence[float]]]

    @property
    def end(self) -> tuple[float, float]:
        """Seconds and accuracy at the end, each the median over the seeds."""
        seconds, accuracies = zip(*(curve[-1] for curve in self.curves), strict=True)
        return statistics.median(seconds), statistics.median(accuracies)


def _read_few(results: Mapping) -> list[Series]:
    """The trainings of lesson 02."""
    runs = [
        run
        for lesson in results["lessons"]
        if lesson["name"].startswith("02_")
        for run in lesson["runs"]
        if run["comparison"] == FEW_COMPARISON
    ]
    found = []
    for arm, (label, colour) in FEW.items():
        curves = [run["curve"] for run in runs if run["arm"] == arm]
        if not curves:
            raise KeyError(f"{FEW_COMPARISON}: {arm}")
        found.append(Series(label, colour, curves))
    return found


def _read_race(race: Mapping) -> list[Series]:
    """Ours from scratch, and at the end the record."""
    found = []
    for name, colour in {**RACERS, RECORD: "purple"}.items():
        curves = [row["curve"] for row in race["rows"] if row["rival"] == name]
        if not curves:
            raise KeyError(name)
        found.append(Series(f"all images: {race['rivals'][name]['label']}", colour, curves))
    return found


def read_series(folder: Path) -> list[Series]:
    """All curves of the figure, from the results in ``folder``.

    Raises:
        CourseError: a file is damaged, or has no training that the figure shows.
    """
    try:
        return [*_read_few(read_file(folder / FINE_TUNING)), *_read_race(read_file(folder / RACE))]
    except (AttributeError, LookupError, TypeError) as error:
        raise CourseError(
            f"data/results has nothing for the README's figure ({type(error).__name__}: {error}): "
            f"{CURE}, or change course_utils/tools/report/readme_figure.py"
        ) from None


def _find_digest(folder: Path) -> str:
    return " ".join(digest_file(folder / name) for name in FILES)


def is_stale(root: Path) -> bool:
    """Whether the picture was drawn from other results than those in ``data/results``."""
    picture = root / FIGURE
    if not picture.is_file():
        return True
    with Image.open(picture) as image:
        drawn_from = image.info.get(DIGEST)
    return drawn_from != _find_digest(root / "data" / "results")


def _say_seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} minutes"


def _describe_end(series: Series) -> str:
    seconds, accuracy = series.end
    return f"{100 * accuracy:.0f} % in {_say_seconds(seconds)}"


def _describe_ends(series: Sequence[Series]) -> str:
    """Ours but the first, then the record: ``65 % in 2 s, 80 % in 2 minutes (…)``."""
    *ours, record = series[1:]
    ends = ", ".join(map(_describe_end, ours))
    return f"{ends} (the recipe of a record: {_describe_end(record)})"


def _plot(series: Sequence[Series]) -> Figure:
    figure, axis = plt.subplots(figsize=(8.5, 4))
    for one in series:
        colour = INK[one.colour]
        for curve in one.curves:
            times_s = [seconds for seconds, _ in curve]
            percent = [100 * accuracy for _, accuracy in curve]
            axis.plot(times_s, percent, "o-", color=colour, ms=4, lw=1.5, alpha=0.8)
        seconds, accuracy = one.end
        seeds = "1 seed" if len(one.curves) == 1 else f"{len(one.curves)} seeds"
        side = "left" if seconds < 10 else "right"  # of the label that is next to the dots
        place = (seconds * (0.9 if side == "left" else 1.1), 100 * accuracy + 1.5)
        label = f"{one.label} ({seeds})"
        axis.annotate(label, place, color=colour, fontsize=10, va="bottom", ha=side)
    axis.set_xscale("log")
    axis.set_xticks(
        [1, 2, 5, 10, 30, 60, 300, 600, 1200],
        ["1 s", "2 s", "5 s", "10 s", "30 s", "1 min", "5 min", "10 min", "20 min"],
    )
    axis.minorticks_off()
    axis.set(
        xlim=(1, 1500),
        ylim=(30, 95),
        xlabel="time of the training on two CPU cores",
        ylabel="accuracy on validation images (%)",
        title=f"CIFAR-10's photographs on two CPU cores:\n{_describe_ends(series)}",
    )
    return figure


def draw_figure(root: Path) -> Path:
    """Draw the picture and return its path.

    Raises:
        CourseError: as `read_series`.
    """
    results = root / "data" / "results"
    series = read_series(results)
    plt.switch_backend("agg")
    use_style()
    figure = _plot(series)
    target = root / FIGURE
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=150, metadata={DIGEST: _find_digest(results), "Software": None})
    plt.close(figure)
    return target


def _format_source(name: str, folder: Path) -> str:
    about = read_file(folder / name)
    try:
        hardware = f"{about['hardware']['cpu']}, {about['hardware']['cores']} cores"
        return f"`{about['command']}` ({hardware}, commit {about['commit']})"
    except (KeyError, TypeError) as error:
        raise CourseError(f"data/results/{name} is damaged ({error!r}): {CURE}") from None


def format_figure(folder: Path) -> str:
    """The README's section: the picture, and below it where its numbers come from.

    Raises:
        CourseError: as `read_series`.
    """
    series = read_series(folder)
    sources = " · ".join(_format_source(name, folder) for name in FILES)
    return "\n".join(
        [
            f"![CIFAR-10's photographs on two CPU cores: {_describe_ends(series)}]({FIGURE})",
            "",
            "One line per seed, one dot per validation, on photographs that the training has not "
            f"seen. Pretrained weights come with the course. Measured by {sources}.",
        ]
    )
