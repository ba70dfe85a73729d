"""``pytest --since REV``: which tests are about something that has changed since a revision."""

import subprocess
from collections.abc import Sequence
from fnmatch import fnmatch

import pytest

from tests.places import ROOT, find_notebooks

__all__ = ["is_needed", "list_changed"]

# What the tests in a folder are about, beside the folder itself. Those in tests/text read files of
# all kinds, and always run; those of one lesson are about its folder and its notebook as well.
SUBJECTS = {
    "tests/core": ("course_utils/*",),
    "tests/tools": ("course_tools/*", "course_utils/*", "docs/*", "scripts/*", "data/text/*"),
    "tests/faults": ("course_tools/*", "course_utils/*"),
    "tests/browser": ("course_tools/*", "course_utils/*", "notebooks/*"),
    "tests/browser/test_lab.py": ("course_tools/*", "course_utils/*"),
    "tests/combinations": ("course_utils/*", "lesson_code/*/technique.py"),
    "tests/lessons": ("course_utils/*",),
    "tests/pretend": (
        "course_utils/*",
        "course_tools/measure/*",
        "lesson_code/*/technique.py",
        "notebooks/*",
        "tests/combinations/*",
        "tests/lessons/cards.py",
    ),
    "lesson_code": ("course_utils/*", "tests/lessons/*", "tests/combinations/*"),
}
ALL = ("conftest.py", "pyproject.toml", "requirements.lock", "tests/*.py", "data/photos/*")
ALL += ("data/weights/*", "tests/no_*")


def list_changed(revision: str) -> list[str]:
    """Paths of files that differ from a revision, also by edits that are not committed yet."""
    commands = (
        ["diff", "--name-only", "--no-renames", revision, "--"],
        ["ls-files", "--others", "--exclude-standard"],
    )
    found: set[str] = set()
    for command in commands:
        git = ["git", "-C", str(ROOT), *command]
        done = subprocess.run(git, capture_output=True, encoding="utf-8")
        if done.returncode:
            raise pytest.UsageError(f"--since {revision}: git knows no such revision")
        found.update(done.stdout.splitlines())
    return sorted(found)


def list_subjects(nodeid: str) -> list[str]:
    """Patterns of the paths that a test is about."""
    parts = nodeid.partition("::")[0].split("/")
    folder = "lesson_code" if parts[0] == "lesson_code" else "/".join(parts[:2])
    about = max((name for name in SUBJECTS if nodeid.startswith(name)), key=len)
    lesson = parts[1] if parts[0] == "lesson_code" else ""
    if folder == "tests/lessons":
        named = [path.stem for path in find_notebooks() if path.stem in nodeid]
        lesson = named[0][3:] if named else "*"
    own = (f"lesson_code/{lesson}/*", f"notebooks/[0-9][0-9]_{lesson}.ipynb") if lesson else ()
    itself = () if folder == "lesson_code" else (f"{folder}/*",)
    return [*ALL, *own, *itself, *SUBJECTS[about]]


def is_needed(nodeid: str, changed: Sequence[str]) -> bool:
    """Whether a test is about one of the files that have changed."""
    if nodeid.startswith("tests/text/"):
        return True
    subjects = list_subjects(nodeid)
    return any(fnmatch(path, pattern) for path in changed for pattern in subjects)
