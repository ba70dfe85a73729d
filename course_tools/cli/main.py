"""The command ``course``. Every function here is thin: it parses, calls, prints."""

import errno
import math
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from course_tools.cli import race, students
from course_tools.console import accept_any_console, make_console, make_printable
from course_tools.grade.exercises import MANIFEST
from course_tools.options import BUILD, check_minutes, find_images, parse_folder, parse_word
from course_tools.run.lessons import MEAN_BUDGET_S, NOTEBOOKS, find_lessons, select_lessons
from course_utils.errors import CourseError
from course_utils.files import ROOT

if TYPE_CHECKING:  # these imports take seconds, so each command makes its own
    from course_tools.run.lessons import Lesson
    from course_tools.run.plan import Plan
    from course_tools.run.record import CourseResult
    from course_utils.results import LessonResult

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
console = make_console()
Profile = Annotated[str, typer.Option(help="smoke, quick or full")]
Dataset = Annotated[
    str | None,
    typer.Option(help="shapes, photos, cifar10 or a folder", parser=parse_word, metavar="NAME"),
]
FirstSeed = Annotated[int | None, typer.Option(help="first of the paired seeds")]
BuildFolder = Annotated[
    Path, typer.Option(help="folder for all that is made", parser=parse_folder, metavar="FOLDER")
]
IS_RELEASED = (ROOT / MANIFEST).exists()
LISTED = "{:<27}{:<15}{:>8}{:>11}{:>9}{:>10}"  # a lesson in 80 columns, its question below
DEVELOPERS = "COURSE_TRACEBACK"  # set: errors of the system come with their traceback
FULL = (errno.ENOSPC, errno.EDQUOT)
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
STATUS_COLOURS = {"passed": "green", "failed": "red", "skipped": "green"}


@app.callback()
def course() -> None:
    """Training neural networks effectively: run, check and read the course."""


@app.command()
def doctor() -> None:
    """Is this machine ready? One line per check, with the fix where something is missing."""
    from course_utils.doctor import check_environment

    ready = True
    for finding in check_environment():
        colour = "green" if finding.ok else "red" if finding.required else "yellow"
        console.print(make_printable(str(finding)), style=colour, soft_wrap=True, markup=False)
        ready &= finding.ok or not finding.required
    raise typer.Exit(0 if ready else 1)


@app.command("list")
def list_lessons(
    stale: Annotated[bool, typer.Option(help="only those whose stored outputs are stale")] = False,
) -> None:
    """The lessons, with a student's minutes, and the time and memory an execution takes."""
    lessons = find_lessons()
    if stale:
        _list_stale(lessons)
        return
    print(LISTED.format("lesson", "seam", "minutes", "budget (s)", "took (s)", "held (MB)"))
    for x in lessons:
        took = "–" if x.time_s is None else f"{x.time_s:.0f}"
        held = "–" if x.peak_mb is None else str(x.peak_mb)
        print(LISTED.format(x.name, x.seam, x.minutes, x.budget_s, took, held))
        console.print(Padding(Text(x.question, style="dim"), (0, 0, 0, 4)))


def _list_stale(lessons: list["Lesson"]) -> None:
    """Name the lessons whose stored outputs are stale, and the command that renews them."""
    from course_tools.run.choose import explain_stale, plan_stored

    plan = plan_stored(BUILD)
    found = {lesson.name: explain_stale(lesson, plan) for lesson in lessons}
    found = {name: reason for name, reason in found.items() if reason}
    for name, reason in found.items():
        console.print(f"{name}: {reason}", soft_wrap=True)
    if found:
        numbers = " ".join(name.split("_")[0] for name in found)
        command = f"course run {numbers} --profile quick --force --store"
        console.print(f"renew them: {command}", style="yellow", soft_wrap=True)
        raise typer.Exit(1)
    console.print("no stored output is stale")


def _make_plan(
    profile: str,
    dataset: str | None,
    first_seed: int | None,
    build: Path,
    time_limit_s: float = math.inf,
    **options: Any,
) -> "Plan":
    """The plan of a run, or what names the folder of an earlier one."""
    from course_tools.run.plan import Plan
    from course_utils.config import load_config
    from course_utils.data.sources import NAMED

    config = load_config(profile, dataset=dataset or "", first_seed=first_seed)
    if config.dataset not in NAMED:
        config = config.replace(dataset=find_images(config.dataset))
    return Plan(config, build, time_limit_s, **options)


