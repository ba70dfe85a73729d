"""``course.json``: what one ``course run`` found, and how its readers get at it."""

import json
from dataclasses import dataclass, field, fields
from pathlib import Path

from course_utils.errors import CourseError
from course_utils.files import write_atomically
from course_utils.results import LessonResult, validate

__all__ = [
    "COURSE_FILE",
    "CourseResult",
    "describe_status",
    "load_earlier",
    "read_course",
    "write_course",
]

COURSE_FILE = "course.json"  # in the folder of a run, such as build/quick
AGAIN = "run course run --force"


@dataclass(frozen=True)
class CourseResult:
    """The contents of ``course.json``: how and where it was measured, and each lesson's result."""

    profile: str
    dataset: str
    first_seed: int
    hardware: dict
    versions: dict
    commit: str | None
    lessons: list[LessonResult]
    # Results that are not of this run: on other data, or of a lesson that has changed since. They
    # are kept, because a run that asks for exactly them again need not execute the lesson.
    earlier: list[LessonResult] = field(default_factory=list)
    notebooks: dict[str, str] = field(default_factory=dict)  # lesson: digest of what it printed

    def find(self, name: str) -> LessonResult | None:
        """The result of the lesson called ``name``, or None."""
        return next((entry for entry in self.lessons if entry.name == name), None)

    def measured_alike(self, other: "CourseResult") -> bool:
        """Whether both are of the same profile, data set and first seed."""
        asked = ("profile", "dataset", "first_seed")
        return all(getattr(self, name) == getattr(other, name) for name in asked)

    def to_json(self) -> dict:
        """The dictionary that ``course.json`` holds."""
        content = {about.name: getattr(self, about.name) for about in fields(self)}
        for place in ("lessons", "earlier"):
            content[place] = [entry.to_json() for entry in content[place]]
        return content

    @classmethod
    def from_json(cls, content: object, *, keep_intact: bool = False) -> "CourseResult":
        """Read the contents of ``course.json``.

        Args:
            content: what `to_json` returned.
            keep_intact: leave out damaged entries of lessons, instead of raising.

        Raises:
            CourseError: the contents are damaged.
        """
        if isinstance(content, dict):
            content = content | {
                place: _read_entries(content[place], keep_intact)
                for place in ("lessons", "earlier")
                if isinstance(content.get(place), list)
            }
        return validate(cls, content)


def _read_entries(rows: list, keep_intact: bool) -> list[dict]:
    entries = []
    for row in rows:
        try:
            entries.append(LessonResult.from_json(row).to_json())
        except CourseError:
            if not keep_intact:
                raise
    return entries


def read_course(path: Path) -> CourseResult:
    """Read the ``course.json`` at ``path``.

    Raises:
        CourseError: there is none, or it is damaged.
    """
    try:
        return CourseResult.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise CourseError(f"no {path}: run the lessons first, with course run") from None
    except ValueError as error:  # a CourseError, too
        raise CourseError(f"{path} is damaged ({error}): {AGAIN}") from None


def describe_status(result: LessonResult) -> str:
    """The status of a lesson as a reader sees it: one that was skipped has passed before."""
    return "passed earlier" if result.status == "skipped" else result.status


def load_earlier(path: Path) -> CourseResult | None:
    """All that is intact in the ``course.json`` at ``path``; None if that is nothing."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return CourseResult.from_json(content, keep_intact=True)
    except (OSError, ValueError):
        return None


def write_course(course: CourseResult, path: Path) -> None:
    """Write ``course.json`` in one step, so that a reader never finds half of it."""
    write_atomically(path, json.dumps(course.to_json(), indent=1))
