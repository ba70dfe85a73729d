"""The command ``course``. Every function here is thin: it parses, calls, prints."""

import errno
import math
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from course_utils.errors import CourseError
from course_utils.files import ROOT
from course_utils.tools.run.lessons import find_lessons, format_lesson_map
from course_utils.tools.run.lessons import select_lessons as select
from course_utils.tools.teach import commands

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
console = Console(highlight=False)
Profile = Annotated[str, typer.Option(help="smoke, quick or full")]
Build = Annotated[Path, typer.Option(help="folder for all that is made")]
DEFAULT_BUILD = ROOT / "build"
USERS_ERRORS = (  # of the disk, or of a path that the user named
    *(errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT, errno.ENOENT, errno.ENOTDIR),
    *(errno.EEXIST, errno.EISDIR, errno.EPERM),
)


@app.callback()
def course() -> None:
    """Training neural networks effectively: run, check and read the course."""


@app.command()
def doctor() -> None:
    """Is this machine ready? One line a check, with the cure where something is missing."""
    from course_utils.environment import check_environment

    ready = True
    for finding in check_environment():
        colour = "green" if finding.ok else "red" if finding.required else "yellow"
        console.print(str(finding), style=colour, soft_wrap=True, markup=False)
        ready &= finding.ok or not finding.required
    raise typer.Exit(0 if ready else 1)


@app.command("list")
def list_lessons(
    markdown: Annotated[bool, typer.Option(help="print the README's table")] = False,
) -> None:
    """The lessons, with a student's minutes, and the time and memory an execution takes."""
    lessons = find_lessons()
    if markdown:
        print(format_lesson_map(lessons))
        return
    names = Column("lesson", no_wrap=True)
    columns = ("question", "seam", "minutes", "budget (s)", "took (s)", "held (MB)")
    table = Table(names, *columns, box=None)
    for x in lessons:
        took = "–" if x.time_s is None else f"{x.time_s:.0f}"
        held = "–" if x.peak_mb is None else str(x.peak_mb)
        table.add_row(x.name, x.question, x.seam, str(x.minutes), str(x.budget_s), took, held)
    console.print(table)


@app.command()
def run(
    lessons: Annotated[
        list[str] | None, typer.Argument(help="numbers or names; all if none")
    ] = None,
    profile: Profile = "",
    dataset: Annotated[str, typer.Option(help="shapes, photos, cifar10 or a folder")] = "",
    first_seed: Annotated[int | None, typer.Option(help="first of the paired seeds")] = None,
    parameter: Annotated[
        list[str] | None, typer.Option("-p", help="NAME=VALUE for the parameters cell")
    ] = None,
    build: Build = DEFAULT_BUILD,
    time_limit: Annotated[float, typer.Option(help="minutes for one lesson")] = 30,
    force: Annotated[bool, typer.Option(help="execute unchanged lessons too")] = False,
    store: Annotated[bool, typer.Option(help="write the outputs into notebooks/")] = False,
    save_results: Annotated[
        str | None, typer.Option(help="name: keep what was measured in data/results/")
    ] = None,
) -> None:
    """Execute lessons; finished ones are kept, unchanged ones skipped, failing ones reported."""
    found = find_lessons()
    chosen = select(lessons or [], found)
    if not 0 < time_limit < math.inf:
        raise CourseError(f"--time-limit {time_limit}: give minutes above 0")

    from course_utils.config import load_config
    from course_utils.data.sources import NAMED
    from course_utils.results import RESULTS
    from course_utils.tools.interrupts import ending_on_interrupt
    from course_utils.tools.run import save_results as results
    from course_utils.tools.run.plan import Plan, parse_parameters
    from course_utils.tools.run.runner import run_lessons
    from course_utils.tools.run.store_outputs import store_outputs

    parameters = parse_parameters(parameter or [])
    config = load_config(profile, dataset=dataset, first_seed=first_seed)
    if config.dataset not in NAMED and Path(config.dataset).is_dir():
        config = config.replace(dataset=str(Path(config.dataset).resolve()))  # they run elsewhere
    if store and (config.profile, config.dataset, config.first_seed) != ("quick", "shapes", 0):
        raise CourseError("--store keeps outputs of the quick profile on shapes from seed 0 only")
    if save_results is not None:
        results.check_name(save_results, RESULTS)
        if parameters:
            raise CourseError("--save-results keeps what lessons do as they are: run without -p")
    plan = Plan(config, build.resolve(), time_limit * 60, force, parameters)
    interrupted = "course: interrupted; finished lessons are kept, run again to go on"
    with ending_on_interrupt(console, interrupted):
        course = run_lessons(chosen, plan, console, found)
    table = Table("lesson", "status", "time (s)", "where and why", box=None)
    for entry in course["lessons"]:
        status = {"passed": "green", "failed": "red", "skipped": "yellow"}[entry["status"]]
        row = (f"[{status}]{entry['status']}[/]", f"{entry['time_s']:.0f}")
        table.add_row(entry["name"], *row, entry["reason"].replace("[", r"\["))
    console.print(table)
    entries = {entry["name"]: entry for entry in course["lessons"]}
    if any(entries[lesson.name]["status"] == "failed" for lesson in chosen):
        if store or save_results:
            console.print("a lesson failed: nothing is stored or saved", style="red")
        raise typer.Exit(1)
    if store:
        for lesson in chosen:
            store_outputs(lesson, plan.output_path(lesson), entries[lesson.name])
    if save_results:
        measured = results.collect_results(save_results, course, chosen, found, config)
        saved = results.save_results(measured, RESULTS)
        console.print(f"results: {saved}", soft_wrap=True)


