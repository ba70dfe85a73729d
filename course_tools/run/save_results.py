"""``course run --save-results``: write what one run measured into ``data/results``."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from course_tools.run.lessons import Lesson
from course_tools.run.record import CourseResult
from course_tools.study.keep import name_data
from course_utils.config import PROFILES, Config
from course_utils.errors import CourseError
from course_utils.files import write_atomically
from course_utils.results import LessonResult, list_results

__all__ = ["add_kept", "check_name", "collect_results", "save_results"]


def check_name(name: str, folder: Path) -> None:
    """Reject an invalid file name, and the name of another kind of file in ``folder``.

    Raises:
        CourseError: the name is one of these.
    """
    if not re.fullmatch(r"[\w-]{1,100}", name, re.ASCII):
        raise CourseError(f"--save-results {name}: use letters, digits, - and _ only, 100 at most")
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


def _shorten_run(run: Mapping) -> dict:
    metrics = {key: round(value, 5) for key, value in run["metrics"].items()}
    examples_per_s = run["examples_per_s"]
    return dict(run) | {
        "metrics": metrics,
        "time_s": round(run["time_s"], 3),
        "examples_per_s": None if examples_per_s is None else round(examples_per_s, 1),
    }


def _shorten_lesson(entry: LessonResult) -> dict:
    return {
        "name": entry.name,
        "commit": entry.commit or "unknown",
        "threads": entry.threads,
        "time_s": entry.time_s,
        "peak_memory_bytes": entry.peak_memory_bytes,
        "claims": entry.claims,
        "runs": [_shorten_run(run) for run in entry.runs],
    }


def collect_results(
    name: str,
    course: CourseResult,
    chosen: Sequence[Lesson],
    lessons: Sequence[Lesson],
    config: Config,
) -> dict:
    """The ``chosen`` lessons of ``course.json``, and how and on what they were measured.

    Args:
        config: settings of the command.
    """
    names = {lesson.name for lesson in chosen}
    entries = [entry for entry in course.lessons if entry.name in names]
    # lessons that were skipped as unchanged were measured at an earlier commit
    commits = dict.fromkeys(entry.commit or "unknown" for entry in entries)
    return {
        "name": name,
        "command": _format_command(chosen, lessons, config, name),
        "dataset": name_data(config.dataset),
        "profile": course.profile,
        "first_seed": course.first_seed,
        "hardware": course.hardware,
        "versions": course.versions,
        "commit": ", ".join(commits),
        "lessons": [_shorten_lesson(entry) for entry in entries],
    }


def _describe(results: dict) -> dict:
    """What all lessons of one file have in common."""
    alike = {key: results[key] for key in ("profile", "first_seed", "dataset", "versions")}
    hardware = {
        key: value
        for key, value in results["hardware"].items()
        if key != "memory_bytes"  # it differs by some kB from one start of a machine to the next
    }
    return alike | {"hardware": hardware}


def add_kept(measured: dict, kept: dict, lessons: Sequence[Lesson], config: Config) -> dict:
    """``measured``, and from the file that it replaces the lessons that were not measured again.

    Results of another machine, of other versions or settings are not mixed.

    Args:
        measured: what `collect_results` gives.
        kept: the results under the same name until now.
        lessons: all lessons of the course; the file has their order.
        config: settings of the command.

    Raises:
        CourseError: lessons of such results would be lost.
    """
    if _describe(measured) != _describe(kept):
        lost = {entry["name"] for entry in kept["lessons"]}
        lost -= {entry["name"] for entry in measured["lessons"]}
        if lost:
            raise CourseError(
                f"{kept['name']}.json has {len(lost)} other lessons, measured on "
                f"{kept['hardware']['cpu']} or with other versions or settings: run all lessons, "
                "or choose another name with --save-results"
            )
        return measured
    entries = {entry["name"]: {"commit": kept["commit"]} | entry for entry in kept["lessons"]}
    entries |= {entry["name"]: entry for entry in measured["lessons"]}
    chosen = [lesson for lesson in lessons if lesson.name in entries]
    ordered = [entries[lesson.name] for lesson in chosen]
    commits = dict.fromkeys(one for entry in ordered for one in entry["commit"].split(", "))
    return measured | {
        "command": _format_command(chosen, lessons, config, measured["name"]),
        "commit": ", ".join(commits),
        "lessons": ordered,
    }


def _format_list(lines: Sequence[str], indent: str) -> str:
    if not lines:
        return "[]"
    joined = f",\n{indent} ".join(lines)
    return f"[\n{indent} {joined}\n{indent}]"


def _format_object(values: dict[str, str], indent: str) -> str:
    """A JSON object with one line for each key; the ``values`` are already JSON."""
    lines = f",\n{indent} ".join(f"{_to_line(key)}: {text}" for key, text in values.items())
    return f"{{\n{indent} {lines}\n{indent}}}"


def _to_line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _format_results(results: dict) -> str:
    """JSON that is small and easy to compare: one line for each claim and for each run."""
    entries = []
    for entry in results["lessons"]:
        texts = {key: _to_line(value) for key, value in entry.items()}
        for key in ("claims", "runs"):
            texts[key] = _format_list([_to_line(record) for record in entry[key]], "   ")
        entries.append(_format_object(texts, "  "))
    texts = {key: _to_line(value) for key, value in results.items()}
    return _format_object(texts | {"lessons": _format_list(entries, " ")}, "")


def save_results(results: dict, folder: Path) -> Path:
    """Write ``results`` into ``folder`` under their name; return the path of the file.

    Raises:
        CourseError: a metric is not a number, because a training diverged. Nothing is written.
    """
    path = folder / f"{results['name']}.json"
    try:
        text = _format_results(results)
    except ValueError:
        raise CourseError(
            "a training diverged, and a metric is not a number: no results are saved"
        ) from None
    write_atomically(path, text + "\n")
    return path
