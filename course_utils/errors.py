"""The one exception for a user's mistake: its message is one line that names the fix."""

__all__ = ["CourseError"]


class CourseError(ValueError):
    """Bad input. The command line prints the message and exits with 2; a notebook shows it."""

    def _render_traceback_(self) -> list[str]:  # IPython's hook in place of a traceback
        return [f"{type(self).__name__}: {self}"]
