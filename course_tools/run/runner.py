"""``course run``: execute lessons, some side by side; resume, skip what is unchanged, report."""

import ast
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import filelock
import papermill
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from course_tools.run.execute import execute_lesson
from course_tools.run.lessons import MEMORY_LIMIT_BYTES, Lesson
from course_tools.run.plan import Plan
from course_tools.run.probe import check_writable
from course_tools.run.record import COURSE_FILE, CourseResult, load_earlier, write_course
from course_utils.data.load import load_data
from course_utils.data.text_data import TextData
from course_utils.errors import CourseError
from course_utils.measure.provenance import describe_hardware, read_commit, read_versions
from course_utils.processes.threads import use_threads
from course_utils.results import LessonResult

__all__ = ["run_lessons"]

MIN_FREE_BYTES = 200 * 2**20

Execute = Callable[..., LessonResult]  # has the arguments of `execute_lesson`


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """Hold the build folder for this process; refuse when another one holds it."""
    check_writable(folder, "choose another folder with --build")
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        raise CourseError(
            f"{free // 2**20} MiB are free on the disk of {folder}: free "
            f"{MIN_FREE_BYTES // 2**20} MiB, or choose another folder with --build"
        )
    try:
        with filelock.FileLock(folder / ".lock", timeout=0):
            for half_written in [*folder.glob(".*.ipynb*"), *folder.glob(f".{COURSE_FILE}.*")]:
                half_written.unlink()  # by a run that was killed
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


def _with_types_of(lesson: Lesson, parameters: dict) -> dict:
    """``parameters``, an integer as a float where the lesson's own value is one: ALPHA=2 is 2.0."""
    known = papermill.inspect_notebook(str(lesson.path)) if parameters else parameters
    typed = {}
    for name, value in parameters.items():
        is_float = isinstance(ast.literal_eval(known[name]["default"]), float)
        typed[name] = float(value) if is_float and type(value) is int else value
    return typed


def _judge(result: LessonResult, lesson: Lesson, plan: Plan) -> LessonResult:
    """Effect claims are promised for `quick` on the default data: there, a false one fails.

    The time budget is looked at under the same conditions. Exceeding it is a warning, because
    other machines may be slower. The limit of memory holds for every run but `full` ones and those
    on a GPU, whose libraries alone take gigabytes.
    """
    broken = [c["text"] for c in result.claims if c["kind"] == "effect" and not c["holds"]]
    promised = plan.config.profile == "quick" and plan.is_on_default_data
    limited = plan.config.profile != "full" and not describe_hardware()["gpu"]
    reason = ""
    if limited and result.peak_memory_bytes > MEMORY_LIMIT_BYTES:
        reason = (
            f"it held {result.peak_memory_bytes / 2**30:.2f} GiB of memory, "
            f"the limit is {MEMORY_LIMIT_BYTES / 2**30:g} GiB"
        )
    elif promised and broken:
        reason = f"effect claim does not hold: {broken[0]}"
    if result.status == "passed" and reason:
        result = replace(result, status="failed", reason=reason)
    return replace(result, over_budget=promised and result.time_s > lesson.budget_s)


class _Record:
    """``course.json`` of one run: it is on the disk after every change."""

    def __init__(self, plan: Plan, lessons: Sequence[Lesson]) -> None:
        self.plan, self.lessons = plan, lessons
        self.course = _start_course(plan, lessons)

    def _write(self, course: CourseResult) -> None:
        self.course = course
        write_course(course, self.plan.folder / COURSE_FILE)

    def is_finished(self, lesson: Lesson) -> bool:
        notebook = self.course.notebooks.get(lesson.name, "")
        return self.plan.is_finished(lesson, self.course.find(lesson.name), notebook)

    def begin(self, lesson: Lesson) -> None:
        """Take back that ``lesson`` is finished, before it is executed again.

        Its notebook will be replaced before its result is written. If the run is killed in
        between, the next run must not take the new notebook for the one of the old result.
        """
        entries = self.course.lessons
        forgotten = [replace(x, key="") if x.name == lesson.name else x for x in entries]
        earlier = [x for x in self.course.earlier if x.name != lesson.name]
        self._write(replace(self.course, lessons=forgotten, earlier=earlier))

    def end(self, lesson: Lesson, result: LessonResult) -> None:
        """Put the new result of a lesson in its place."""
        found = {x.name: x for x in self.course.lessons} | {lesson.name: result}
        entries = [found[x.name] for x in self.lessons if x.name in found]
        digests = self.course.notebooks | {lesson.name: self.plan.digest_notebook(lesson)}
        self._write(replace(self.course, lessons=entries, notebooks=digests))


