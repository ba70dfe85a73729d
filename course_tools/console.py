"""What the command line prints: text that others wrote, on terminals of every kind."""

import io
import sys

from rich.console import Console

__all__ = ["accept_any_console", "make_console", "make_printable"]


def make_console() -> Console:
    """The console of all commands: it prints paths and messages as they are.

    To rich a path such as ``courses [v2]`` would be markup, and ``:cat:`` in it a picture. Colours
    are given by ``style``.
    """
    return Console(highlight=False, markup=False, emoji=False)


def make_printable(text: str) -> str:
    """``text`` in one line, without the control characters that would command a terminal.

    Names of files and messages of errors may hold them. Letters of every script stay.
    """
    return "".join(c if c.isprintable() else "�" for c in " ".join(text.split()))


def accept_any_console() -> None:
    """Print ``?`` for what the console cannot show, such as ✓ where it is not UTF-8."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # it is None where it was closed
            stream.reconfigure(errors="replace")
