"""``course release``: the students' course, a folder of its own, without any solution."""

import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbgrader.preprocessors import ClearHiddenTests, ClearSolutions

from course_tools.grade.exercises import MANIFEST, find_exercises, format_manifest
from course_tools.lesson_folder import is_for_teachers
from course_tools.publish.colab import make_colab_cell
from course_tools.publish.made_folder import MadeFolder
from course_tools.publish.sections import find_section, is_speakers_note
from course_tools.run.lessons import NOTEBOOKS, Lesson
from course_utils.errors import CourseError
from course_utils.files import ROOT

__all__ = ["clear_solutions", "make_students_version", "release"]

STUDENT_FILES = Path(__file__).with_name("student")  # the README and the Makefile of a release
COPIED = (
    "course_utils",
    "course_tools",
    "lesson_code",
    "data/README.md",
    "data/photos",
    "data/results",
    "data/weights",
    "docs/seams.png",
    "LICENSE",
    "pyproject.toml",
    "requirements.lock",
    "set_up.py",
    "environment.yml",
)
LEFT_OUT = ("course_tools/cli/teaching.py", "course_tools/pretrain", "course_tools/publish")
MAY_BE_LEFT_OUT = "data/photos"  # data/README.md says how
RELEASE = MadeFolder(
    "release", ".released.json", (".git", ".venv", "build", "runs", "notebooks/runs")
)
ANSWERING = ("Experiment", "Verdict")  # sections whose outputs answer the lesson's question
LANGUAGE = {  # what a notebook says of Python after JupyterLab has opened it
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
    "version": platform.python_version(),
}


def clear_solutions(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The student's version: stubs for solutions, no hidden tests, no output of either.

    Raises:
        CourseError: a solution or hidden test begins and does not end.
    """
    cleared = nbformat.from_dict(notebook)
    try:
        for preprocessor in (ClearSolutions(), ClearHiddenTests()):
            cleared, _ = preprocessor.preprocess(cleared, {})
    except RuntimeError as error:
        raise CourseError(f"{error}: close every BEGIN with its END") from None
    for cell in cleared.cells:
        if "nbgrader" in cell.metadata and cell.cell_type == "code":
            _clear_outputs(cell)
    # the preprocessors leave their own traces; nothing else of the notebook changes
    cleared.metadata = nbformat.from_dict(notebook.metadata)
    return cleared


def _clear_outputs(cell: nbformat.NotebookNode) -> None:
    cell.outputs = []
    cell.execution_count = None


def make_students_version(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook as a student gets it: without solutions, answers and speaker's notes.

    The sections that answer the lesson's question have no outputs, so a prediction is one. Code
    that only draws is folded. The language is described in full, as JupyterLab does: it would
    add what is missing, and the notebook would be unsaved as soon as it is open.

    Raises:
        CourseError: a solution or hidden test begins and does not end.
    """
    student = clear_solutions(notebook)
    student.metadata["language_info"] = nbformat.from_dict(LANGUAGE)
    student.cells = [cell for cell in student.cells if not is_speakers_note(cell)]
    section = ""
    for cell in student.cells:
        if cell.cell_type == "markdown":
            section = find_section(cell.source, section)
        elif cell.cell_type == "code" and section in ANSWERING:
            _clear_outputs(cell)
    return student


def _leave_out(folder: str, names: list[str]) -> list[str]:
    """What `shutil.copytree` does not copy: caches, planted answers, and instructors' commands."""
    paths = {name: (Path(folder) / name).relative_to(ROOT).as_posix() for name in names}
    left = [name for name, path in paths.items() if path in LEFT_OUT or is_for_teachers(path)]
    return [*left, "__pycache__"]


def _check_place(target: Path) -> None:
    """Refuse a folder among the sources: the release would be copied into itself."""
    if target.is_relative_to(ROOT) and not target.is_relative_to(ROOT / "build"):
        raise CourseError(
            f"{target} lies among the course's sources: choose a folder in {ROOT / 'build'}, or "
            "outside the course, with --output"
        )


def release(lessons: Sequence[Lesson], target: Path, colab: str = "") -> Path:
    """Write the students' course to the folder ``target`` and return it.

    With ``colab``, the address of a git repository with the release in it, each notebook gets a
    cell below its title that installs the course on Google Colab.

    All or nothing; of an earlier release its ``.git``, ``.venv``, ``build`` and ``runs`` are kept.

    Raises:
        CourseError: ``target`` is something else, holds a student's work, or lies among the
            course's own sources; a bad address.
    """
    target = target.resolve()
    _check_place(target)
    with RELEASE.replacing(target) as new:
        shutil.copytree(STUDENT_FILES, new, dirs_exist_ok=True)
        for name in COPIED:
            source = ROOT / name
            copy = new / name
            if name == MAY_BE_LEFT_OUT and not source.exists():
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, copy, ignore=_leave_out)
            else:
                shutil.copy(source, copy)
        (new / "notebooks").mkdir()
        shutil.copy(NOTEBOOKS / "glossary.md", new / "notebooks")
        for lesson in lessons:
            notebook = make_students_version(lesson.read())
            if colab:
                notebook.cells.insert(1, make_colab_cell(colab))
            text = nbformat.writes(notebook)
            (new / "notebooks" / lesson.path.name).write_text(text + "\n", encoding="utf-8")
        (new / MANIFEST).write_text(format_manifest(find_exercises()), encoding="utf-8")
    return target
