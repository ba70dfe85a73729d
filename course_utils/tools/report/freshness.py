"""``make test-latest``: what the tests say of the newest versions that ``pyproject.toml`` allows.

    python -m course_utils.tools.report.freshness [OPTIONS OF PYTEST]

runs them in the environment of that Python, and writes their outcome, good or bad, into
``data/results/freshness.json``; ``course report`` shows it.
"""

import json
import platform
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from course_utils.errors import CourseError
from course_utils.files import ROOT, write_atomically
from course_utils.measure.provenance import read_commit
from course_utils.results import RESULTS, read_file

__all__ = ["FRESHNESS", "read_freshness", "summarize_tests"]

FRESHNESS = "freshness.json"
TYPES = {
    "date": str,
    "commit": str | None,
    "python": str,
    "versions": dict,
    "passed": int,
    "failed": int,
    "skipped": int,
    "failures": list,
    "finished": bool,
}


def summarize_tests(junit: Path) -> dict:
    """How many tests passed, failed and were skipped, and the names of those that failed.

    Args:
        junit: what pytest wrote with ``--junitxml``; a file that is missing or cut off says that
            the tests did not come to their end.
    """
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    failures = []
    try:
        cases = list(ET.parse(junit).iter("testcase"))
    except (OSError, ET.ParseError):
        return counts | {"failures": [], "finished": False}
    for case in cases:
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failures.append(f"{case.get('classname')}::{case.get('name')}".removeprefix("::"))
        counts["skipped"] += "skipped" in kinds
    counts["failed"] = len(failures)
    counts["passed"] = len(cases) - counts["failed"] - counts["skipped"]
    return counts | {"failures": failures, "finished": True}


def read_dependencies() -> dict[str, str]:
    """Every package that the course names, with the version that is installed here."""
    versions = {}
    for text in requires("course-utils") or []:
        name = Requirement(text).name
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "missing"
    return dict(sorted(versions.items()))


def read_freshness(folder: Path = RESULTS) -> dict | None:
    """What the last ``make test-latest`` found; None if there was none.

    Raises:
        CourseError: the file is damaged.
    """
    path = folder / FRESHNESS
    if not path.exists():
        return None
    found = read_file(path)
    for name, expected in TYPES.items():
        if name not in found or not isinstance(found[name], expected):
            raise CourseError(f"{path} is damaged ({name!r}): run make test-latest again")
    return found


def main() -> None:
    """Run all tests, write their outcome, and end with their exit status."""
    about = {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": read_commit(),
        "python": platform.python_version(),
        "versions": read_dependencies(),
    }
    with tempfile.TemporaryDirectory() as folder:
        junit = Path(folder) / "junit.xml"
        command = [sys.executable, "-m", "pytest", *sys.argv[1:], f"--junitxml={junit}"]
        status = subprocess.run(command, cwd=ROOT).returncode
        found = summarize_tests(junit)
    text = json.dumps(found | about, indent=1, ensure_ascii=False)
    write_atomically(RESULTS / FRESHNESS, text + "\n")
    sys.exit(status)


if __name__ == "__main__":
    main()
