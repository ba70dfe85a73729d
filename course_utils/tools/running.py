"""``course run``: execute lessons, one or several at a time; resume, skip what is unchanged."""

import json
from collections.abc import Iterator, Sequence
from itertools import chain

import papermill
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from course_utils.data import load_data
from course_utils.errors import CourseError
from course_utils.files import write_atomically
from course_utils.hardware import describe_hardware, read_commit, read_versions
from course_utils.outlines import SHAPE_SETS
from course_utils.tools.claiming import claimed
from course_utils.tools.executing import execute_lesson
from course_utils.tools.lessons import MEMORY_LIMIT_BYTES, Lesson
from course_utils.tools.planning import Plan
from course_utils.tools.together import execute_together

__all__ = ["run_lessons"]


def _check_parameters(lessons: Sequence[Lesson], parameters: dict) -> None:
    for lesson in lessons:
        known = papermill.inspect_notebook(str(lesson.path)) if parameters else parameters
        for name in parameters:
            if name not in known:
                names = ", ".join(known) or "none"
                raise CourseError(f"{lesson.name} has no parameter {name!r}: it has {names}")


def _judge(entry: dict, lesson: Lesson, plan: Plan) -> dict:
    """Effect claims are promised for `quick` on the embedded data: there, a false one fails.

    A budget of seconds is that of a lesson alone, and slower machines need more. The limit of
    memory holds but for `full` and on a GPU, whose libraries alone take gigabytes.
    """
    broken = [c["text"] for c in entry["claims"] if c["kind"] == "effect" and not c["holds"]]
    config, in_turn = plan.config, entry["jobs"] == 1
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
    return entry | {"over_budget": promised and in_turn and entry["time_s"] > lesson.budget_s}


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
    with claimed(plan.folder):
        entries = _earlier_entries(plan, lessons or chosen, course)
        todo = []
        for lesson in chosen:
            if plan.force or plan.load_state(lesson) is None:
                todo.append(lesson)
            else:
                console.print(f"{lesson.name}: unchanged since it passed, skipped")
        together, in_turn = plan.divide(todo)
        ended = chain(
            _run_together(together, plan, console),
            (_run_lesson(x, plan, console, f"[{todo.index(x) + 1}/{len(todo)}]") for x in in_turn),
        )
        order = [lesson.name for lesson in lessons or chosen]
        written = _write_course(plan, course, order, entries)
        for entry in ended:
            entries[entry["name"]] = entry
            written = _write_course(plan, course, order, entries)
    return written


def _write_course(plan: Plan, course: dict, order: Sequence[str], entries: dict) -> dict:
    course = course | {"lessons": [entries[name] for name in order if name in entries]}
    write_atomically(plan.folder / "course.json", json.dumps(course, indent=1))
    return course


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


def _begin(lesson: Lesson, plan: Plan) -> dict:
    """Forget what an earlier run found; the arguments of `execute_lesson`."""
    plan.state_path(lesson).unlink(missing_ok=True)
    config = plan.config
    return {
        "lesson": lesson,
        "output": plan.output_path(lesson),
        "work": plan.folder / "work" / lesson.name,
        "environment": {
            "COURSE_PROFILE": config.profile,
            "COURSE_DATASET": config.dataset,
            "COURSE_FIRST_SEED": str(config.first_seed),
        },
        "parameters": plan.parameters,
        "time_limit_s": plan.time_limit_s,
    }


def _finish(lesson: Lesson, plan: Plan, console: Console, key: str, entry: dict, head: str) -> dict:
    entry = _judge(entry, lesson, plan) | {"commit": read_commit()}
    if entry["status"] == "passed":
        state = {"key": key, "entry": entry}
        write_atomically(plan.state_path(lesson), json.dumps(state))
    console.print(f"{head}: {entry['status']} in {entry['time_s']:.0f} s", soft_wrap=True)
    if entry["over_budget"]:
        over = f"{head}: over its budget of {lesson.budget_s} s"
        console.print(over, style="yellow", soft_wrap=True)
    return entry


def _run_together(lessons: Sequence[Lesson], plan: Plan, console: Console) -> Iterator[dict]:
    if not lessons:
        return
    cores = describe_hardware()["cores"]
    threads = max(1, cores // plan.jobs)
    console.print(f"{len(lessons)} lessons, {plan.jobs} at a time with {threads} thread(s) each")
    keys = [plan.key(lesson) for lesson in lessons]  # before: who edits one has changed it
    tasks = [_begin(lesson, plan) for lesson in lessons]
    for task in tasks:
        task["environment"]["OMP_NUM_THREADS"] = str(threads)
    for count, (number, entry) in enumerate(execute_together(tasks, plan.jobs), 1):
        head = f"[{count}/{len(lessons)}] {lessons[number].name}"
        entry["jobs"] = plan.jobs
        yield _finish(lessons[number], plan, console, keys[number], entry, head)


def _run_lesson(lesson: Lesson, plan: Plan, console: Console, place: str) -> dict:
    head = f"{place} {lesson.name}"
    key = plan.key(lesson)  # before: whoever edits the lesson meanwhile has changed it
    known = lesson.time_s and plan.config.profile == "quick"
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

        entry = execute_lesson(**_begin(lesson, plan), on_cell=on_cell) | {"jobs": 1}
    return _finish(lesson, plan, console, key, entry, head)
