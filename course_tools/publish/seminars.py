"""Seminar plans: which sections to show in 45 or 90 minutes, from the measured ``course.json``.

A section, or a part of it below a heading with ###, takes the time to talk it through, which
follows from its words and its lines of code, and the time its cells were measured to run. The part
of the Experiment with the lesson's headline result comes right after the question. The plan takes
the others in the order of `IMPORTANCE` as long as they fit, and leaves some minutes free; the cells
of what is left out are run, but not talked about.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat

from course_tools.publish.sections import is_card, is_speakers_note, rank_headline
from course_tools.publish.slides import number_slides
from course_tools.run.lessons import Lesson, escape_cell
from course_tools.run.record import read_course
from course_utils.errors import CourseError

__all__ = [
    "SEMINARS_MIN",
    "Section",
    "choose_sections",
    "find_left_out",
    "format_plan",
    "read_cell_times",
    "split_sections",
]

SEMINARS_MIN = (45, 90)
WORDS_PER_MIN = 110  # spoken, with time to look: an assumption, like the next
CODE_LINES_PER_MIN = 10
SLACK = 0.15  # of a seminar: questions from the room, a projector that does not start
QUESTION_MIN = 2  # everybody makes a prediction
CARD_MIN = 1  # the code of a recipe card is shown, and read at home
SET_UP_MIN = 0.5  # imports and parameters are not explained; the slides do not show them
IMPORTANCE = (
    "Title",
    "Question",
    "Idea",
    "Verdict",
    "From scratch",
    "Experiment",
    "Recipe",
    "Check",
    "★",
    "☆",
    "The library way",
    "★★",
    "Recap and sources",
    "★★★",
    "Set-up",
)


FIRST = ("Title", "Question")  # before the headline
IN_PARTS = ("Idea", "From scratch", "Check", "The library way", "Experiment")
HEADING = re.compile(r"^(?:## (.+)|### (☆|★+) .*|### (.+))$", re.MULTILINE)


@dataclass
class Section:
    """A part of a lesson: its heading, its cells ``first`` to ``last``, its minutes, its slides.

    Cells and slides are counted from 1. ``part`` is the heading below the section's, if there is
    one; ``is_headline``: it shows the result that the lesson's metadata name.
    """

    title: str
    first: int
    last: int
    talk_min: float = 0.0
    run_s: float = 0.0
    slides: tuple[int, ...] = ()
    part: str = ""
    is_headline: bool = False

    @property
    def name(self) -> str:
        return f"{self.title}: {self.part}" if self.part else self.title

    @property
    def minutes(self) -> float:
        return self.talk_min + self.run_s / 60


def read_cell_times(course: Path, lesson: Lesson) -> list[float]:
    """Seconds of each cell of the lesson, as the run that wrote ``course`` measured them.

    Raises:
        CourseError: the lesson was not run, or has changed since; ``course`` is damaged.
    """
    again = f"run it: course run {lesson.name[:2]} --force"
    result = read_course(course).find(lesson.name) if course.exists() else None
    if result is None or not result.cells_s:
        raise CourseError(f"{course} has no times of {lesson.name}: {again}")
    if len(result.cells_s) != len(lesson.read().cells):
        raise CourseError(f"{lesson.name} has other cells since it was timed: {again}")
    return result.cells_s


def _talk_min(cell: nbformat.NotebookNode) -> float:
    if is_card(cell):
        return CARD_MIN
    if cell.cell_type == "code":
        hidden = "hide-input" in cell.metadata.get("tags", [])
        return 0.5 if hidden else (cell.source.count("\n") + 1) / CODE_LINES_PER_MIN
    stated = re.search(r"^### [☆★].*\((\d+) minutes\)", cell.source, re.MULTILINE)
    if stated:  # an exercise says itself how long it takes
        return float(stated[1])
    words = re.sub(r"<details>.*?</details>|```.*?```", "", cell.source, flags=re.DOTALL).split()
    return len(words) / WORDS_PER_MIN


def _find_part(source: str, title: str, part: str) -> tuple[str, str]:
    """The section and the part at the end of a text that begins in ``title`` and ``part``."""
    for heading, stars, below in HEADING.findall(source):
        if heading or stars:
            title, part = heading or stars, ""
        elif title in IN_PARTS:
            part = below
    return title, part


def _mark_headline(notebook: nbformat.NotebookNode, sections: list[Section]) -> None:
    """Mark the part of the Experiment with a figure, if possible of the lesson's headline."""
    parts = [section for section in sections if section.title == "Experiment"]
    if parts:
        cells = notebook.cells
        best = max(parts, key=lambda x: rank_headline(notebook, cells[x.first - 1 : x.last]))
        best.is_headline = True


