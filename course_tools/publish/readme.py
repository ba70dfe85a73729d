"""What is stored of results, as ``docs/results.md`` and the README show it; by ``course sync``.

The page has a row for each headline of a lesson, the race in a sentence, and where the numbers come
from. The README has the findings: of each lesson the first headline that is decided over ten seeds.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from course_tools.console import make_printable
from course_tools.publish.fair_race import RACE, format_race
from course_tools.publish.headlines import NOT_MEASURED, describe, describe_study, makes_claim
from course_tools.run.lessons import Lesson, escape_cell
from course_utils.config import PROFILES
from course_utils.errors import CourseError
from course_utils.files import ROOT
from course_utils.results import (
    CURE,
    STUDIES,
    LessonResult,
    list_results,
    read_file,
    read_results,
)

__all__ = [
    "describe_first_headlines",
    "format_findings",
    "format_headlines",
    "format_section",
    "format_sources",
    "read_result_sets",
    "read_studies",
]

NONE_YET = (
    "No results are kept yet: `course run --profile quick --save-results quick_photos_2cores` "
    "measures them."
)
PRACTICE = "90"  # the first lesson without a technique of its own
FINDING_SEEDS = 10  # paired ones, that a finding needs


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """What goes wrong with a file of results within this context is its damage."""
    try:
        yield
    except CourseError as error:
        raise CourseError(f"{path} is damaged ({error}): {CURE}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise CourseError(f"{path} is damaged ({problem}): {CURE}") from None


def read_result_sets(folder: Path) -> list[dict]:
    """All results of lessons in ``folder``, those on the lessons' default data first.

    Each is called as its file.

    Raises:
        CourseError: a file there is damaged.
    """
    found = [read_results(name, folder) | {"name": name} for name in list_results(folder)]
    return sorted(found, key=lambda results: results["dataset"] != PROFILES["quick"].dataset)


def read_studies(lessons: Sequence[Lesson], folder: Path = STUDIES) -> dict[str, dict]:
    """The studies below ``folder`` that the headlines of lessons name, by their names.

    Raises:
        CourseError: one of them is missing or damaged.
    """
    names = [headline["study"] for x in lessons for headline in x.headline if "study" in headline]
    studies = {name: read_file(folder / f"{name}.json") for name in dict.fromkeys(names)}
    for study in studies.values():
        if "regimes" in study:  # of `course study`: each regime has its data
            used = dict.fromkeys(x["config"]["dataset"] for x in study["regimes"].values())
            study["dataset"] = " and ".join(used)
    return studies


def _find_result(lesson: Lesson, results: dict) -> LessonResult | None:
    found = [LessonResult.from_json(entry) for entry in results["lessons"]]
    return next((result for result in found if result.name == lesson.name), None)


def _refuse(lesson: Lesson, headline: dict) -> CourseError:
    return CourseError(
        f"{lesson.name}: no results have anything for its headline {headline}: correct it in "
        "the notebook's metadata, or save the results again"
    )


def _fill_from_lesson(
    lesson: Lesson, headline: dict, sets: Sequence[dict]
) -> list[tuple[str, str] | None]:
    """What each set of results has for a headline on what the lesson itself measures."""
    measured = [_find_result(lesson, results) for results in sets]
    found: list[tuple[str, str] | None] = []
    for results, result in zip(sets, measured, strict=True):
        with _naming(f"{results['name']}.json"):
            found.append(describe(headline, result) if result else None)
    if any(found) or not any(measured):
        return found
    if "claim" in headline and makes_claim(lesson, headline["claim"]):
        return [(headline["claim"], NOT_MEASURED) if result else None for result in measured]
    raise _refuse(lesson, headline)


def _fill_from_study(
    lesson: Lesson, headline: dict, sets: Sequence[dict], study: Mapping
) -> list[tuple[str, str] | None]:
    """The study's numbers, in the column of the results that were measured on the same data."""
    try:
        found = describe_study(headline, study)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _refuse(lesson, headline) from None
    same = ["regime" in headline or x["dataset"] == study.get("dataset") for x in sets]
    return [found if is_same else None for is_same in same]


def _fill(
    lesson: Lesson, headline: dict, sets: Sequence[dict], studies: Mapping
) -> tuple[str, list[str]]:
    """What a headline is about, and what each set of results has for it; a dash for nothing."""
    if "study" in headline:
        found = _fill_from_study(lesson, headline, sets, studies[headline["study"]])
    else:
        found = _fill_from_lesson(lesson, headline, sets)
    own = next((what for what, _ in filter(None, found)), headline.get("claim"))
    what = headline.get("label") or own or headline.get("study") or headline.get("arm", "")
    return what, [cell[1] if cell else "–" for cell in found]


