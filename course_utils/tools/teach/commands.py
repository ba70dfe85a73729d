"""The commands of students and instructors; as thin as the others in ``cli``."""

from pathlib import Path
from typing import Annotated

import typer

from course_utils.errors import CourseError
from course_utils.files import ROOT, probe_folder
from course_utils.tools.console import make_console, make_printable
from course_utils.tools.options import Sandbox, parse_folder
from course_utils.tools.run.lessons import find_lessons, select_lessons
from course_utils.tools.teach.exercises import MANIFEST

__all__ = ["RELEASED", "app"]

app = typer.Typer()
console = make_console()
RELEASED = (ROOT / MANIFEST).exists()  # a students' course: its help shows what students need
INTERRUPTED = "course: interrupted; the lessons above are checked"
BUILD = ROOT / "build"
FOLDER = "FOLDER"
Execution = Annotated[
    Path,
    typer.Option(help="the execution that was timed", parser=parse_folder, metavar=FOLDER),
]
TimeLimit = Annotated[float, typer.Option(help="seconds for one cell", min=1, max=86400)]
Memory = Annotated[float, typer.Option(help="GiB for one notebook (Linux)", min=3, max=4096)]


def _print_results(results: list) -> None:
    from course_utils.tools.teach.progress import is_untouched

    if names := [result.exercise for result in results if is_untouched(result)]:
        console.print(f"  – not written yet: {', '.join(names)}", soft_wrap=True)
    for result in results:
        if is_untouched(result):
            continue
        sign, colour = ("✗", "red") if result.message else ("✓", "green")
        line = f"  {sign} {result.exercise} ({result.points} of {result.out_of}): "
        console.print(line + (result.message or "passed"), style=colour, soft_wrap=True)


@app.command()
def lab(
    port: Annotated[
        int, typer.Option(help="on the loopback; 0: any free one", min=0, max=65535)
    ] = 8888,
    browser: Annotated[bool, typer.Option(help="open a browser")] = True,
) -> None:
    """Open JupyterLab on the lessons: reachable from this machine only, behind a token."""
    from course_utils.tools.teach.lab import open_lab

    open_lab(port, browser)


def _keeps_progress(folder: Path) -> bool:
    """Whether results can be kept in ``folder``; says so before anything runs where they cannot."""
    try:
        probe_folder(folder)
    except OSError as error:
        console.print(
            f"{folder} cannot be written ({error.strerror}): results are shown, and not kept",
            style="yellow",
            soft_wrap=True,
        )
        return False
    return True


@app.command("check")
def check_exercises(
    notebooks: Annotated[
        list[str] | None, typer.Argument(help="numbers, names or files; all lessons if none")
    ] = None,
    time_limit: TimeLimit = 60,
    memory: Memory = 6,
) -> None:
    """Check your exercises: passed, or what is wrong; what your code prints is not shown."""
    from course_utils.tools.interrupts import ending_on_interrupt
    from course_utils.tools.teach import check, progress
    from course_utils.tools.teach.answers import identify_lesson
    from course_utils.tools.teach.exercises import find_exercises, find_notebook
    from course_utils.tools.teach.reading import read_submission

    lessons = find_exercises()
    folder = BUILD / "progress"
    limits = check.Limits(time_limit, memory)
    keeps = _keeps_progress(folder)
    all_passed = True
    untouched: list[str] = []
    for word in notebooks or [lesson.name for lesson in lessons]:
        try:
            path = Path(word)
            if ".ipynb" not in path.name.lower():
                path = find_notebook(word, lessons)
            notebook = read_submission(path)
            lesson = identify_lesson(path, notebook, lessons)
            key = progress.find_key(notebook, lesson)
            results = progress.load_results(folder, lesson.name, key)
            if results is None:
                with ending_on_interrupt(console, INTERRUPTED):
                    results = check.check_notebook(notebook, lesson, limits)
            all_passed &= not any(result.message for result in results)
            if not notebooks and all(map(progress.is_untouched, results)):
                untouched.append(lesson.name)
            else:
                console.print(lesson.name, style="bold")
                _print_results(results)
            if keeps:
                progress.store_results(folder, lesson.name, key, results)
        except CourseError as error:  # the other notebooks are checked all the same
            console.print(f"  ✗ {error}", style="red", soft_wrap=True)
            all_passed = False
    if untouched:
        console.print(f"not begun yet: {', '.join(untouched)}", soft_wrap=True)
    console.print(progress.make_progress_table(lessons, folder))
    raise typer.Exit(0 if all_passed else 1)