def split_sections(notebook: nbformat.NotebookNode, cells_s: list[float]) -> list[Section]:
    """The sections of a lesson in their order, some in parts; exercises are called by stars."""
    sections: list[Section] = []
    slides = number_slides(notebook)
    for number, (cell, run_s) in enumerate(zip(notebook.cells, cells_s, strict=True), 1):
        before = (sections[-1].title, sections[-1].part) if sections else ("Title", "")
        is_text = cell.cell_type == "markdown"
        title, part = _find_part(cell.source, *before) if is_text else before
        if not sections or (title, part) != before:
            sections.append(Section(title, number, number, part=part))
        section = sections[-1]
        section.last = number
        section.run_s += run_s
        section.slides += tuple(slides.get(number - 1, ()))
        # the minutes of graded cells are those of the exercise; notes are read, not said
        if "nbgrader" not in cell.metadata and not is_speakers_note(cell):
            section.talk_min += _talk_min(cell)
    for section in sections:
        if section.title == "Question":
            section.talk_min = max(section.talk_min, QUESTION_MIN)
        elif section.title == "Set-up":
            section.talk_min = SET_UP_MIN
    _mark_headline(notebook, sections)
    return sections


def choose_sections(sections: list[Section], minutes: float) -> list[Section]:
    """What fits into a seminar, by importance; the same heading again is taken with the first."""
    order = [s for title in FIRST for s in sections if s.title == title]
    order += [s for s in sections if s.is_headline]
    order += [s for title in IMPORTANCE for s in sections if s.title == title and s not in order]
    order += [s for s in sections if s not in order]
    chosen = []
    left = minutes * (1 - SLACK)
    for section in order:
        if section.minutes <= left:
            chosen.append(section)
            left -= section.minutes
    return [section for section in sections if section in chosen]


def find_left_out(lesson: Lesson, cells_s: list[float], minutes: int) -> list[str]:
    """The titles of the sections that do not fit into a seminar of so many minutes."""
    sections = split_sections(lesson.read(), cells_s)
    chosen = choose_sections(sections, minutes)
    shown = {section.title for section in chosen}
    titles = dict.fromkeys(section.title for section in sections if section not in chosen)
    return [f"parts of {title}" if title in shown else title for title in titles]


def _format_range(numbers: Sequence[int]) -> str:
    if not numbers:
        return "–"
    first, last = min(numbers), max(numbers)
    return str(first) if first == last else f"{first}–{last}"


def format_plan(lesson: Lesson, cells_s: list[float], minutes: int) -> str:
    """The plan of one seminar as a Markdown table."""
    sections = split_sections(lesson.read(), cells_s)
    chosen = choose_sections(sections, minutes)
    rows = ["| section | cells | slides | talk (min) | run (s) | in the seminar |"]
    rows.append("|---|---|---|---|---|---|")
    for s in sections:
        exercise = s.title.startswith(("☆", "★"))
        runs = round(s.run_s) > 0 and not exercise  # a student's answer is not written yet
        what = "show" if s in chosen else "run without a word" if runs else "skip"
        cells, slides = _format_range([s.first, s.last]), _format_range(s.slides)
        rows.append(
            f"| {escape_cell(s.name)} | {cells} | {slides} | {s.talk_min:.0f} | {s.run_s:.0f} "
            f"| {what} |"
        )
    total = sum(section.minutes for section in chosen)
    return "\n".join([*rows, "", f"Shown: {total:.0f} of {minutes} minutes."])