def describe_first_headlines(lessons: Sequence[Lesson], root: Path = ROOT) -> dict[str, str]:
    """The first headline of each lesson, by its name, and what the results below ``root`` say.

    They say it of the default data. A lesson without a headline is not in it.

    Raises:
        CourseError: a headline that no results of its lesson know; a damaged or missing file.
    """
    sets = read_result_sets(root / "data" / "results")[:1]
    studies = read_studies(lessons, root / "lesson_code") if sets else {}
    found = {x.name: _fill(x, x.headline[0], sets, studies) for x in lessons if x.headline}
    return {name: f"{what}: {''.join(cells)}" for name, (what, cells) in found.items() if cells}


def _is_finding(measured: str) -> bool:
    """Whether the verdict is decided, over `FINDING_SEEDS` seeds at least."""
    found = re.search(r"; (\d+) seeds\b.*(helps|hurts|equivalent \(.*\))$", measured)
    return found is not None and int(found[1]) >= FINDING_SEEDS


def format_findings(lessons: Sequence[Lesson], root: Path = ROOT) -> str:
    """The README's list: of each technique the first headline that ten seeds or more decided.

    Where a lesson's first headline says ``"finding": false``, it has no line, as the list is short.

    Raises:
        CourseError: as `format_section`.
    """
    sets = read_result_sets(root / "data" / "results")[:1]
    studies = read_studies(lessons, root / "lesson_code") if sets else {}
    lines = []
    for lesson in [lesson for lesson in lessons if lesson.name < PRACTICE]:
        if lesson.headline and not lesson.headline[0].get("finding", True):
            continue
        filled = [_fill(lesson, headline, sets, studies) for headline in lesson.headline]
        decided = [(what, cells[0]) for what, cells in filled if cells and _is_finding(cells[0])]
        for what, measured in decided[:1]:
            difference, _, verdict = measured.rpartition(": ")
            interval = f"{difference.partition(';')[0]})"  # seeds and regime are on the page
            interval = interval.replace(" points", "")
            lines.append(f"- {lesson.name[:2]} · {what}: **{verdict}**, {interval}")
    return "\n".join(lines) or NONE_YET


def _make_row(lesson: Lesson, headline: dict, sets: Sequence[dict], studies: Mapping) -> str:
    what, cells = _fill(lesson, headline, sets, studies)
    link = f"[{lesson.name}](../notebooks/{lesson.path.name})"
    return f"| {' | '.join([link, *map(escape_cell, [what, *cells])])} |"


def _format_provenance(results: Mapping) -> str:
    with _naming(f"{results['name']}.json"):
        hardware = results["hardware"]
        versions = results["versions"]
        packages = ", ".join(f"{name} {versions[name]}" for name in ("torch", "lightning"))
        seeds = f", seeds from {results['first_seed']}" if "first_seed" in results else ""
        text = (
            f"- `{results['name']}`: `{results['command']}`; data {results['dataset']}{seeds}; "
            f"{hardware['cpu']}, {hardware['cores']} cores, "
            f"{hardware['gpu'] or 'no GPU'}, {hardware['system']}; Python {versions['python']}, "
            f"{packages}; commit {results['commit']}"
        )
    return escape_cell(make_printable(text))


def format_headlines(
    lessons: Sequence[Lesson], sets: Sequence[dict], studies: Mapping[str, dict]
) -> str:
    """The table in Markdown: one row per headline, one column per set of results.

    Args:
        lessons: those whose headlines are shown, in their order.
        sets: results of lessons, each with its ``name``.
        studies: those that the headlines name, by their names.

    Raises:
        CourseError: a headline that no results of its lesson know.
    """
    if not sets:
        return NONE_YET
    names = [f"`{escape_cell(results['name'])}`" for results in sets]
    rows = [_make_row(x, headline, sets, studies) for x in lessons for headline in x.headline]
    head = [f"| {' | '.join(['lesson', 'what', *names])} |", "|---" * (2 + len(sets)) + "|"]
    return "\n".join([*head, *rows])


def format_sources(sources: Sequence[Mapping]) -> str:
    """Where the numbers come from: a line for each file of results, in Markdown."""
    return "\n".join(map(_format_provenance, sources))


def format_section(lessons: Sequence[Lesson], root: Path = ROOT) -> str:
    """All that ``docs/results.md`` shows of the results below ``root``.

    Raises:
        CourseError: a headline that no results of its lesson know; a damaged or missing file.
    """
    sets = read_result_sets(root / "data" / "results")
    studies = read_studies(lessons, root / "lesson_code") if sets else {}
    parts = [format_headlines(lessons, sets, studies)]
    sources = [*sets, *(study | {"name": name} for name, study in studies.items())]
    race = root / "lesson_code" / RACE
    if race.exists():
        with _naming(RACE):
            stored = read_file(race)
            parts.append(format_race(stored))
            sources.append(stored | {"name": RACE.removesuffix(".json")})
    return "\n\n".join([*parts, format_sources(sources)] if sources else parts)
