"""The README's figure: accuracy on photographs against seconds of training, on two cores.

It is drawn from stored results, and `course sync` draws it again when one of these
files has changed: the picture holds their digest.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from PIL import Image

from course_tools.publish.fair_race import (
    NOT_REACHED,
    OURS,
    RACE,
    RECORD,
    fastest_seconds,
    list_curves,
    list_variants,
    say_seconds,
    say_seeds,
)
from course_tools.publish.label_places import place_labels
from course_tools.run.key import digest_file
from course_utils.errors import CourseError
from course_utils.files import ROOT
from course_utils.plots import COLOURS, use_style
from course_utils.results import CURE, read_file

__all__ = [
    "FIGURE",
    "FILES",
    "Series",
    "draw_figure",
    "format_figure",
    "is_stale",
    "plot_series",
    "read_series",
]

FIGURE = "docs/accuracy_in_seconds.png"  # below the repository
EXAMPLES = "start_here/study.json"  # trainings of lesson 02
FILES = tuple(f"lesson_code/{name}" for name in (EXAMPLES, RACE))  # below the repository
FEW = {  # variants of lesson 02's comparison, and what the figure calls them
    "from scratch": ("{:,} images, from scratch", "grey"),
    "linear probe": ("{:,} images, pretrained", "blue"),
}
FEW_TRAIN = 2000  # images, where the stored trainings do not say how many
RACERS = {  # recipes of the race, all their variants in one colour
    OURS: ("all images: ours, from scratch", "green"),
    RECORD: ("all images: a published speed-run", "purple"),
}
GOALS = 3  # of the race's goals, the highest ones are in the title
DIGEST = "Results"  # a text in the PNG
INK = {"grey": "#777777", "blue": COLOURS[0], "green": COLOURS[2], "purple": COLOURS[3]}


class Series(NamedTuple):
    """One training recipe: a curve ``(seconds, accuracy)`` for each training."""

    label: str
    colour: str  # a key of INK
    curves: Sequence[Sequence[Sequence[float]]]


def _read_few(results: Mapping) -> list[Series]:
    """The trainings of lesson 02."""
    found = []
    for arm, (label, colour) in FEW.items():
        runs = [run for run in results["curves"] if run["arm"] == arm]
        if not runs:
            raise KeyError(arm)
        images = runs[0].get("train", FEW_TRAIN)
        found.append(Series(label.format(images), colour, [run["curve"] for run in runs]))
    return found


def _read_race(race: Mapping) -> list[Series]:
    """Ours from scratch and the record, each with all its variants and seeds."""
    found = []
    for recipe, (label, colour) in RACERS.items():
        curves = [c for variant in list_variants(race, recipe) for c in list_curves(race, variant)]
        if not curves:
            raise KeyError(recipe)
        epochs = sorted(
            race["rivals"][variant]["epochs"] for variant in list_variants(race, recipe)
        )
        found.append(Series(f"{label}, {epochs[0]} to {epochs[-1]} epochs", colour, curves))
    return found


def _describe_goals(race: Mapping) -> str:
    """When ours and the record reach the highest goals: ``80 % in 90 s, … (…: 327 s, …)``."""
    goals = sorted(race["goals"])[-GOALS:]
    mine, theirs = (
        [say_seconds(fastest_seconds(race, recipe, goal)) for goal in goals]
        for recipe in (OURS, RECORD)
    )
    reached = [
        f"{100 * goal:.0f} % {how if how == NOT_REACHED else f'in {how}'}"
        for goal, how in zip(goals, mine, strict=True)
    ]
    return f"{', '.join(reached)} (a published speed-run: {', '.join(theirs)})"


def read_series(root: Path = ROOT) -> tuple[list[Series], str, str]:
    """From the results below ``root``: all curves, the title's words, and the race's seeds.

    Raises:
        CourseError: a file is damaged, or has no training that the figure shows.
    """
    few, race = (read_file(root / name) for name in FILES)
    try:
        series = [*_read_few(few), *_read_race(race)]
        return series, _describe_goals(race), say_seeds(race)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CourseError(
            "the stored results have nothing for the README's figure "
            f"({type(error).__name__}: {error}): {CURE}, or change "
            "course_tools/publish/readme_figure.py"
        ) from None


def _find_digest(root: Path) -> str:
    return " ".join(digest_file(root / name) for name in FILES)


def is_stale(root: Path) -> bool:
    """Whether the picture was drawn from other results than those that are stored."""
    picture = root / FIGURE
    if not picture.is_file():
        return True
    with Image.open(picture) as image:
        drawn_from = image.info.get(DIGEST)
    return drawn_from != _find_digest(root)


def plot_series(series: Sequence[Series], goals: str) -> Figure:
    """The figure: one line per training, one label per recipe."""
    figure, axis = plt.subplots(figsize=(8.5, 4), dpi=150)
    labels = []
    for one in series:
        colour = INK[one.colour]
        dots = []
        for curve in one.curves:
            times_s = [seconds for seconds, _ in curve]
            percent = [100 * accuracy for _, accuracy in curve]
            axis.plot(times_s, percent, "o-", color=colour, ms=3.5, lw=1.2, alpha=0.8)
            dots += list(zip(times_s, percent, strict=True))
        labels.append((one.label, colour, dots))
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
        title=f"CIFAR-10's photographs on two CPU cores:\n{goals}",
    )
    place_labels(axis, labels)
    return figure


def draw_figure(root: Path) -> Path:
    """Draw the picture and return its path.

    Raises:
        CourseError: as `read_series`.
    """
    series, goals, _ = read_series(root)
    plt.switch_backend("agg")
    use_style()
    figure = plot_series(series, goals)
    target = root / FIGURE
    target.parent.mkdir(parents=True, exist_ok=True)
    metadata = {DIGEST: _find_digest(root), "Software": None}
    figure.savefig(target, dpi=figure.dpi, metadata=metadata)
    plt.close(figure)
    return target


def format_figure(root: Path = ROOT) -> str:
    """The README's section: the picture, and a sentence on how to read it.

    Raises:
        CourseError: as `read_series`.
    """
    _, goals, seeds = read_series(root)
    return "\n".join(
        [
            f"![CIFAR-10's photographs on two CPU cores: {goals}]({FIGURE})",
            "",
            f"One line per training. A time is the median over the seeds ({seeds}), of the "
            "recipe's fastest variant. [The race](docs/race.md) has all rivals.",
        ]
    )
