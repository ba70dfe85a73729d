"""Where the command ``course`` starts: signals are heeded before the imports, which are slow."""

import os
import sys
from collections.abc import Sequence

__all__ = ["find_shadow", "main"]

HARMLESS = {*sys.builtin_module_names, "test", "this", "antigravity"}  # not found first, or unused


def find_shadow(path: Sequence[str], library: str) -> str | None:
    """The first file that Python would import in place of a module of its own library.

    Such a file lies in a folder of ``PYTHONPATH``, or in the working folder under ``python -m``.

    Args:
        path: folders where Python looks for modules, such as `sys.path`.
        library: the folder of Python's own modules; later folders cannot shadow them.
    """
    for folder in path:
        if folder == library:
            break
        try:
            names = sorted(os.listdir(folder or os.curdir))
        except OSError:  # no such folder, or an archive
            continue
        for name in names:
            stem, end = os.path.splitext(name)
            place = os.path.join(folder, name)
            is_module = end == ".py" or os.path.isfile(os.path.join(place, "__init__.py"))
            if is_module and stem in sys.stdlib_module_names and stem not in HARMLESS:
                return place
    return None


def main() -> None:
    """Entry point of the command."""
    if shadow := find_shadow(sys.path, os.path.dirname(os.__file__)):
        name = os.path.splitext(os.path.basename(shadow))[0]
        sys.exit(
            f"course: {shadow!a} would take the place of Python's own module {name}: rename "
            "it, or take its folder out of PYTHONPATH"
        )
    from course_tools.interrupts import heed_signals

    heed_signals()
    from course_tools.cli import main as cli

    cli.main()
