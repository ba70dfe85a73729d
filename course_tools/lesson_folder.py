"""The folder of a lesson in ``lesson_code``: which of its files a student must not read."""

from fnmatch import fnmatch

__all__ = ["LESSON_CODE", "TEACHERS_FILES", "is_for_teachers"]

LESSON_CODE = "lesson_code"
# Planted answers hold right ones; the others are of no use without them.
TEACHERS_FILES = ("answers.py", "technique.py", "test_*.py", "study*.py")


def is_for_teachers(path: str) -> bool:
    """Whether a file, by its path from the root of the course, is left out of what students get."""
    first, _, rest = path.partition("/")
    name = rest.rpartition("/")[2]
    return first == LESSON_CODE and any(fnmatch(name, pattern) for pattern in TEACHERS_FILES)