@app.command()
def report(
    profile: Profile = "",
    build: Build = DEFAULT_BUILD,
    readme: Annotated[
        bool, typer.Option(help="put the results in data/results/ into README.md instead")
    ] = False,
) -> None:
    """Turn course.json into one self-contained page."""
    if readme:
        from course_utils.results import RESULTS
        from course_utils.tools.report.readme import update_readme

        update_readme(ROOT / "README.md", find_lessons(), RESULTS)
        console.print(f"results: {ROOT / 'README.md'}", soft_wrap=True)
        return

    from course_utils.config import load_config
    from course_utils.tools.report.report import write_report

    page = write_report(build.resolve() / load_config(profile).profile)
    console.print(f"report: {page}", soft_wrap=True)


@app.command()
def pretrain(
    seed: Annotated[
        int, typer.Option(help="of weights, order and augmentation", min=0, max=2**32 - 1)
    ] = 0,
) -> None:
    """Make the pretrained backbone again, in place of the one in data/weights (git keeps that)."""
    from course_utils.models.backbone import WEIGHTS
    from course_utils.tools import pretrain as pretraining
    from course_utils.tools.interrupts import ending_on_interrupt

    os.environ.setdefault("COURSE_RUNS_DIR", str(DEFAULT_BUILD / "pretrain"))
    interrupted = "course: interrupted; the backbone is the one that was there"
    with ending_on_interrupt(console, interrupted):
        about = pretraining.pretrain(WEIGHTS, seed, pretraining.RECIPE)
    console.print(
        f"{about['model']}, {about['data']} images: {100 * about['val_accuracy']:.2f} % of the "
        f"validation images in {about['time_s']:.0f} s → {WEIGHTS}",
        soft_wrap=True,
    )


app.add_typer(commands.app)


def main() -> None:
    """Entry point: a user's mistake is one line on standard error, never a traceback."""
    try:
        app()
        return
    except CourseError as error:
        problem = str(error)
    except OSError as error:
        if error.errno not in USERS_ERRORS:
            raise
        where = error.filename2 or error.filename or "a file"
        problem = f"{error.strerror}: {where}: make room or access, or choose another folder"
    print(f"course: {problem}", file=sys.stderr)
    sys.exit(2)
