"""The lessons: every ``NN_name.ipynb`` in ``notebooks/`` is one, with no list to extend."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from course_utils.errors import CourseError
from course_utils.files import ROOT
from course_utils.results import validate

__all__ = [
    "MEAN_BUDGET_S",
    "MEMORY_LIMIT_BYTES",
    "NOTEBOOKS",
    "ROOT",
    "Lesson",
    "escape_cell",
    "find_lessons",
    "select_lessons",
]

NOTEBOOKS = ROOT / "notebooks"
MEAN_BUDGET_S = 150  # seconds of a lesson in `quick` on two cores, on average over the lessons
MEMORY_LIMIT_BYTES = 3 * 2**30  # of any lesson, on a machine without a GPU


@dataclass(frozen=True)
class Lesson:
    """A lesson's notebook, and what its ``course`` metadata say of it."""

    path: Path
    question: str
    technique: str
    seam: str
    minutes: int  # of a student's time
    budget_s: int  # seconds that one execution may take in ``quick`` on two cores
    timing: bool = False  # it rests on times or starts ranks: nothing may run beside it
    time_s: float | None = None  # seconds that its stored execution took
    peak_mb: int | None = None  # memory that it held at most, in 10⁶ bytes
    # what the README's table shows of it
    headline: list[dict] = field(default_factory=list, hash=False)
    key: str = ""  # of the execution whose outputs the notebook holds
    outputs: str = ""  # a digest of these outputs

    @property
    def name(self) -> str:
        return self.path.stem

    def read(self) -> nbformat.NotebookNode:
        return nbformat.read(self.path, as_version=4)


def _read_metadata(path: Path) -> dict:
    """The metadata of the notebook at ``path``.

    Raises:
        CourseError: it is not a notebook.
    """
    if not path.is_file():  # a named pipe would never end
        raise CourseError(f"{path} is not a file: restore it from git")
    invalid: dict[str, Exception] = {}
    try:
        notebook = nbformat.read(path, as_version=4, capture_validation_error=invalid)
        if invalid:
            raise next(iter(invalid.values()))
        return notebook.metadata
    except Exception as error:  # nbformat meets anything at all in a damaged file
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CourseError(f"{path} is not a notebook ({reason}): restore it from git") from None


def _read_lesson(path: Path) -> Lesson:
    about = _read_metadata(path).get("course")
    if not isinstance(about, dict):
        raise CourseError(f"{path.name}: its metadata lack course")
    try:
        return validate(Lesson, about | {"path": str(path)})
    except CourseError as error:
        raise CourseError(f"{path.name}: its metadata have a wrong course: {error}") from None


def find_lessons(folder: Path = NOTEBOOKS) -> list[Lesson]:
    """All lessons in their order.

    Raises:
        CourseError: a notebook that cannot be read; a folder without lessons.
    """
    paths = sorted(p for p in folder.glob("*.ipynb") if re.fullmatch(r"\d\d_\w+", p.stem))
    if not paths:
        raise CourseError(f"no lessons in {folder}: run the command from a clone of the course")
    return [_read_lesson(path) for path in paths]


def select_lessons(wanted: Sequence[str], lessons: Sequence[Lesson]) -> list[Lesson]:
    """The lessons named by number (``01``), name (``baseline``) or both; all if none is named.

    Raises:
        CourseError: a name that is no lesson's.
    """
    chosen = []
    for word in wanted:
        if not word.strip():
            raise CourseError("an empty word is no lesson: is a variable not set?")
        stem = Path(word).name.removesuffix(".ipynb")
        found = [x for x in lessons if stem.zfill(2) in (x.name, *x.name.split("_", 1))]
        if not found:
            names = ", ".join(lesson.name for lesson in lessons)
            raise CourseError(f"no lesson {word!r}: choose from {names}")
        chosen += found
    return sorted(set(chosen), key=lambda x: x.name) if wanted else list(lessons)


def escape_cell(text: str) -> str:
    """A text as it stands in one cell of a table in Markdown."""
    return text.replace("|", r"\|").replace("<", "&lt;").replace("*", r"\*")
