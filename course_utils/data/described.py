"""The JSON beside files of data: what they hold, and their checksums."""

import json
from pathlib import Path

from course_utils.errors import CourseError

__all__ = ["read_description"]


def read_description(path: Path, needed: set[str], fix: str) -> dict:
    """The content of a JSON file of a data set.

    Args:
        path: of the file.
        needed: entries that it must have.
        fix: what helps, for the message.

    Raises:
        CourseError: the file is missing, cannot be read, or lacks an entry.
    """
    try:
        about = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        about = {}
    if not set(about) >= needed:
        raise CourseError(f"{path} is missing or damaged: {fix}")
    return about
