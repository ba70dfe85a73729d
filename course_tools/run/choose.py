"""Which lessons to execute again: those with stale outputs, changed ones, a few by chance."""

import math
import random
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import nbformat

from course_tools.run.key import digest_outputs
from course_tools.run.lessons import Lesson
from course_tools.run.plan import Plan
from course_utils.config import PROFILES, load_config
from course_utils.errors import CourseError
from course_utils.files import ROOT
from course_utils.measure.provenance import read_commit

__all__ = [
    "choose_lessons",
    "draw_lessons",
    "explain_stale",
    "plan_stored",
    "run_git",
    "take_shard",
]


def plan_stored(build: Path) -> Plan:
    """The plan with which outputs are stored: `quick`, its data set, seed 0."""
    config = load_config("quick", dataset=PROFILES["quick"].dataset, first_seed=0)
    return Plan(config, build, time_limit_s=math.inf)


def explain_stale(lesson: Lesson, plan: Plan) -> str:
    """Why the stored outputs of a lesson are not what it would print today; empty if they are.

    Args:
        plan: that of `plan_stored`.
    """
    if not lesson.key:
        return "its outputs were stored without a key"
    if digest_outputs(lesson.read()) != lesson.outputs:
        return "its outputs were edited by hand"
    if lesson.key != plan.key(lesson):
        return "its outputs are older than what they depend on"
    return ""


def run_git(*arguments: str) -> str:
    git = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(git, capture_output=True, encoding="utf-8", check=True).stdout


def _read_keys_at(revision: str, lessons: Sequence[Lesson]) -> dict[str, str]:
    """The keys stored with the lessons at a revision.

    Lessons that it does not have, or has damaged, are left out.
    """
    try:
        run_git("rev-parse", "--verify", f"{revision}^{{commit}}")
    except (OSError, subprocess.CalledProcessError):
        raise CourseError(
            f"--since {revision}: git knows no such revision: name a commit, a branch or a tag"
        ) from None
    keys = {}
    for lesson in lessons:
        path = lesson.path.relative_to(ROOT).as_posix()
        if run_git("ls-tree", "--name-only", revision, path):
            try:
                notebook = nbformat.reads(run_git("show", f"{revision}:{path}"), as_version=4)
                keys[lesson.name] = notebook.metadata["course"]["key"]
            except Exception:  # nbformat meets anything at all in a damaged file
                continue
    return keys


def choose_lessons(
    lessons: Sequence[Lesson], plan: Plan, *, stale: bool, since: str, sample: int
) -> dict[Lesson, str]:
    """Lessons to execute again, each with the reason, the most urgent first.

    Args:
        lessons: to choose from.
        plan: that of `plan_stored`.
        stale: take those whose stored outputs are stale.
        since: take those whose key differs from the one stored at this revision; empty: none.
        sample: take this many of the others at random, see `draw_lessons`.

    Raises:
        CourseError: there is no such revision.
    """
    chosen: dict[Lesson, str] = {}
    if stale:
        reasons = {lesson: explain_stale(lesson, plan) for lesson in lessons}
        chosen |= {lesson: reason for lesson, reason in reasons.items() if reason}
    if since:
        before = _read_keys_at(since, lessons)
        rest = [lesson for lesson in lessons if lesson not in chosen]
        changed = [lesson for lesson in rest if before.get(lesson.name) != plan.key(lesson)]
        # in an order that differs from commit to commit: the time may not be enough for all
        chosen |= dict.fromkeys(draw_lessons(changed, len(changed)), f"changed since {since}")
    rest = [lesson for lesson in lessons if lesson not in chosen]
    drawn = draw_lessons(rest, sample)
    return chosen | dict.fromkeys(drawn, "chosen at random, with the commit as the seed")


def draw_lessons(lessons: Sequence[Lesson], count: int) -> list[Lesson]:
    """At most ``count`` of the lessons at random; the last commit is the seed."""
    commit = (read_commit() or "").removesuffix("+")  # edits since then change nothing
    return random.Random(commit).sample(list(lessons), min(count, len(lessons)))


def take_shard(lessons: Sequence[Lesson], shard: str) -> list[Lesson]:
    """The part ``shard`` of the lessons, so that several machines share the work.

    The longest lessons are dealt out first, each to the part that has the least to do.

    Args:
        shard: number and count, like ``2/4``.

    Raises:
        CourseError: another form.
    """
    found = re.fullmatch(r"(\d{1,3})/(\d{1,3})", shard, re.ASCII)
    number, count = map(int, found.groups()) if found else (0, 0)
    if not 1 <= number <= count:
        raise CourseError(f"--shard {shard}: write number and count, like 2/4")
    parts: list[list[Lesson]] = [[] for _ in range(count)]
    by_time = sorted(lessons, key=lambda lesson: (-(lesson.time_s or lesson.budget_s), lesson.name))
    for lesson in by_time:
        least = min(parts, key=lambda part: sum(x.time_s or x.budget_s for x in part))
        least.append(lesson)
    return [lesson for lesson in lessons if lesson in parts[number - 1]]
