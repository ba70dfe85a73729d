"""The commands of students; as thin as the others in ``cli``."""

from pathlib import Path
from typing import Annotated

import typer

from course_tools.console import make_console
from course_tools.options import BUILD, Memory, TimeLimit
from course_utils.errors import CourseError
from course_utils.files import probe_folder

__all__ = ["app"]

app = typer.Typer()
console = make_console()
INTERRUPTED = "course: interrupted; the lessons above are checked"


def _print_results(results: list) -> None:
    from course_tools.grade.progress import is_untouched

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
    from course_tools.lab.lab import open_lab

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
    from course_tools.grade import check, progress
    from course_tools.grade.answers import identify_lesson
    from course_tools.grade.exercises import find_exercises, find_notebook
    from course_tools.grade.reading import read_submission
    from course_tools.interrupts import ending_on_interrupt
    from course_tools.run.lessons import NOTEBOOKS
    from course_utils.predictions import FILE as PREDICTIONS

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
    predictions = progress.make_prediction_table(NOTEBOOKS / PREDICTIONS)
    if predictions.rows:
        console.print(predictions)
    raise typer.Exit(0 if all_passed else 1)
