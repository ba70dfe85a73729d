"""The lessons: every ``NN_name.ipynb`` in ``notebooks/`` is one, with no list to extend."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from course_utils.errors import CourseError
from course_utils.files import ROOT

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
MEAN_BUDGET_S = 60  # seconds of a lesson in `quick` on two cores, on average over the lessons
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
    time_s: float | None  # seconds that its stored execution took
    peak_mb: int | None  # memory that it held at most, in 10⁶ bytes
    headline: list[dict] = field(hash=False)  # what the README's table shows of it
    dataset: str = "shapes"  # that its text and its effect claims are about
    key: str = ""  # of the execution whose outputs the notebook holds
    outputs: str = ""  # a digest of these outputs

    @property
    def name(self) -> str:
        return self.path.stem

    def read(self) -> nbformat.NotebookNode:
        return nbformat.read(self.path, as_version=4)


def _read_lesson(path: Path) -> Lesson:
    try:
        about = nbformat.read(path, as_version=4).metadata["course"]
        return Lesson(
            path=path,
            question=about["question"],
            technique=about["technique"],
            seam=about["seam"],
            minutes=about["minutes"],
            budget_s=about["budget_s"],
            time_s=about.get("time_s"),
            peak_mb=about.get("peak_mb"),
            headline=about.get("headline", []),
            dataset=about.get("dataset", "shapes"),
            key=about.get("key", ""),
            outputs=about.get("outputs", ""),
        )
    except KeyError as missing:
        raise CourseError(f"{path.name}: its metadata lack course → {missing}") from None
    except (nbformat.reader.NotJSONError, nbformat.ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise CourseError(f"{path} is not a notebook ({reason}): restore it from git") from None


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
