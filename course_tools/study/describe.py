"""Studies in one line each: how much they took, when and where, and how much is left."""

import math
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np

from course_tools.study.declare import find_studies
from course_tools.study.study_file import StudyFile
from course_utils.errors import CourseError
from course_utils.results import STUDIES, read_file

__all__ = ["describe_kept_by_hand", "describe_study", "describe_time_left", "list_studies"]


def _format_minutes(seconds: float) -> str:
    minutes = math.ceil(seconds / 60)
    return "1 minute" if minutes <= 1 else f"{minutes} minutes"


def _format_made(made: date, today: date) -> str:
    days = (today - made).days
    age = "today" if days == 0 else "1 day ago" if days == 1 else f"{days} days ago"
    return f"made {made} ({age})"


def describe_time_left(study: StudyFile, jobs: int) -> str:
    """How long the trainings that are left take, from those of the same regime that ended.

    Args:
        study: with all trainings that ended.
        jobs: so many train side by side.

    Returns:
        Such as ``"about 8 minutes"``, ``"more than 8 minutes"`` if a regime has no training yet,
        and nothing where nothing is known or left.
    """
    seconds, left, is_known = 0.0, study.count_left(), True
    for regime, count in left.items():
        took = [row.seconds for x, row in study.rows.items() if x.regime == regime]
        if took:
            seconds += count * float(np.mean(took)) / jobs
        elif count:
            is_known = False
    if not seconds:
        return ""
    return f"{'about' if is_known else 'more than'} {_format_minutes(seconds)}"


def describe_study(study: StudyFile, jobs: int, today: date) -> str:
    """A declared study: question, trainings, cost, and the time left or the date of its file.

    Args:
        study: as it is.
        jobs: so many trainings run side by side, for the time left.
        today: from which its age counts.
    """
    left = sum(study.count_left().values())
    parts = [f"{left} left"] if left else []
    if time_left := describe_time_left(study, jobs):
        parts[0] += f", {time_left} with --jobs {jobs}"
    if not left and not study.is_current():
        parts.append(f"its declaration has changed: `course study {study.name}` writes it again")
    if study.stored is not None:
        seconds = sum(row.seconds for row in study.rows.values())
        parts += [
            f"{len(study.rows)} trainings in {_format_minutes(seconds)} of one core",
            _format_made(study.stored.made, today),
            study.stored.describe_machine(),
        ]
    return f"{study.name}: {study.study.question} {'; '.join(parts)}"


def describe_kept_by_hand(path: Path, today: date) -> str:
    """The file of a study that a command of its own made; what it does not say is left out.

    Raises:
        CourseError: it is damaged.
    """
    content = read_file(path)
    name = f"{path.parent.name}/{path.name}"
    parts = [f"{name}: by hand: `{content.get('command', 'unknown command')}`"]
    if commit := content.get("commit"):
        parts.append(f"commit {commit}")
    if made := content.get("made"):
        parts.append(_format_made(date.fromisoformat(made), today))
    if hardware := content.get("hardware"):
        parts.append(f"{hardware['cpu']}, {hardware['cores']} cores")
    return "; ".join(parts)


def list_studies(jobs: int, today: date, folder: Path = STUDIES) -> Iterator[str]:
    """A line for each study: those that ``course study`` trains, then those made by hand.

    Of a damaged file the line says what to do about it.
    """
    declared = find_studies(folder)
    for name in declared:
        try:
            yield describe_study(StudyFile(name, folder), jobs, today)
        except CourseError as error:
            yield f"{name}: {error}"
    for path in sorted(folder.glob("*/study*.json")):
        if path.name != "study.json" or path.parent.name not in declared:
            try:
                yield describe_kept_by_hand(path, today)
            except CourseError as error:
                yield f"{path.parent.name}/{path.name}: {error}"
