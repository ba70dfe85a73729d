"""``course sync``: tables of README and docs, the README's figure, links and minutes of lessons.

They are written from the lessons and from stored results. Nothing of it is edited by hand, so a
new lesson is a new notebook and no edit elsewhere.
"""

import copy
import re
from collections.abc import Sequence
from pathlib import Path

import nbformat

from course_tools.publish.fair_race import RACE, RACE_PAGE, format_rivals
from course_tools.publish.minutes import set_minutes
from course_tools.publish.problems import HEADING, read_problems
from course_tools.publish.readme import format_findings, format_section
from course_tools.publish.readme_figure import draw_figure, format_figure, is_stale
from course_tools.run.lessons import Lesson
from course_utils.errors import CourseError
from course_utils.files import write_atomically
from course_utils.results import read_file

__all__ = [
    "format_lesson_map",
    "format_problems",
    "link_lessons",
    "list_changes",
    "replace_section",
    "set_navigation",
    "sync_course",
]

RESULTS_PAGE = Path("docs", "results.md")
AFTER_THE_LAST = "a project of your own, with the [map of the seams](00_start_here.ipynb) beside it"


def format_lesson_map(lessons: Sequence[Lesson]) -> str:
    """The README's table of lessons, in Markdown."""
    rows = ["| lesson | question |", "|---|---|"]
    for x in lessons:
        title = x.name.replace("_", " ")
        rows.append(f"| [{title}](notebooks/{x.path.name}) | {x.question} |")
    return "\n".join(rows)


def format_problems(first: Lesson) -> str:
    """The first lesson's table from symptom to lesson, without what to measure first.

    Raises:
        CourseError: the lesson has no such table.
    """
    table = read_problems(first, "notebooks/")
    if not table:
        raise CourseError(f"{first.name}: begin a cell with {HEADING}, and put the table below it")
    rows = [line.strip("|").split("|") for line in table.splitlines()]
    return "\n".join(f"|{'|'.join([symptom, *rest])}|" for symptom, _, *rest in rows)


def replace_section(text: str, name: str, section: str) -> str:
    """A page's ``text`` with ``section`` between the two markers of this name.

    Raises:
        CourseError: the markers are not there.
    """
    begin, end = f"<!-- {name}: course sync -->", f"<!-- end of {name} -->"
    between = re.compile(f"(?<={re.escape(begin)}\n).*?(?={re.escape(end)})", re.DOTALL)
    if not between.search(text):
        raise CourseError(f"a page has no lines {begin} and {end}: put them around its table")
    return between.sub(lambda _: f"{section}\n", text, count=1)


def _link(lesson: Lesson, notebook: nbformat.NotebookNode) -> str:
    """The lesson's number and short title, as a link.

    Raises:
        CourseError: the notebook does not begin with such a title.
    """
    first = notebook.cells[0].source if notebook.cells else ""
    found = re.match(r"# (\d\d · [^:,\n]+)", first)
    if not found:
        raise CourseError(f"{lesson.name}: begin its first cell with a title like # 05 · Mixup: …")
    return f"[{found[1]}]({lesson.path.name})"


def link_lessons(lessons: Sequence[Lesson]) -> dict[Lesson, str]:
    """For each lesson after the first the line that leads back and on.

    Raises:
        CourseError: a lesson without a title.
    """
    links = [_link(lesson, lesson.read()) for lesson in lessons]
    following = [*links[2:], AFTER_THE_LAST]
    return {
        lesson: f"Back: {back} · Next: {on}"
        for lesson, back, on in zip(lessons[1:], links, following, strict=False)
    }


def set_navigation(notebook: nbformat.NotebookNode, line: str) -> None:
    """Make ``line`` the last one of the notebook's last cell, in place of an older one."""
    cell = notebook.cells[-1]
    before = re.sub(r"\n*^Back: .*\Z", "", cell.source, flags=re.MULTILINE)
    cell.source = f"{before}\n\n{line}"


def list_changes(root: Path, lessons: Sequence[Lesson]) -> dict[Path, str]:
    """The files that are not as they should be, and what they should hold.

    Args:
        root: the repository.
        lessons: all of them, in their order.

    Raises:
        CourseError: the README has no markers, a lesson no title, or results cannot be shown.
    """
    navigation = link_lessons(lessons)
    readme = root / "README.md"
    text = readme.read_text(encoding="utf-8")
    text = replace_section(text, "figure", format_figure(root))
    text = replace_section(text, "problems", format_problems(lessons[0]))
    text = replace_section(text, "lessons", format_lesson_map(lessons))
    text = replace_section(text, "findings", format_findings(lessons, root))
    page = root / RESULTS_PAGE
    results = replace_section(page.read_text("utf-8"), "results", format_section(lessons, root))
    wanted = {readme: text, page: results}
    rivals = root / RACE_PAGE
    if rivals.exists():
        table = format_rivals(read_file(root / "lesson_code" / RACE))
        wanted[rivals] = replace_section(rivals.read_text("utf-8"), "race", table)
    for lesson in lessons:
        notebook = lesson.read()
        before = copy.deepcopy(notebook)
        set_minutes(notebook)
        if lesson in navigation:
            set_navigation(notebook, navigation[lesson])
        if notebook != before:
            wanted[lesson.path] = nbformat.writes(notebook) + "\n"
    return {path: text for path, text in wanted.items() if path.read_text("utf-8") != text}


def sync_course(root: Path, lessons: Sequence[Lesson]) -> list[Path]:
    """Write what `list_changes` finds, and draw a stale figure; returns the files that changed."""
    changes = list_changes(root, lessons)
    for path, text in changes.items():
        write_atomically(path, text)
    return [*changes, draw_figure(root)] if is_stale(root) else list(changes)
