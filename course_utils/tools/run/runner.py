"""``course run``: execute lessons one after the other; resume, skip what is unchanged, report."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import filelock
import papermill
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from course_utils.config import Config
from course_utils.data.image_data import load_data
from course_utils.data.shape_outlines import SHAPE_SETS
from course_utils.errors import CourseError
from course_utils.files import write_atomically
from course_utils.measure.provenance import describe_hardware, read_commit, read_versions
from course_utils.tools.run.execute import execute_lesson
from course_utils.tools.run.lessons import MEMORY_LIMIT_BYTES, Lesson
from course_utils.tools.run.plan import Plan

__all__ = ["run_lessons"]

MIN_FREE_BYTES = 200 * 2**20


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """Hold the build folder for this process; refuse when another one holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / ".probe", "")
        (folder / ".probe").unlink()
    except OSError as error:
        raise CourseError(
            f"cannot write to {folder} ({error.strerror}): choose another folder with --build"
        ) from None
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        raise CourseError(
            f"{free // 2**20} MiB are free on the disk of {folder}: free "
            f"{MIN_FREE_BYTES // 2**20} MiB, or choose another folder with --build"
        )
    try:
        with filelock.FileLock(folder / ".lock", timeout=0):
            yield
    except filelock.Timeout:
        raise CourseError(
            f"another course run is using {folder}: wait for it, or choose another folder "
            "with --build"
        ) from None


def _check_parameters(lessons: Sequence[Lesson], parameters: dict) -> None:
    for lesson in lessons:
        known = papermill.inspect_notebook(str(lesson.path)) if parameters else parameters
        for name in parameters:
            if name not in known:
                names = ", ".join(known) or "none"
                raise CourseError(f"{lesson.name} has no parameter {name!r}: it has {names}")


def _judge(entry: dict, lesson: Lesson, config: Config) -> dict:
    """Effect claims are promised for `quick` on the embedded data: there, a false one fails.

    So is the budget of seconds, which other machines may need more than. The limit of memory holds
    for every run but `full` ones and those on a GPU, whose libraries alone take gigabytes.
    """
    broken = [c["text"] for c in entry["claims"] if c["kind"] == "effect" and not c["holds"]]
    promised = config.profile == "quick" and config.dataset == "shapes"
    limited = config.profile != "full" and not describe_hardware()["gpu"]
    peak, limit = entry["peak_memory_bytes"], MEMORY_LIMIT_BYTES
    reason = ""
    if limited and peak > limit:
        reason = f"it held {peak / 2**30:.2f} GiB of memory, the limit is {limit / 2**30:g} GiB"
    elif promised and broken:
        reason = f"effect claim does not hold: {broken[0]}"
    if entry["status"] == "passed" and reason:
        entry = entry | {"status": "failed", "reason": reason}
    return entry | {"over_budget": promised and entry["time_s"] > lesson.budget_s}


def run_lessons(
    chosen: Sequence[Lesson], plan: Plan, console: Console, lessons: Sequence[Lesson] = ()
) -> dict:
    """Execute ``chosen``; other ``lessons`` keep the entry of an earlier, unchanged run.

    Writes ``<build>/<profile>/<lesson>.ipynb``, and ``course.json`` after every lesson.

    Returns:
        The contents of ``course.json``.

    Raises:
        CourseError: bad input; the build folder cannot be written or is in use.
    """
    _check_parameters(chosen, plan.parameters)
    if plan.config.dataset not in SHAPE_SETS:
        load_data(plan.config)  # a fault in somebody's own data is one line now, not a traceback
    course = {
        "profile": plan.config.profile,
        "dataset": plan.config.dataset,
        "first_seed": plan.config.first_seed,
        "hardware": describe_hardware(),
        "versions": read_versions(),
        "commit": read_commit(),
    }
    with _claimed(plan.folder):
        entries = _earlier_entries(plan, lessons or chosen, course)
        for lesson in chosen:
            if plan.force or plan.load_state(lesson) is None:
                entry = _run_lesson(lesson, plan, console, chosen.index(lesson), len(chosen))
                entries[lesson.name] = entry
            else:
                console.print(f"{lesson.name}: unchanged since it passed, skipped")
            order = [entries[x.name] for x in lessons or chosen if x.name in entries]
            text = json.dumps(course | {"lessons": order}, indent=1)
            write_atomically(plan.folder / "course.json", text)
    return json.loads(text)


def _earlier_entries(plan: Plan, lessons: Sequence[Lesson], course: dict) -> dict[str, dict]:
    """What earlier runs found: unchanged lessons as skipped, failed ones as they were."""
    try:
        earlier = json.loads((plan.folder / "course.json").read_text(encoding="utf-8"))
        same = all(earlier[key] == course[key] for key in ("profile", "dataset", "first_seed"))
        entries = {e["name"]: e for e in earlier["lessons"] if same and e["status"] == "failed"}
    except (OSError, ValueError, KeyError, TypeError):
        entries = {}
    for lesson in lessons:
        if (entry := plan.load_state(lesson)) is not None:
            skipped = {"status": "skipped", "reason": "unchanged since it passed"}
            entries[lesson.name] = entry | skipped
    return entries


def _run_lesson(lesson: Lesson, plan: Plan, console: Console, index: int, count: int) -> dict:
    config = plan.config
    head = f"[{index + 1}/{count}] {lesson.name}"
    key = plan.key(lesson)  # before: whoever edits the lesson meanwhile has changed it
    plan.state_path(lesson).unlink(missing_ok=True)
    known = lesson.time_s and config.profile == "quick"
    expected = f"of about {lesson.time_s:.0f} s" if known else ""
    columns = ("{task.description}", BarColumn(), "cell", MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, expected, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(head)

        def on_cell(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)
            if not console.is_terminal and done % 10 == 1:  # a log: now and then a line
                elapsed = f"{progress.tasks[0].elapsed or 0:.0f} s {expected}"
                console.print(f"{head} · cell {done} of {total} · {elapsed}", soft_wrap=True)

        entry = execute_lesson(
            lesson,
            plan.output_path(lesson),
            plan.folder / "work" / lesson.name,
            environment={
                "COURSE_PROFILE": config.profile,
                "COURSE_DATASET": config.dataset,
                "COURSE_FIRST_SEED": str(config.first_seed),
            },
            parameters=plan.parameters,
            time_limit_s=plan.time_limit_s,
            on_cell=on_cell,
        )
    entry = _judge(entry, lesson, config) | {"commit": read_commit()}
    if entry["status"] == "passed":
        state = {"key": key, "entry": entry}
        write_atomically(plan.state_path(lesson), json.dumps(state))
    console.print(f"{head}: {entry['status']} in {entry['time_s']:.0f} s", soft_wrap=True)
    if entry["over_budget"]:
        over = f"{head}: over its budget of {lesson.budget_s} s"
        console.print(over, style="yellow", soft_wrap=True)
    return entry
