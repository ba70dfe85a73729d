"""The README's table of results, made from ``data/results``; ``course sync`` puts it there.

What it shows of a lesson stands in the ``headline`` of its metadata, a list of
``{"comparison": …, "arm": …}`` (the variant against the comparison's first one) and
``{"claim": "its text"}``, each with a ``"label"`` where these names do not say enough.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from course_utils.config import PROFILES
from course_utils.errors import CourseError
from course_utils.measure.paired import paired_difference
from course_utils.results import (
    CURE,
    LessonResult,
    list_results,
    read_file,
    read_results,
    seconds_to,
    values_by_arm,
)
from course_utils.tools.console import make_printable
from course_utils.tools.run.lessons import Lesson, escape_cell

__all__ = ["format_headlines", "format_race", "format_section", "read_result_sets"]

RACE = "fair_race_2cores.json"  # by benchmarks/race.py
RECORD = "speedrun"  # how the names of the rival that counts begin, one for each variant
OURS = "scratch"  # how those of ours from random weights begin
NONE_YET = (
    "No results are kept yet: `course run --profile quick --save-results quick_photos_2cores` "
    "measures them."
)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """What goes wrong with the results called ``name`` within this context is their damage."""
    try:
        yield
    except CourseError as error:
        raise CourseError(f"data/results/{name}.json is damaged ({error}): {CURE}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise CourseError(f"data/results/{name}.json is damaged ({problem}): {CURE}") from None


def read_result_sets(folder: Path) -> list[dict]:
    """All results of lessons in ``folder``, those on the lessons' default data first.

    Each is called as its file.

    Raises:
        CourseError: a file there is damaged.
    """
    found = [read_results(name, folder) | {"name": name} for name in list_results(folder)]
    return sorted(found, key=lambda results: results["dataset"] != PROFILES["quick"].dataset)


def _describe_arm(headline: dict, runs: Sequence[dict]) -> tuple[str, str]:
    comparison = headline["comparison"]
    arm = headline["arm"]
    values = values_by_arm([run for run in runs if run["comparison"] == comparison])
    if not values:
        raise KeyError(comparison)
    baseline = next(iter(values))
    found = paired_difference(values[baseline], values[arm])
    width = (
        f"{found.format_interval(100)}, {found.n} seeds" if found.n > 1 else "one seed, no interval"
    )
    measured = f"{100 * found.mean:+.2f} points ({width}): {found.verdict()}"
    return f"{arm} against {baseline} ({comparison})", measured


def _describe_claim(headline: dict, claims: Sequence[dict]) -> tuple[str, str]:
    claim = {claim["text"]: claim for claim in claims}[headline["claim"]]
    measured = "holds" if claim["holds"] else "does not hold"
    return claim["text"], measured + ("" if claim["value"] is None else f" ({claim['value']})")


def _describe(headline: dict, result: LessonResult) -> tuple[str, str] | None:
    """What a headline is about and what was measured, or None where a lesson did not do it."""
    try:
        if "claim" in headline:
            return _describe_claim(headline, result.claims)
        return _describe_arm(headline, result.runs)
    except (KeyError, ValueError):  # no such claim, comparison or variant, or no seed in common
        return None


def _find_result(lesson: Lesson, results: dict) -> LessonResult | None:
    found = [LessonResult.from_json(entry) for entry in results["lessons"]]
    return next((result for result in found if result.name == lesson.name), None)


def _make_row(lesson: Lesson, headline: dict, sets: Sequence[dict]) -> str:
    measured = [_find_result(lesson, results) for results in sets]
    found: list[tuple[str, str] | None] = []
    for results, result in zip(sets, measured, strict=True):
        with _naming(results["name"]):
            found.append(_describe(headline, result) if result else None)
    if any(measured) and not any(found):
        raise CourseError(
            f"{lesson.name}: no results have anything for its headline {headline}: correct it in "
            "the notebook's metadata, or save the results again"
        )
    own = next((what for what, _ in filter(None, found)), headline.get("claim"))
    what = headline.get("label") or own or headline.get("arm", "")
    cells = [cell[1] if cell else "–" for cell in found]
    link = f"[{lesson.name}](notebooks/{lesson.path.name})"
    return f"| {' | '.join([link, *map(escape_cell, [what, *cells])])} |"


def _format_provenance(results: dict) -> str:
    with _naming(results["name"]):
        hardware = results["hardware"]
        versions = results["versions"]
        packages = ", ".join(f"{name} {versions[name]}" for name in ("torch", "lightning"))
        text = (
            f"- `{results['name']}`: `{results['command']}`; data {results['dataset']}, seeds from "
            f"{results['first_seed']}; {hardware['cpu']}, {hardware['cores']} cores, "
            f"{hardware['gpu'] or 'no GPU'}, {hardware['system']}; Python {versions['python']}, "
            f"{packages}; commit {results['commit']}"
        )
    return escape_cell(make_printable(text))


def format_headlines(lessons: Sequence[Lesson], sets: Sequence[dict]) -> str:
    """Table and provenance in Markdown: one row per headline, one column per set of results.

    Raises:
        CourseError: a headline that no results of its lesson know.
    """
    if not sets:
        return NONE_YET
    names = [f"`{escape_cell(results['name'])}`" for results in sets]
    rows = [_make_row(x, headline, sets) for x in lessons for headline in x.headline]
    head = [f"| {' | '.join(['lesson', 'what', *names])} |", "|---" * (2 + len(sets)) + "|"]
    return "\n".join([*head, *rows, "", *map(_format_provenance, sets)])


def _list_variants(race: dict, recipe: str) -> list[str]:
    """The rivals that are this recipe: one for each number of epochs or width."""
    return [rival for rival in race["rivals"] if rival.startswith(recipe)]


def _fastest_seconds(race: dict, recipe: str, goal: float) -> float:
    """The median over the seeds, of the variant of the recipe that reaches ``goal`` first.

    Infinite where most seeds of each variant never reach it.
    """
    medians = []
    for rival in _list_variants(race, recipe):
        curves = [row["curve"] for row in race["rows"] if row["rival"] == rival]
        medians.append(statistics.median(seconds_to(goal, curve) for curve in curves))
    return min(medians)


def _say_seeds(race: dict) -> str:
    """How many seeds each variant of both recipes had, as a number or as a range."""
    variants = [*_list_variants(race, OURS), *_list_variants(race, RECORD)]
    counts = [sum(row["rival"] == rival for row in race["rows"]) for rival in variants]
    least, most = min(counts), max(counts)
    return f"seeds of each: {least}" if least == most else f"seeds of each: {least} to {most}"


def _say_seconds(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds < math.inf else "not reached"


def format_race(race: dict) -> str:
    """When our recipe and the record's reach each accuracy, as one sentence."""
    reached = []
    for goal in race["goals"]:
        mine, theirs = (_fastest_seconds(race, recipe, goal) for recipe in (OURS, RECORD))
        reached.append(f"{100 * goal:.0f} %: {_say_seconds(mine)} and {_say_seconds(theirs)}")
    hardware = race["hardware"]
    variants, record_variants = (len(_list_variants(race, recipe)) for recipe in (OURS, RECORD))
    return (
        f"A race on {race['dataset']} from random weights, seconds to an accuracy, for ours of "
        "[lesson 12](notebooks/12_putting_it_together.ipynb) and for a published record, a "
        "speed-run for 94 % on GPUs, each at the fastest of its variants "
        f"(ours: {variants}, the record: {record_variants}). "
        f"{'; '.join(reached)}. Medians over the seeds ({_say_seeds(race)}); "
        f"`{race['command']}`; {hardware['cpu']}, {hardware['cores']} cores, torch "
        f"{race['versions']['torch']}, commit {race['commit']}."
    )


def format_section(lessons: Sequence[Lesson], folder: Path) -> str:
    """All that the README shows of the results in ``folder``.

    Raises:
        CourseError: a headline that no results of its lesson know; a damaged file.
    """
    section = format_headlines(lessons, read_result_sets(folder))
    race = folder / RACE
    if not race.exists():
        return section
    with _naming(race.stem):
        return f"{section}\n\n{format_race(read_file(race))}"