@app.command("grade", hidden=RELEASED)
def grade_folder(
    submissions: Annotated[Path, typer.Argument(help="folder of <student>/<lesson>.ipynb")],
    output: Annotated[
        Path, typer.Option(help="table of all results, CSV", parser=parse_folder, metavar="FILE")
    ] = BUILD / "grades.csv",
    time_limit: TimeLimit = 60,
    memory: Memory = 6,
    sandbox: Sandbox = None,
) -> None:
    """Check the notebooks of many students; a bad one is reported and stops no other."""
    from course_utils.tools.interrupts import ending_on_interrupt
    from course_utils.tools.teach import grade, grades
    from course_utils.tools.teach.check import Limits
    from course_utils.tools.teach.exercises import find_exercises
    from course_utils.tools.teach.sandbox import find_sandbox
    from course_utils.tools.teach.submissions import find_submissions
    from course_utils.tools.teach.supervise import Supervisor

    totals = output.with_name(f"{output.stem}_totals.csv")
    feedback = output.with_name(f"{output.stem}_feedback")

    def show(graded: list[grade.Graded]) -> None:
        last = graded[-1]
        points = last.problem or f"{last.points} of {last.out_of} points"
        if last.ungraded and not last.problem:
            points = f"not graded in full, {points} so far"
        console.print(f"{last.student} · {last.lesson}: {points}", soft_wrap=True)
        for sentence in filter(None, (last.alarm, last.note)):
            console.print(f"  {sentence}", soft_wrap=True, style="yellow")
        grades.write_grades(graded, output)  # now: an interruption loses nothing
        grades.write_totals(graded, totals)
        grades.write_feedback(graded, last.folder, feedback)

    if output.is_dir():
        raise CourseError(f"{output} is a folder: name a file with --output")
    if output.is_relative_to(submissions.absolute()):
        raise CourseError(
            f"{output} lies among the submissions: name a file elsewhere with --output"
        )
    limits = Limits(time_limit, memory)
    lessons = find_exercises()
    sandboxed, missing = find_sandbox(sandbox)
    if missing:
        console.print(
            f"no sandbox, {missing}: answers run with your rights", soft_wrap=True, style="yellow"
        )
    supervisor = Supervisor(sandboxed)
    supervisor.require_room()
    find_submissions(submissions)  # refuses what is no folder of submissions
    for folder in (output.parent, feedback):
        probe_folder(folder)
    with ending_on_interrupt(console, f"course: interrupted; graded so far: {output}"):
        graded = grade.grade_submissions(submissions, lessons, limits, supervisor, show)
    console.print(f"what happened to each exercise: {output}", soft_wrap=True)
    console.print(f"points of each student: {totals}; to give back: {feedback}", soft_wrap=True)
    if left := [f"{entry.student} · {entry.lesson}" for entry in graded if entry.ungraded]:
        console.print(
            f"not graded, by a fault of the machine: {', '.join(left)}: repair it and grade again",
            soft_wrap=True,
            style="yellow",
        )
    failed = any(entry.problem or entry.alarm or entry.ungraded for entry in graded)
    raise typer.Exit(1 if failed else 0)


@app.command("release", hidden=RELEASED)
def release_course(
    output: Annotated[
        Path,
        typer.Option(help="folder for the students' course", parser=parse_folder, metavar=FOLDER),
    ] = BUILD / "student",
    colab: Annotated[str, typer.Option(help="git address that Google Colab installs from")] = "",
) -> None:
    """Write the students' course: stubs for solutions, nothing else changed."""
    from course_utils.tools.teach.release import release

    folder = release(find_lessons(), output, colab)
    console.print(f"the students' course: {folder} (its README says how to begin)", soft_wrap=True)


@app.command(hidden=RELEASED)
def slides(
    lessons: Annotated[list[str], typer.Argument(help="numbers or names")],
    output: Annotated[
        Path, typer.Option(help="folder for the slides", parser=parse_folder, metavar=FOLDER)
    ] = BUILD / "slides",
) -> None:
    """Write a lesson's slides: one page each, for any browser, with no network."""
    from course_utils.tools.teach.slides import has_outputs, write_slides

    for lesson in select_lessons(lessons, find_lessons()):
        page = write_slides(lesson, output)
        console.print(f"slides: {page}", soft_wrap=True)
        if not has_outputs(lesson.read()):
            renew = f"course run {lesson.name[:2]} --profile quick --force --store"
            console.print(f"no figures and no results on them: {renew}", style="yellow")


@app.command()
def cards(
    output: Annotated[
        Path, typer.Option(help="folder for the cards", parser=parse_folder, metavar=FOLDER)
    ] = BUILD / "cards",
) -> None:
    """Write the recipe cards of all lessons on one page, and as a PDF where Chromium is."""
    from course_utils.tools.teach.cards import write_cards

    page, problem = write_cards(find_lessons(), output)
    console.print(f"cards: {page}", soft_wrap=True)
    if problem:
        console.print(make_printable(f"no PDF: {problem}"), style="yellow", soft_wrap=True)
    else:
        console.print(f"to print: {page.with_suffix('.pdf')}", soft_wrap=True)


@app.command(hidden=RELEASED)
def site(
    output: Annotated[
        Path, typer.Option(help="folder for the site", parser=parse_folder, metavar=FOLDER)
    ] = BUILD / "site",
    run: Execution = BUILD / "quick",
) -> None:
    """Build the site of all lessons: search, glossary, claims, report; with no network."""
    from course_utils.tools.teach.site import write_site

    page = write_site(find_lessons(), run, output)
    console.print(f"site: {page}", soft_wrap=True)


@app.command(hidden=RELEASED)
def plan(
    lesson: Annotated[str, typer.Argument(help="number or name")],
    minutes: Annotated[int, typer.Option(help="of the seminar", min=10, max=480)] = 45,
    run: Execution = BUILD / "quick",
) -> None:
    """What to show of a lesson in a seminar, by the times of an execution."""
    from course_utils.tools.run.record import COURSE_FILE
    from course_utils.tools.teach.seminars import format_plan, read_cell_times

    for chosen in select_lessons([lesson], find_lessons()):
        cells_s = read_cell_times(run / COURSE_FILE, chosen)
        print(f"# {chosen.name}\n\n{format_plan(chosen, cells_s, minutes)}\n")
