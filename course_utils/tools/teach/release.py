"""``course release``: the students' course, a folder of its own, without any solution."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbgrader.preprocessors import ClearHiddenTests, ClearSolutions

from course_utils.errors import CourseError
from course_utils.files import ROOT, replace_folder
from course_utils.tools.run.lessons import NOTEBOOKS, Lesson
from course_utils.tools.teach.colab import make_colab_cell
from course_utils.tools.teach.exercises import MANIFEST, find_exercises, format_manifest

__all__ = ["clear_solutions", "release"]

STUDENT_FILES = Path(__file__).with_name("student")  # the README and the Makefile of a release
COPIED = (
    *("course_utils", "data/README.md", "data/photos", "data/results", "data/weights"),
    "docs/seams.png",
    *("LICENSE", "pyproject.toml", "requirements.lock", "environment.yml"),
)
MAY_BE_LEFT_OUT = "data/photos"  # data/README.md says how
RELEASED = ".released.json"  # checksums of the released files: has anyone worked in them?
KEPT = (".git", ".venv", "build")  # of an earlier release, moved into the new one
PASSING = {"__pycache__", ".ipynb_checkpoints", "runs"}  # made by running, lost without regret


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
            cell.outputs, cell.execution_count = [], None
    # the preprocessors leave their own traces; nothing else of the notebook changes
    cleared.metadata = nbformat.from_dict(notebook.metadata)
    return cleared


def _digest(folder: Path) -> dict[str, str]:
    """The checksum of every file that a release consists of, or that somebody put there."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        passing = name.parts[0] in KEPT or name.name == RELEASED or PASSING & set(name.parts)
        if path.is_file() and not passing and not name.parts[0].endswith(".egg-info"):
            found[name.as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _check_unused(target: Path) -> None:
    """Refuse to replace files that somebody has written or worked in."""
    if not target.exists():
        return
    try:
        released = dict(json.loads((target / RELEASED).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        released = None
    if released is None:
        if any(target.iterdir()):
            raise CourseError(f"{target} is no release: choose an empty folder with --output")
        return
    worked_in = [name for name, digest in _digest(target).items() if released.get(name) != digest]
    if worked_in:
        more = f" and {len(worked_in) - 3} more" if len(worked_in) > 3 else ""
        raise CourseError(
            f"{target} holds work ({', '.join(worked_in[:3])}{more}): move it away, or choose "
            "another folder with --output"
        )


def release(lessons: Sequence[Lesson], target: Path, colab: str = "") -> Path:
    """Write the students' course to the folder ``target`` and return it.

    With ``colab``, the address of a git repository with the release in it, each notebook gets a
    cell below its title that installs the course on Google Colab.

    All or nothing; of an earlier release its ``.git``, ``.venv`` and ``build`` are kept.

    Raises:
        CourseError: ``target`` is something else, or holds a student's work; a bad address.
    """
    _check_unused(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".release-") as folder:
        new = Path(folder) / "new"
        shutil.copytree(STUDENT_FILES, new)
        for name in COPIED:
            source, copy = ROOT / name, new / name
            if name == MAY_BE_LEFT_OUT and not source.exists():
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy)
        (new / "notebooks").mkdir()
        shutil.copy(NOTEBOOKS / "glossary.md", new / "notebooks")
        for lesson in lessons:
            notebook = clear_solutions(lesson.read())
            if colab:
                notebook.cells.insert(1, make_colab_cell(colab))
            text = nbformat.writes(notebook)
            (new / "notebooks" / lesson.path.name).write_text(text + "\n", encoding="utf-8")
        (new / MANIFEST).write_text(format_manifest(find_exercises()), encoding="utf-8")
        digest = json.dumps(_digest(new), indent=1)
        (new / RELEASED).write_text(digest + "\n", encoding="utf-8")
        replace_folder(new, target, KEPT)
    return target
