"""The table "What is my problem?": it stands in the first lesson, and README and site show it."""

import re

from course_tools.run.lessons import Lesson

__all__ = ["HEADING", "read_problems"]

HEADING = "## What is my problem?"
LOCAL_LINK = re.compile(r"\]\((?!https?:|#)([^)]+)\)")


def read_problems(lesson: Lesson, folder: str = "") -> str:
    """The rows of the lesson's table in Markdown, empty if it has none.

    Args:
        lesson: the first one.
        folder: what stands before each link to a file, such as ``notebooks/``.
    """
    for cell in lesson.read().cells:
        if cell.cell_type == "markdown" and cell.source.startswith(f"{HEADING}\n"):
            rows = [line for line in cell.source.splitlines() if line.startswith("|")]
            return LOCAL_LINK.sub(rf"]({folder}\1)", "\n".join(rows))
    return ""
