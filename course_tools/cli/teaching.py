"""The commands of instructors and authors, which a students' course has not."""

from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from course_tools.console import make_console, make_printable
from course_tools.options import BUILD, Memory, Sandbox, TimeLimit, parse_folder
from course_tools.run.lessons import find_lessons, select_lessons
from course_utils.errors import CourseError
from course_utils.files import ROOT, probe_folder

__all__ = ["app"]

app = typer.Typer()
console = make_console()
FOLDER = "FOLDER"
Execution = Annotated[
    Path,
    typer.Option(help="the execution that was timed", parser=parse_folder, metavar=FOLDER),
]


@app.command("grade")
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
    from course_tools.grade import grade, grades
    from course_tools.grade.check import Limits
    from course_tools.grade.exercises import find_exercises
    from course_tools.grade.sandbox import find_sandbox
    from course_tools.grade.submissions import find_submissions
    from course_tools.grade.supervise import Supervisor
    from course_tools.interrupts import ending_on_interrupt

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


@app.command("release")
def release_course(
    output: Annotated[
        Path,
        typer.Option(help="folder for the students' course", parser=parse_folder, metavar=FOLDER),
    ] = BUILD / "student",
    colab: Annotated[str, typer.Option(help="git address that Google Colab installs from")] = "",
) -> None:
    """Write the students' course: stubs for solutions, nothing else changed."""
    from course_tools.publish.release import release

    folder = release(find_lessons(), output, colab)
    console.print(f"the students' course: {folder} (its README says how to begin)", soft_wrap=True)


@app.command()
def slides(
    lessons: Annotated[list[str], typer.Argument(help="numbers or names")],
    output: Annotated[
        Path, typer.Option(help="folder for the slides", parser=parse_folder, metavar=FOLDER)
    ] = BUILD / "slides",
) -> None:
    """Write a lesson's slides: one page each, for any browser, with no network."""
    from course_tools.publish.slides import has_outputs, write_slides

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
    from course_tools.publish.cards import write_cards

    page, problem = write_cards(find_lessons(), output)
    console.print(f"cards: {page}", soft_wrap=True)
    if problem:
        console.print(make_printable(f"no PDF: {problem}"), style="yellow", soft_wrap=True)
    else:
        console.print(f"to print: {page.with_suffix('.pdf')}", soft_wrap=True)


@app.command()
def site(
    output: Annotated[
        Path | None, typer.Option(help="folder for the site", parser=parse_folder, metavar=FOLDER)
    ] = None,
    run: Execution = BUILD / "quick",
    language: Annotated[str, typer.Option(help="such as ru: see course translate")] = "en",
) -> None:
    """Build the site of all lessons: search, glossary, claims, report; with no network."""
    from course_tools.publish.site import write_site

    folder = output or BUILD / ("site" if language == "en" else f"site-{language}")
    page = write_site(find_lessons(), run, folder, language)
    console.print(f"site: {page}", soft_wrap=True)


@app.command()
def book(
    output: Annotated[
        Path, typer.Option(help="the PDF", parser=parse_folder, metavar="FILE")
    ] = BUILD / "course.pdf",
    language: Annotated[str, typer.Option(help="such as ru: see course translate")] = "en",
) -> None:
    """Print all lessons and the glossary as one PDF; Chromium takes some minutes for it."""
    from course_tools.publish.book import write_book

    if output.is_dir():
        raise CourseError(f"{output} is a folder: name a file with --output")
    write_book(find_lessons(), output, language)
    console.print(f"to print: {output}", soft_wrap=True)


@app.command()
def translate(
    language: Annotated[str, typer.Argument(help="code, such as ru or pt_BR")],
    lessons: Annotated[
        list[str] | None, typer.Argument(help="numbers or names, to translate as a whole")
    ] = None,
) -> None:
    """Bring the translations into a language in step with the English text."""
    from course_tools.publish.site import find_catalogue
    from course_tools.publish.translate import update_catalogue

    known = find_lessons()
    whole = select_lessons(lessons, known) if lessons else []
    found = update_catalogue(language, known, whole)
    console.print(
        f"{find_catalogue(language)}: {found.translated} messages are translated, {found.fuzzy} "
        f"marked as fuzzy (read them again, remove the mark), {found.missing} not translated",
        soft_wrap=True,
    )


