"""``pytest --since REV``: which tests are about something that has changed since a revision."""

import subprocess
from collections.abc import Sequence
from fnmatch import fnmatch

import pytest

from tests.places import ROOT, find_notebooks

__all__ = ["is_needed", "list_changed"]

ANY_NOTEBOOK, PACKAGE = "notebooks/*", "course_utils/*"

# What the tests in a folder are about, beside the folder itself. Those in tests/text read files of
# all kinds, and always run. Those with a lesson's name are about its folder and its notebook, and
# about no other notebook.
SUBJECTS = {
    "tests/core": (PACKAGE,),
    "tests/tools": (
        "course_tools/*",
        PACKAGE,
        "docs/*",
        "scripts/*",
        "data/text/*",
        "tests/core/test_study_results.py",
        "tests/lessons/cards.py",
    ),
    "tests/tools/test_set_up.py": ("set_up.py",),
    "tests/faults": ("course_tools/*", PACKAGE, "tests/tools/*"),
    "tests/browser": (
        "course_tools/*",
        PACKAGE,
        ANY_NOTEBOOK,
        "tests/lessons/cards.py",
        "tests/tools/conftest.py",
    ),
    "tests/browser/test_book.py": (
        "course_tools/*",
        PACKAGE,
        "tests/tools/*",
        "tests/lessons/cards.py",
    ),
    "tests/browser/test_lab.py": ("course_tools/*", PACKAGE, "tests/tools/conftest.py"),
    "tests/combinations": (PACKAGE, "lesson_code/*/technique.py"),
    "tests/lessons": (PACKAGE,),
    "tests/pretend": (
        PACKAGE,
        "course_tools/measure/*",
        "lesson_code/*/technique.py",
        ANY_NOTEBOOK,
        "tests/combinations/*",
        "tests/lessons/*",
    ),
    "tests/pretend/on_": (  # in the process that the tests of this folder start
        PACKAGE,
        "course_tools/measure/*",
        "lesson_code/*/technique.py",
        "tests/combinations/*",
    ),
    "tests/pretend/on_cards.py": (ANY_NOTEBOOK, "tests/lessons/*"),
    "lesson_code": (PACKAGE, "tests/lessons/*", "tests/combinations/*"),
}
ALL = ("conftest.py", "pyproject.toml", "requirements.lock", "data/photos/*", "data/weights/*")
ALL += ("tests/no_*", *(f"tests/{path.name}" for path in (ROOT / "tests").glob("*.py")))


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
    named = [path.stem[3:] for path in find_notebooks() if path.stem in nodeid]
    patterns = [pattern for pattern in SUBJECTS[about] if not named or pattern != ANY_NOTEBOOK]
    lesson = parts[1] if folder == "lesson_code" else "".join(named[:1])
    if folder == "tests/lessons":
        lesson = lesson or "*"
    own = (f"lesson_code/{lesson}/*", f"notebooks/[0-9][0-9]_{lesson}.ipynb") if lesson else ()
    itself = () if folder == "lesson_code" else (f"{folder}/*",)
    return [*ALL, *own, *itself, *patterns]


def is_needed(nodeid: str, changed: Sequence[str], *, of_lesson: bool = False) -> bool:
    """Whether a test is about one of the files that have changed.

    ``of_lesson``: a change of the package alone is no reason to run it.
    """
    if nodeid.startswith("tests/text/"):
        return True
    subjects = list_subjects(nodeid)
    if of_lesson:
        subjects = [pattern for pattern in subjects if pattern != PACKAGE]
    return any(fnmatch(path, pattern) for path in changed for pattern in subjects)
