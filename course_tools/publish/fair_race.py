"""The stored race of lesson 12: which recipe reaches which accuracy first.

The README's figure and the sentence below its table read the race here, so that both mean the same
by *reached*: `course_utils.results.median_seconds_to`.
"""

import math
import statistics
from collections.abc import Mapping, Sequence

from course_utils.results import median_seconds_to

__all__ = [
    "NOT_REACHED",
    "OURS",
    "RACE",
    "RACE_PAGE",
    "RECORD",
    "fastest_seconds",
    "find_front",
    "format_race",
    "format_rivals",
    "list_curves",
    "list_ends",
    "list_variants",
    "say_seconds",
    "say_seeds",
]

RACE = "putting_it_together/study_race.json"  # below `lesson_code`
RACE_PAGE = "docs/race.md"  # below the repository
RECORD = "speedrun"  # how the names of the rival that counts begin, one for each variant
NOT_REACHED = "not reached"
OURS = "scratch"  # how those of ours from random weights begin


def list_variants(race: Mapping, recipe: str) -> list[str]:
    """The rivals that are this recipe: one for each number of epochs or width."""
    return [rival for rival in race["rivals"] if rival.startswith(recipe)]


def list_curves(race: Mapping, rival: str) -> list[Sequence[Sequence[float]]]:
    """The curve ``(seconds, accuracy)`` of each seed of a rival."""
    return [row["curve"] for row in race["rows"] if row["rival"] == rival]


def fastest_seconds(race: Mapping, recipe: str, goal: float) -> float:
    """Of the variants of a recipe that reach ``goal``, the smallest median over their seeds.

    Infinite where no variant reaches it.
    """
    variants = list_variants(race, recipe)
    return min(median_seconds_to(goal, list_curves(race, variant)) for variant in variants)


def say_seconds(seconds: float) -> str:
    """``90 s``, or that it is never reached."""
    return f"{seconds:,.0f} s" if seconds < math.inf else NOT_REACHED


def say_seeds(race: Mapping) -> str:
    """How many seeds each variant of both recipes had, as a number or as a range."""
    variants = [*list_variants(race, OURS), *list_variants(race, RECORD)]
    counts = [len(list_curves(race, variant)) for variant in variants]
    least, most = min(counts), max(counts)
    return f"seeds of each: {least}" if least == most else f"seeds of each: {least} to {most}"


def list_ends(race: Mapping) -> dict[str, tuple[float, float]]:
    """Of each rival ``(seconds, accuracy)`` at its end: each one the median over the seeds."""
    ends = {}
    for rival in race["rivals"]:
        last = [curve[-1] for curve in list_curves(race, rival)]
        seconds, accuracies = zip(*last, strict=True)
        ends[rival] = (statistics.median(seconds), statistics.median(accuracies))
    return ends


def find_front(ends: Mapping[str, tuple[float, float]]) -> list[str]:
    """The rivals that no faster one, and none that is as fast, equals in accuracy; fastest first.

    Of two rivals that are equal in both, the first one.
    """
    front: list[str] = []
    for rival in sorted(ends, key=lambda name: (ends[name][0], -ends[name][1])):
        if not front or ends[rival][1] > ends[front[-1]][1]:
            front.append(rival)
    return front


def format_rivals(race: Mapping) -> str:
    """The tables of ``docs/race.md``: what each rival reached, and its settings, in Markdown."""
    ends, goals = list_ends(race), race["goals"]
    front = find_front(ends)
    head = ["rival", "seeds", "epochs", "seconds", "accuracy (%)"]
    head += [f"s to {100 * goal:.0f} %" for goal in goals] + ["front"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, rival in race["rivals"].items():
        curves = list_curves(race, name)
        seconds, accuracy = ends[name]
        reached = [median_seconds_to(goal, curves) for goal in goals]
        row = [rival["label"], f"{len(curves)}", f"{rival['epochs']}", f"{seconds:,.0f}"]
        row += [f"{100 * accuracy:.1f}"]
        row += [f"{x:,.0f}" if x < math.inf else "–" for x in reached]
        lines.append(f"| {' | '.join([*row, 'yes' if name in front else ''])} |")
    about = [
        f"- **{rival['label']}**: {rival['settings']}. Source: {rival['source']}."
        for rival in race["rivals"].values()
    ]
    return "\n".join([*lines, "", *about])


def format_race(race: Mapping) -> str:
    """When our recipe and the record's reach each accuracy, in Markdown."""
    reached = []
    for goal in race["goals"]:
        mine, theirs = (fastest_seconds(race, recipe, goal) for recipe in (OURS, RECORD))
        reached.append(f"{100 * goal:.0f} %: {say_seconds(mine)} and {say_seconds(theirs)}")
    variants, record_variants = (len(list_variants(race, recipe)) for recipe in (OURS, RECORD))
    return (
        f"A race on {race['dataset']} from random weights, seconds to an accuracy, for ours of "
        "[lesson 12](../notebooks/12_putting_it_together.ipynb) and for a published record, a "
        "speed-run for 94 % on GPUs, each at the fastest of its variants "
        f"(ours: {variants}, the record: {record_variants}). "
        f"{'; '.join(reached)}. Medians over the seeds ({say_seeds(race)}): an accuracy that half "
        "of them or fewer have is not reached. [The race](race.md) has all rivals, and what was "
        "tried."
    )
