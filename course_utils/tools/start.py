"""Where the command ``course`` starts: signals are heeded before the imports, which are slow."""

from course_utils.tools.interrupts import heed_signals

__all__ = ["main"]


def main() -> None:
    """Entry point of the command."""
    heed_signals()
    from course_utils.tools import cli

    cli.main()
