"""A recipe's file: how it is imported, and what is said of one that fails."""

import importlib.util
import sys
import traceback
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

from course_tools.console import make_printable
from course_utils.config import Config
from course_utils.errors import CourseError

__all__ = ["describe_failure", "load_recipe"]

MODULE = "race_recipe"  # whatever the file is called: it may have the name of a library
SHOWN = 200  # characters of a message

Recipe = Callable[[Config], Any]


def load_recipe(path: Path) -> Recipe:
    """Import the file and return its function ``recipe``.

    Raises:
        CourseError: it does not import, or has no such function.
    """
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None  # the file's name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module  # dataclasses and pickle look there
    try:
        spec.loader.exec_module(module)
    except (CourseError, MemoryError):
        raise
    except BaseException as error:  # SystemExit too
        raise CourseError(f"it does not import: {describe_failure(error, path)}") from error
    recipe = getattr(module, "recipe", None)
    if not callable(recipe):
        raise CourseError(
            "it has no function recipe(config): define one that returns arguments of fit"
        )
    return recipe


def describe_failure(error: BaseException, path: Path) -> str:
    """An exception of a recipe in one line: what, and in which line of its file."""
    if isinstance(error, CourseError):
        return str(error)
    text = make_printable(str(error))
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in text:
        return "it needs more memory than the race allows: take a smaller network or batch"
    name = type(error).__name__
    if isinstance(error, SyntaxError):
        return f"{name}: {error.msg} (line {error.lineno})"
    text = text if len(text) <= SHOWN else f"{text[:SHOWN]} …"
    if isinstance(error, FrozenInstanceError):
        text += ': return {"config": config.replace(…)}'
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename) == path
    ]
    where = f" (line {lines[-1]})" if lines else ""
    return f"{name}: {text}{where}" if text else f"{name}{where}"