def _check_run_options(plan: "Plan", store: bool, by_key: bool, results_name: str | None) -> None:
    """Reject options where outputs would not be comparable with those that are stored.

    Raises:
        CourseError: with the option at fault.
    """
    from course_tools.run.probe import check_writable
    from course_tools.run.save_results import check_name
    from course_utils.results import RESULTS

    asked = (plan.config.profile, plan.config.first_seed)
    as_stored = asked == ("quick", 0) and plan.is_on_default_data
    if store and not as_stored:
        raise CourseError(
            "--store keeps outputs of the quick profile, on its data set and from seed 0 only: "
            "run without --dataset and --first-seed"
        )
    if by_key and not (as_stored and not plan.parameters):
        raise CourseError(
            "--stale and --since compare with stored outputs, which are of the quick profile, on "
            "its data set and from seed 0: add --profile quick, without other settings"
        )
    if store:
        check_writable(NOTEBOOKS, "allow it, or run without --store")
    if results_name is not None:
        check_name(results_name, RESULTS)
        check_writable(RESULTS, "allow it, or run without --save-results")
        if plan.parameters:
            raise CourseError("--save-results keeps what lessons do as they are: run without -p")


def _print_outcome(course: "CourseResult") -> None:
    from course_tools.run.record import describe_status

    table = Table("lesson", "status", "time (s)", "where and why", box=None)
    for result in course.lessons:
        status = Text(describe_status(result), style=STATUS_COLOURS[result.status])
        reason = make_printable(result.reason) if result.status == "failed" else ""
        table.add_row(result.name, status, f"{result.time_s:.0f}", reason)
    console.print(table)


def _warn_of_budgets(results: dict["Lesson", "LessonResult"]) -> bool:
    """Whether the lessons took longer than they may in `quick`, each or on average; says which."""
    slow = [result.name for result in results.values() if result.over_budget]
    mean_s = sum(result.time_s for result in results.values()) / max(1, len(results))
    if slow:
        console.print(f"over their budgets: {', '.join(slow)}", style="yellow", soft_wrap=True)
    if mean_s > MEAN_BUDGET_S:
        console.print(
            f"a lesson took {mean_s:.0f} s on average, the budget is {MEAN_BUDGET_S} s",
            style="yellow",
            soft_wrap=True,
        )
    return bool(slow) or mean_s > MEAN_BUDGET_S


def _keep_results(
    plan: "Plan",
    course: "CourseResult",
    results: dict["Lesson", "LessonResult"],
    lessons: list["Lesson"],
    store: bool,
    name: str | None,
) -> None:
    """Store outputs in the notebooks (``store``), and what was measured in data/results/NAME."""
    if store:
        from course_tools.run.store_outputs import store_outputs

        for lesson, result in results.items():
            store_outputs(lesson, plan.output_path(lesson), result)
    if name:
        from course_tools.run.save_results import add_kept, collect_results, save_results
        from course_utils.results import RESULTS, list_results, read_results

        measured = collect_results(name, course, list(results), lessons, plan.config)
        if name in list_results():
            measured = add_kept(measured, read_results(name), lessons, plan.config)
        path = save_results(measured, RESULTS)
        console.print(f"results: {path}", soft_wrap=True)


@app.command()
def run(
    lessons: Annotated[
        list[str] | None, typer.Argument(help="numbers or names; all if none")
    ] = None,
    profile: Profile = "",
    dataset: Dataset = None,
    first_seed: FirstSeed = None,
    parameter: Annotated[
        list[str] | None, typer.Option("-p", help="NAME=VALUE for the parameters cell")
    ] = None,
    build: BuildFolder = BUILD,
    time_limit: Annotated[float, typer.Option(help="minutes for one lesson")] = 30,
    force: Annotated[bool, typer.Option(help="execute unchanged lessons too")] = False,
    store: Annotated[bool, typer.Option(help="write the outputs into notebooks/")] = False,
    results_name: Annotated[
        str | None,
        typer.Option("--save-results", help="name: keep what was measured in data/results/"),
    ] = None,
    stale: Annotated[bool, typer.Option(help="those whose stored outputs are stale")] = False,
    since: Annotated[str, typer.Option(help="those changed since this revision of git")] = "",
    sample: Annotated[int, typer.Option(help="this many others, chosen at random", min=0)] = 0,
    shard: Annotated[str, typer.Option(help="a part of them, like 2/4, by time")] = "1/1",
    stop_after: Annotated[float, typer.Option(help="minutes: start no lesson later")] = math.inf,
    jobs: Annotated[int, typer.Option(help="side by side, but for those about times", min=1)] = 1,
    enforce_budgets: Annotated[bool, typer.Option(help="fail if it takes too long")] = False,
) -> None:
    """Execute lessons; finished ones are kept, unchanged ones skipped, failing ones reported."""
    found = find_lessons()
    chosen = select_lessons(lessons or [], found)
    check_minutes("--time-limit", time_limit)
    if math.isnan(stop_after) or stop_after < 0:
        raise CourseError(f"--stop-after {stop_after:g}: give minutes from 0")

    from course_tools.interrupts import ending_on_interrupt
    from course_tools.run.choose import choose_lessons, take_shard
    from course_tools.run.plan import parse_parameters
    from course_tools.run.runner import run_lessons

    plan = _make_plan(
        profile,
        dataset,
        first_seed,
        build,
        time_limit * 60,
        force=force,
        parameters=parse_parameters(parameter or []),
        stop_after_s=stop_after * 60,
        jobs=jobs,
    )
    _check_run_options(plan, store, bool(stale or since), results_name)
    if jobs > 1 and (store or results_name):  # one and two threads sum in different orders
        raise CourseError("--jobs: outputs and results are stored from lessons that run alone")
    if stale or since or sample:
        reasons = choose_lessons(chosen, plan, stale=stale, since=since, sample=sample)
        for lesson, reason in reasons.items():
            console.print(f"{lesson.name}: {reason}", soft_wrap=True)
        chosen = list(reasons)
    chosen = take_shard(chosen, shard)
    interrupted = "course: interrupted; finished lessons are kept, run again to go on"
    with ending_on_interrupt(console, interrupted):
        course = run_lessons(chosen, plan, console, found)
    _print_outcome(course)
    console.print(f"executed notebooks: {plan.folder}", soft_wrap=True)
    results = {x: result for x in chosen if (result := course.find(x.name))}
    if any(result.status == "failed" for result in results.values()):
        if store or results_name:
            console.print("a lesson failed: nothing is stored or saved", style="red")
        raise typer.Exit(1)
    if (store or results_name) and len(results) < len(chosen):
        console.print("not all lessons were executed: nothing is stored or saved", style="red")
        raise typer.Exit(1)
    if plan.config.profile == "quick" and _warn_of_budgets(results) and enforce_budgets:
        raise typer.Exit(1)
    _keep_results(plan, course, results, found, store, results_name)


