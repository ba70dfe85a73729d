"""The commands of students and instructors; as thin as the others in ``cli``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from course_utils.tools.lessons import NOTEBOOKS, ROOT, find_lessons

app = typer.Typer()
console = Console(highlight=False)
BUILD = ROOT / "build"
TimeLimit = Annotated[float, typer.Option(help="seconds for one cell", min=1)]
Memory = Annotated[float, typer.Option(help="GiB for one notebook (Linux)", min=3)]


def _print_results(results: list) -> None:
    for result in results:
        sign, colour = ("✗", "red") if result.message else ("✓", "green")
        line = f"  {sign} {result.exercise} ({result.points} of {result.out_of}): "
        console.print(
            line + (result.message or "passed"), style=colour, markup=False, soft_wrap=True
        )


@app.command()
def check(
    notebooks: Annotated[
        list[Path] | None, typer.Argument(help="your notebooks; all lessons if none")
    ] = None,
    time_limit: TimeLimit = 60,
    memory: Memory = 6,
) -> None:
    """Check the exercises of your notebooks: passed, or what is wrong in one sentence."""
    from course_utils.tools import grading, progress
    from course_utils.tools.exercises import find_exercises

    lessons, folder = find_exercises(), BUILD / "progress"
    paths = notebooks or [NOTEBOOKS / f"{lesson.name}.ipynb" for lesson in lessons]
    chosen = [(path, grading.identify_lesson(path, lessons)) for path in paths]
    all_passed = True
    for path, lesson in chosen:
        notebook = grading.read_submission(path)
        key = progress.find_key(notebook, lesson)
        results = progress.load_results(folder, lesson.name, key)
        console.print(lesson.name, style="bold")
        if results is None:
            results = grading.check_notebook(notebook, lesson, grading.Limits(time_limit, memory))
            progress.store_results(folder, lesson.name, key, results)
        _print_results(results)
        all_passed &= not any(result.message for result in results)
    console.print(progress.make_progress_table(lessons, folder))
    raise typer.Exit(0 if all_passed else 1)


@app.command()
def grade(
    submissions: Annotated[Path, typer.Argument(help="folder of <student>/<lesson>.ipynb")],
    output: Annotated[Path, typer.Option(help="table of all results, CSV")] = BUILD / "grades.csv",
    time_limit: TimeLimit = 60,
    memory: Memory = 6,
) -> None:
    """Check the notebooks of many students; a bad one is reported and stops no other."""
    from course_utils.tools import submissions as grading
    from course_utils.tools.exercises import find_exercises

    def show(graded: grading.Graded) -> None:
        points = graded.problem or f"{graded.points} of {graded.out_of} points"
        console.print(f"{graded.student} · {graded.lesson}: {points}", soft_wrap=True, markup=False)

    limits = grading.Limits(time_limit, memory)
    graded = grading.grade_submissions(submissions, find_exercises(), limits, show)
    grading.write_grades(graded, output)
    console.print(f"what happened to each exercise: {output}", soft_wrap=True)
    raise typer.Exit(1 if any(entry.problem for entry in graded) else 0)


@app.command()
def release(
    output: Annotated[Path, typer.Option(help="folder for the students' course")] = BUILD
    / "student",
) -> None:
    """Write the students' course: stubs for solutions, nothing else changed."""
    from course_utils.tools import releasing

    folder = releasing.release(find_lessons(), output.resolve())
    console.print(f"the students' course: {folder} (its README says how to begin)", soft_wrap=True)