def run_lessons(
    chosen: Sequence[Lesson],
    plan: Plan,
    console: Console,
    lessons: Sequence[Lesson] = (),
    execute: Execute = execute_lesson,
) -> CourseResult:
    """Execute ``chosen``; other ``lessons`` keep the result of an earlier, unchanged run.

    With ``plan.jobs``, lessons that rest on no times run side by side, with one thread each.
    ``execute`` runs one lesson and writes its executed notebook; tests give one without a kernel.
    Writes ``<lesson>.ipynb`` into the plan's folder, and ``course.json`` after every lesson.

    Returns:
        The contents of ``course.json``.

    Raises:
        CourseError: bad input; the build folder cannot be written or is in use.
    """
    _check_parameters(chosen, plan.parameters)
    if plan.config.dataset != "shapes":
        data = load_data(plan.config)  # a fault in somebody's own data is one line now
        if isinstance(data, TextData):
            raise CourseError(f"{plan.config.dataset} has texts: the lessons train on images")
    threads = use_threads()
    if not threads.is_reduced:  # else it has said so
        console.print(threads.describe(), soft_wrap=True)
    stop = time.monotonic() + plan.stop_after_s
    with _claimed(plan.folder):
        record = _Record(plan, lessons or chosen)
        waiting = []
        for lesson in chosen:
            if not plan.force and record.is_finished(lesson):
                console.print(f"{lesson.name}: unchanged since it passed, skipped")
            else:
                waiting.append(lesson)
        together = [x for x in waiting if not x.timing] if plan.jobs > 1 else []
        left = _run_side_by_side(together, record, console, stop) if len(together) > 1 else together
        left += [lesson for lesson in waiting if lesson not in together]
        count = len(left)
        while left and time.monotonic() <= stop:
            lesson = left.pop(0)
            record.begin(lesson)
            head = f"[{count - len(left)}/{count}] {lesson.name}"
            record.end(lesson, _run_watched(lesson, plan, console, head, execute))
        write_course(record.course, plan.folder / COURSE_FILE)
    if left:
        names = ", ".join(lesson.name for lesson in left)
        said = f"not executed, the time is up (--stop-after): {names}"
        console.print(said, style="yellow", soft_wrap=True)
    return record.course


def _run_side_by_side(
    lessons: Sequence[Lesson], record: _Record, console: Console, stop: float
) -> list[Lesson]:
    """Execute lessons in processes with one thread each; returns those that were not begun.

    The longest begin first, so that the last ones do not wait for one another.
    """
    plan = record.plan
    waiting = sorted(lessons, key=lambda lesson: -(lesson.time_s or lesson.budget_s))
    running: dict[Future, Lesson] = {}
    with ProcessPoolExecutor(plan.jobs, mp_context=get_context("spawn")) as pool:
        while running or (waiting and time.monotonic() <= stop):
            while waiting and len(running) < plan.jobs and time.monotonic() <= stop:
                lesson = waiting.pop(0)
                record.begin(lesson)
                running[pool.submit(_run_lesson, lesson, plan, 1)] = lesson
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                lesson = running.pop(future)
                result = replace(future.result(), over_budget=False)  # it is for a lesson alone
                record.end(lesson, result)
                _say_result(result, lesson, console, lesson.name)
    return waiting


def _start_course(plan: Plan, lessons: Sequence[Lesson]) -> CourseResult:
    """The record before anything is executed, with what earlier runs found.

    Unchanged lessons are in it as skipped, failed ones as they were.
    """
    course = CourseResult(
        profile=plan.config.profile,
        dataset=plan.config.dataset,
        first_seed=plan.config.first_seed,
        hardware=describe_hardware(),
        versions=read_versions(),
        commit=read_commit(),
        lessons=[],
    )
    before = load_earlier(plan.folder / COURSE_FILE)
    if before is None:
        return course
    found = {result.name: result for result in [*before.earlier, *before.lessons]}
    kept: dict[str, LessonResult] = {}
    for lesson in lessons:
        result = found.get(lesson.name)
        if result is None:
            continue
        if plan.is_finished(lesson, result, before.notebooks.get(lesson.name, "")):
            reason = "unchanged since it passed"
            kept[lesson.name] = replace(result, status="skipped", reason=reason)
        elif result.status == "failed" and course.measured_alike(before):
            kept[lesson.name] = result
    rest = [result for name, result in found.items() if name not in kept and result.key]
    return replace(course, lessons=list(kept.values()), earlier=rest, notebooks=before.notebooks)


def _run_lesson(
    lesson: Lesson,
    plan: Plan,
    threads: int,
    execute: Execute = execute_lesson,
    on_cell: Callable[[int, int], None] = lambda done, total: None,
) -> LessonResult:
    key = plan.key(lesson)  # now: the lesson may be edited while it runs
    result = execute(
        lesson,
        plan.output_path(lesson),
        plan.folder / "work" / lesson.name,
        environment={
            "COURSE_PROFILE": plan.config.profile,
            "COURSE_DATASET": plan.config.dataset,
            "COURSE_FIRST_SEED": str(plan.config.first_seed),
            "OMP_NUM_THREADS": str(threads),
        },
        parameters=_with_types_of(lesson, plan.parameters),
        time_limit_s=plan.time_limit_s,
        on_cell=on_cell,
    )
    result = replace(_judge(result, lesson, plan), commit=read_commit(), threads=threads)
    return replace(result, key=key) if result.status == "passed" else result


def _say_result(result: LessonResult, lesson: Lesson, console: Console, head: str) -> None:
    console.print(f"{head}: {result.status} in {result.time_s:.0f} s", soft_wrap=True)
    if result.over_budget:
        over = f"{head}: over its budget of {lesson.budget_s} s"
        console.print(over, style="yellow", soft_wrap=True)


def _run_watched(
    lesson: Lesson, plan: Plan, console: Console, head: str, execute: Execute
) -> LessonResult:
    """Execute a lesson, and show how far it has got."""
    known = lesson.time_s and plan.config.profile == "quick"
    expected = f"of about {lesson.time_s:.0f} s" if known else ""
    columns = ("{task.description}", BarColumn(), "cell", MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, expected, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(head)

        def on_cell(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)
            if not console.is_terminal and done % 10 == 1:  # a log gets a line now and then
                elapsed = f"{progress.tasks[0].elapsed or 0:.0f} s {expected}"
                console.print(f"{head} · cell {done} of {total} · {elapsed}", soft_wrap=True)

        threads = use_threads().number  # one number for the whole run
        result = _run_lesson(lesson, plan, threads, execute, on_cell)
    _say_result(result, lesson, console, head)
    return result