@app.command()
def report(
    profile: Profile = "",
    dataset: Dataset = None,
    first_seed: FirstSeed = None,
    build: BuildFolder = BUILD,
) -> None:
    """Turn the course.json of a run with these settings into one self-contained page."""
    from course_tools.run.report import write_report

    page = write_report(_make_plan(profile, dataset, first_seed, build).folder)
    console.print(f"report: {page}", soft_wrap=True)


app.add_typer(students.app)
if not IS_RELEASED:  # a students' course has neither these commands nor what they import
    from course_tools.cli import teaching

    app.add_typer(teaching.app)
app.add_typer(race.app)


@app.command()
def measure(
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    minutes: Annotated[float, typer.Option(help="start no row later than this")] = 5.0,
    force: Annotated[bool, typer.Option(help="measure all rows anew")] = False,
) -> None:
    """What a training step, a loader and an optimizer take on this machine's device."""
    from course_tools.measure.command import find_device
    from course_tools.measure.command import measure as measure_rows
    from course_tools.run.probe import check_writable
    from course_utils.results import RESULTS

    check_minutes("--minutes", minutes)
    check_writable(RESULTS, "allow it")
    path, rows, left = measure_rows(find_device(device), RESULTS, minutes, force)
    for row in rows:
        values = {name: row[name] for name in row if name not in ("table", "settings", "commit")}
        named = ", ".join(map(str, row["settings"].values()))
        said = ", ".join(f"{name} {value}" for name, value in values.items())
        console.print(f"{row['table']}: {named}: {said}", soft_wrap=True, markup=False)
    console.print(f"kept in {path}", soft_wrap=True, markup=False)
    if left:
        console.print(f"{left} rows are left: run `course measure` again", style="yellow")


def _describe(error: OSError) -> str:
    """An error of the system in one line: what, where, and what to do."""
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        source, target, reason = error.args[0][0]  # it lists every file that it could not copy
        return f"cannot copy {source} to {target} ({reason}): make room, or choose another folder"
    where = error.filename2 or error.filename or "standard output, or a file"
    path = os.fsdecode(where) if isinstance(where, str | bytes | os.PathLike) else str(where)
    if error.errno in FULL:
        fix = "make room, or choose another folder"
    elif error.errno in REFUSED:
        fix = "allow it, or choose another folder"
    elif error.errno == errno.ENOENT and Path(path).is_relative_to(ROOT):
        fix = "if it belongs to the course, restore it with `git checkout`"
    else:
        fix = "choose another path"
    return f"{error.strerror or error}: {path}: {fix}"


def main() -> None:
    """Entry point: a user's mistake is one line on standard error, never a traceback."""
    accept_any_console()
    try:
        app()
        return
    except CourseError as error:
        problem = str(error)
    except OSError as error:
        if os.environ.get(DEVELOPERS):
            raise
        problem = _describe(error)
    print(f"course: {make_printable(problem)}", file=sys.stderr)
    sys.exit(2)