@app.command()
def plan(
    lesson: Annotated[str, typer.Argument(help="number or name")],
    minutes: Annotated[int, typer.Option(help="of the seminar", min=10, max=480)] = 45,
    run: Execution = BUILD / "quick",
) -> None:
    """What to show of a lesson in a seminar, by the times of an execution."""
    from course_tools.publish.seminars import format_plan, read_cell_times
    from course_tools.run.record import COURSE_FILE

    for chosen in select_lessons([lesson], find_lessons()):
        cells_s = read_cell_times(run / COURSE_FILE, chosen)
        print(f"# {chosen.name}\n\n{format_plan(chosen, cells_s, minutes)}\n")


@app.command()
def sync() -> None:
    """Write what is made from the lessons: README's tables, links, outputs that checks compare."""
    from course_tools.publish.planted import store_outputs
    from course_tools.publish.sync import sync_course

    lessons = find_lessons()
    changed = [*sync_course(ROOT, lessons), *filter(None, map(store_outputs, lessons))]
    for path in changed:
        console.print(f"written: {path}", soft_wrap=True)
    if not changed:
        console.print("all is as it should be")


@app.command("pretrain")
def pretrain_backbone(
    images: Annotated[
        Path | None, typer.Option(help="of photographs: folder with Tiny ImageNet (train/, val/)")
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="of texts: learns from the definitions in data/text")
    ] = False,
    seed: Annotated[
        int, typer.Option(help="of weights, order and augmentation", min=0, max=2**32 - 1)
    ] = 0,
) -> None:
    """Make a pretrained backbone in data/weights again (git keeps the old one)."""
    from course_tools.interrupts import ending_on_interrupt
    from course_utils.models import backbone

    if (images is None) == (not text):
        raise CourseError("course pretrain: give --images FOLDER or --text, one of the two")
    interrupted = "course: interrupted; the backbone is the one that was there"
    with ending_on_interrupt(console, interrupted):
        if images is not None:
            from course_tools.pretrain.images import pretrain

            about = pretrain(images, backbone.WEIGHTS, seed)
            reached = f"{100 * about['val_accuracy']:.2f} % of the validation images"
        else:
            from course_tools.pretrain.texts import pretrain as pretrain_texts

            about = pretrain_texts(backbone.WEIGHTS, seed)
            losses = [f"{loss:.3f} ({name})" for name, loss in about["val_loss"].items()]
            reached = f"a loss on held-out definitions of {' and '.join(losses)}"
    console.print(
        f"{about['model']}: {reached} in {about['time_s']:.0f} s → {backbone.WEIGHTS}",
        soft_wrap=True,
    )


@app.command()
def study(
    names: Annotated[
        list[str] | None, typer.Argument(help="folders of lessons; without one: list the studies")
    ] = None,
    jobs: Annotated[int, typer.Option(help="processes, with one thread each", min=1)] = 2,
    dask: Annotated[
        str, typer.Option(help="train on the workers of this Dask scheduler", metavar="ADDRESS")
    ] = "",
    check: Annotated[
        bool, typer.Option("--check", help="train one training of each study again, and compare")
    ] = False,
) -> None:
    """Train what the studies of lessons lack; what is trained is kept, and never trained twice."""
    from course_tools.interrupts import ending_on_interrupt
    from course_tools.study.command import check_study, open_workers, run_study
    from course_tools.study.declare import find_studies, load_study
    from course_tools.study.describe import list_studies

    for name in names or ():
        load_study(name)  # refuses an unknown one before anything is trained
    if check:
        for name in names or find_studies():
            console.print(check_study(name), soft_wrap=True)
    elif not names:
        for line in list_studies(jobs, date.today()):
            console.print(line, soft_wrap=True)
    else:
        with ending_on_interrupt(console, "course: interrupted; what is trained is kept"):
            for name in names:
                with open_workers(jobs, dask) as workers:
                    found = run_study(name, workers, say=console.print)
                console.print(f"study: {found.path}", soft_wrap=True)
