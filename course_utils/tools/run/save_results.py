"""``course run --save-results``: what one run measured, as a file that stays in the repository."""

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from course_utils.config import PROFILES, Config
from course_utils.errors import CourseError
from course_utils.files import write_atomically
from course_utils.results import list_results
from course_utils.tools.report.keep import name_data
from course_utils.tools.run.lessons import Lesson

__all__ = ["check_name", "collect_results", "save_results"]

ABOUT = ("profile", "first_seed", "hardware", "versions")
COST = ("name", "time_s", "peak_memory_bytes", "claims")


def check_name(name: str, folder: Path) -> None:
    """Refuse a name that is no file's, or that of a file in ``folder`` about something else.

    Raises:
        CourseError: it is such a name.
    """
    if not re.fullmatch(r"[\w-]+", name, re.ASCII):
        raise CourseError(f"--save-results {name}: use letters, digits, - and _ only")
    if (folder / f"{name}.json").exists() and name not in list_results(folder):
        raise CourseError(
            f"{folder / name}.json holds no results of lessons: choose another name with "
            "--save-results"
        )


def _format_command(
    chosen: Sequence[Lesson], lessons: Sequence[Lesson], config: Config, name: str
) -> str:
    """The command as a person types it; of a folder of images its last part only."""
    words = ["course", "run"]
    if list(chosen) != list(lessons):
        words += [lesson.name.split("_")[0] for lesson in chosen]
    words += ["--profile", config.profile]
    if config.dataset != PROFILES[config.profile].dataset:
        words += ["--dataset", Path(config.dataset).name]
    if config.first_seed:
        words += ["--first-seed", str(config.first_seed)]
    return shlex.join([*words, "--save-results", name])


def _shorten_run(run: dict) -> dict:
    metrics = {key: round(value, 5) for key, value in run["metrics"].items()}
    rate = run["images_per_s"]
    return run | {
        "metrics": metrics,
        "time_s": round(run["time_s"], 3),
        "images_per_s": None if rate is None else round(rate, 1),
    }


def collect_results(
    name: str, course: dict, chosen: Sequence[Lesson], lessons: Sequence[Lesson], config: Config
) -> dict:
    """The ``chosen`` lessons of ``course.json``, and how and on what they were measured."""
    names = {lesson.name for lesson in chosen}
    entries = [entry for entry in course["lessons"] if entry["name"] in names]
    # lessons that were skipped as unchanged were measured at an earlier commit
    commits = dict.fromkeys(entry["commit"] or "unknown" for entry in entries)
    return {
        "name": name,
        "command": _format_command(chosen, lessons, config, name),
        "dataset": name_data(config.dataset),
        **{key: course[key] for key in ABOUT},
        "commit": ", ".join(commits),
        "lessons": [
            {key: entry[key] for key in COST} | {"runs": [_shorten_run(r) for r in entry["runs"]]}
            for entry in entries
        ],
    }


def _is_deep(value: object) -> bool:
    """Whether there is a list of records in it."""
    if isinstance(value, list):
        return any(isinstance(item, dict) for item in value)
    return isinstance(value, dict) and any(_is_deep(item) for item in value.values())


def _format_results(value: object, indent: str = "") -> str:
    """JSON that is small and easy to compare: one claim, or one run, a line."""
    if not _is_deep(value):
        return json.dumps(value, ensure_ascii=False)
    inner = f"{indent} "
    if isinstance(value, list):
        parts, (opening, closing) = [_format_results(item, inner) for item in value], "[]"
    else:
        pairs = value.items()
        parts = [f"{json.dumps(key)}: {_format_results(item, inner)}" for key, item in pairs]
        opening, closing = "{}"
    lines = f",\n{inner}".join(parts)
    return f"{opening}\n{inner}{lines}\n{indent}{closing}"


def save_results(results: dict, folder: Path) -> Path:
    """Write ``results`` into ``folder`` under their name; returns the file."""
    path = folder / f"{results['name']}.json"
    write_atomically(path, _format_results(results) + "\n")
    return path
