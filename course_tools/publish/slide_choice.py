"""Which slides a lesson has: one for each of its parts, at most `MOST_SLIDES`.

Each section, and each part of it below a heading with ###, is one slide: its heading, its last
figure (or else its last table, its first print, its first code), and the text right above and below
that. Question, Verdict and Recipe are shown whole, and the exercises are one slide of tasks. Where
a lesson has more than `MOST_SLIDES`, parts fall out by `_rate`; where it has fewer, other figures
and tables follow below the same heading. All text that no slide shows is in the notes of the slide
before it; solutions, hints and worked answers are nowhere.

Of Jupyter's slide types two are read: ``notes`` are for the speaker, and a code cell of type
``skip`` is not shown, nor is a part that has only cells of this type.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import nbformat

from course_tools.publish.figures import has_figure
from course_tools.publish.sections import is_card, is_speakers_note, rank_headline
from course_tools.publish.slide_text import (
    condense,
    count_words,
    shorten,
    split_blocks,
    split_items,
)

__all__ = ["MOST_SLIDES", "Slide", "choose_slides"]

MOST_SLIDES = 20
PAGE_WORDS = 330  # of a slide of the sections that are shown whole
TEXT_WORDS = 150  # of another slide without code and output
BESIDE_WORDS = 45  # of a paragraph below an output, and of the first one of its part
MOST_BESIDE_WORDS = 75  # if these are to be there at all, beside the one above the output
TASK_WORDS = 40  # of an exercise
SENTENCE_WORDS = 25  # of a paragraph, or an item of a list, where all of them are too long
CODE_LINES = 40  # of code on one slide
MOST_LINES = 12  # of code and prints, if there is text on both sides of it
LOCAL_LINKS = (  # to files that lie elsewhere
    re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)"),
    re.compile(r'<a href="(?!https?:)[^"]*">(.*?)</a>'),
)
HEADING = re.compile(r"^(#{1,3}) (.+)$", re.MULTILINE)
STARS = ("☆", "★")  # of an exercise's heading
HINTS = re.compile(r"<details>.*?</details>", re.DOTALL)
FOLD = re.compile(r"</?details>|<summary>.*?</summary>")
UNSEEN = {"parameters", "imports", "hide-output"}  # tags of cells that are not shown
WHOLE = ("Question", "Verdict", "Recipe")
WANTED = ("figure", "table", "print", "code")
WANTED_FIRST = {"From scratch": "code", "Check": "print", "Verdict": "print"}
IMPORTANCE = ("Experiment", "Idea", "From scratch", "The library way", "Check")
ALWAYS, FIRST, FURTHER, MORE, DEEPER = range(5)  # levels: the first ones stay, the last ones go


@dataclass(frozen=True, eq=False)
class Piece:
    """A paragraph, a code cell or a speaker's note, with the number of its cell, from 0."""

    number: int
    cell: nbformat.NotebookNode
    text: str = ""

    @property
    def is_skipped(self) -> bool:
        return self.cell.metadata.get("slideshow", {}).get("slide_type") == "skip"

    @property
    def kind(self) -> str:
        """What a code cell has to show: one of `WANTED`, or nothing."""
        cell, tags = self.cell, set(self.cell.metadata.get("tags", []))
        if cell.cell_type != "code" or self.is_skipped or "nbgrader" in cell.metadata:
            return ""
        if tags & UNSEEN:
            return ""
        if cell.outputs and not is_card(cell) and not cell.source.startswith("%%writefile"):
            tables = ("<tr" in str(x.get("data", {}).get("text/html", "")) for x in cell.outputs)
            return "figure" if has_figure(cell) else "table" if any(tables) else "print"
        return "" if "hide-input" in tags else "code"


@dataclass(eq=False)
class Part:
    """What stands below one heading; of a section without parts, ``name`` is empty."""

    section: str
    name: str = ""
    pieces: list[Piece] = field(default_factory=list)

    @property
    def heading(self) -> str:
        if self.section in ("", "Exercises"):
            return self.name or self.section
        return f"{self.section}: {self.name}" if self.name else self.section

    @property
    def is_task(self) -> bool:
        """Whether it is an exercise that has nothing to show but the task."""
        starred = self.section == "Exercises" and self.name.startswith(STARS)
        return starred and not any(piece.kind for piece in self.pieces)

    @property
    def holds_answers(self) -> bool:
        """Whether folded text in it is a hint or a worked answer."""
        return self.section == "Exercises" or self.name.startswith(STARS)


@dataclass(eq=False)
class Slide:
    """Text, perhaps a code cell, text: below a heading, with a note for the speaker.

    ``whole`` is what it shows in full, ``numbers`` the cells of which it shows anything;
    ``start`` is the place of its first piece in the lesson.
    """

    part: Part
    start: int
    above: str
    whole: list[Piece]
    code: nbformat.NotebookNode | None = None
    below: str = ""
    level: int = FURTHER
    numbers: set[int] = field(default_factory=set)
    heading: str = ""
    covered: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _split_cell(cell: nbformat.NotebookNode) -> Iterator[tuple[str, str, str]]:
    """The texts of a Markdown cell, each with the marks and the words of the heading above it."""
    source = cell.source
    for link in LOCAL_LINKS:
        source = link.sub(r"\1", source)
    before, *rest = HEADING.split(source)
    yield from [("", "", before), *zip(rest[::3], rest[1::3], rest[2::3], strict=True)]


def _split_parts(notebook: nbformat.NotebookNode) -> list[Part]:
    """The parts of a lesson in their order, without those that have a heading only."""
    parts = [Part("")]
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type != "markdown" or is_speakers_note(cell):
            parts[-1].pieces.append(Piece(number, cell))
            continue
        for marks, words, text in _split_cell(cell):
            if marks == "###":
                parts.append(Part(parts[-1].section, words))
            elif marks:
                parts.append(Part(words) if marks == "##" else Part("", words))
            blocks = split_blocks(text)
            if parts[-1].holds_answers:
                blocks = split_blocks(HINTS.sub("", text)) or [""] * bool(marks)
            parts[-1].pieces += [Piece(number, cell, block) for block in blocks]
    return [part for part in parts if part.pieces]


def _list_tasks(parts: list[Part]) -> str:
    texts = {part.name: next((x.text for x in part.pieces if x.text), "") for part in parts}
    tasks = (f"**{name}** {shorten(texts[name], TASK_WORDS, anyway=True)}" for name in texts)
    return "\n\n".join(tasks)


def _cut_lines(source: str) -> list[str]:
    """Code in parts of `CODE_LINES` at most, if possible between two statements."""
    lines = source.splitlines()
    parts = []
    while len(lines) > CODE_LINES:
        size = math.ceil(len(lines) / math.ceil(len(lines) / CODE_LINES))
        places = range(max(size - 9, 1), CODE_LINES + 1)
        inside = {i: (bool(lines[i - 1].strip()), lines[i].startswith((" ", ")"))) for i in places}
        best = min(places, key=lambda i: (inside[i], abs(i - size)))
        parts.append("\n".join(lines[:best]).rstrip())
        lines = lines[best:]
    return [*parts, "\n".join(lines)]


def _show_code(piece: Piece) -> list[nbformat.NotebookNode]:
    """A code cell as it stands on a slide, or on several; code is not shown with a figure."""
    shown = []
    for source in _cut_lines(piece.cell.source) if piece.kind == "code" else [piece.cell.source]:
        cell = nbformat.from_dict(piece.cell)
        cell.source = source
        if piece.kind == "code":
            cell.outputs = []  # that a file was written; what the stand-in data of a card gave
        elif piece.kind != "print":
            cell.metadata["tags"] = sorted({*cell.metadata.get("tags", []), "hide-input"})
        for output in cell.outputs:
            lines = str(output.get("text", "")).splitlines()
            if len(lines) > CODE_LINES:
                output["text"] = "\n".join([*lines[:CODE_LINES], "…"])
        shown.append(cell)
    return shown


def _has_room(slide: Slide, text: str) -> bool:
    """Whether more text fits beside code, output and what is there already."""
    assert slide.code is not None
    hidden = "hide-input" in slide.code.metadata.get("tags", [])
    lines = 0 if hidden else slide.code.source.count("\n") + 1
    lines += sum(1 + str(output.get("text", "")).count("\n") for output in slide.code.outputs)
    most = MOST_LINES // 3 if has_figure(slide.code) else MOST_LINES
    words = count_words(f"{slide.above} {slide.below} {text}")
    return lines <= most and words <= MOST_BESIDE_WORDS


def _make_code_slides(part: Part, piece: Piece, start: int) -> list[Slide]:
    """The slide of a code cell with what stands right above and below it."""
    place = part.pieces.index(piece)
    above = [x for x in part.pieces[:place] if x.text][-1:]
    others = [x for x in part.pieces[place + 1 :] if not is_speakers_note(x.cell)]
    slides = [Slide(part, start + place, "", [piece], cell) for cell in _show_code(piece)]
    slides[0].above = "".join(x.text for x in above)
    # below an exercise may stand its answer, and behind bold words another subject
    is_other = part.section == "Exercises" or not others or others[0].text[:2] in ("", "**")
    text = "" if is_other else shorten(others[0].text, BESIDE_WORDS)
    below = others[:1] if text and _has_room(slides[-1], text) else []
    slides[0].start -= place - part.pieces.index(above[0]) if above else 0
    slides[-1].below = text if below else ""
    slides[0].whole += above
    slides[-1].whole += [x for x in below if x.text == text]
    slides[0].numbers |= {x.number for x in above}
    slides[-1].numbers |= {x.number for x in below}
    for slide in slides:
        slide.numbers.add(piece.number)
    return slides


def _make_pages(part: Part, taken: list[Piece], start: int) -> list[Slide]:
    """Slides of the text that no other slide has taken; of most sections the first one only."""
    is_whole = part.section in WHOLE
    most = PAGE_WORDS if is_whole else TEXT_WORDS
    texts = [piece.text for piece in part.pieces if piece not in taken]
    is_long = part.section == "Verdict" and count_words("\n".join(texts)) > most
    pages: list[Slide] = []
    is_full = True
    for place, piece in enumerate(part.pieces):
        is_full |= piece in taken and not piece.text  # an output stands between the texts
        if not piece.text or piece in taken:
            continue
        keep = is_whole or "\n" in piece.text  # a list or a table is not shortened
        text = shorten(piece.text, len(piece.text) if keep else most, anyway=not is_whole)
        text = condense(text, SENTENCE_WORDS) if is_long else text
        for item in split_items(text) if is_whole and text else [text] * bool(text):
            gap = "\n\n" if text.startswith(item) else "\n"
            if is_full or count_words(pages[-1].above + item) > most:
                pages.append(Slide(part, start + place, item, []))
                is_full = False
            else:
                pages[-1].above += gap + item
            pages[-1].numbers.add(piece.number)
        if text == piece.text:
            pages[-1].whole.append(piece)
    return pages if is_whole else pages[:1]


def _find_keys(part: Part) -> list[Piece]:
    """The code cells of a part that may have a slide, the one that it needs most first."""
    found = {piece: piece.kind for piece in part.pieces if piece.kind}
    order = sorted(WANTED, key=lambda kind: kind != WANTED_FIRST.get(part.section))
    kinds = [kind for kind in order if kind in found.values()]
    if not kinds:
        return []
    best = [piece for piece, kind in found.items() if kind == kinds[0]]
    key = best[-1] if kinds[0] in ("figure", "table") else best[0]
    if part.section == "Exercises":  # a later figure may tell the answer
        return best[:1]
    further = ("figure", "table", "print") if part.section == "Verdict" else ("figure", "table")
    return [key, *(x for x, kind in found.items() if x is not key and kind in further)]


def _make_candidates(part: Part, start: int) -> list[Slide]:
    """The slides that a part could have, the most important one first."""
    is_hidden = part.section != "Exercises" and all(x.is_skipped for x in part.pieces if x.text)
    if part.is_task or part.section == "Set-up" or is_hidden:
        return []
    slides: list[Slide] = []
    for number, piece in enumerate(_find_keys(part)):
        made = _make_code_slides(part, piece, start)
        for slide in made:
            slide.level = MORE if number else FURTHER
        slides += made
    is_whole = part.section in WHOLE
    taken = [piece for slide in slides for piece in slide.whole]
    first = part.pieces[0]
    lead = shorten(first.text, BESIDE_WORDS)
    if slides and lead and first not in taken and _has_room(slides[0], lead):
        slides[0].above = f"{lead}\n\n{slides[0].above}".strip()
        slides[0].numbers.add(first.number)
        slides[0].whole += [first] * (lead == first.text)
        taken.append(first)
    if not slides or is_whole:
        slides += _make_pages(part, taken, start)
    return slides


def _rate(groups: list[list[Slide]], notebook: nbformat.NotebookNode) -> None:
    """Set the level of each slide; a group has those of one part."""
    parts = [group[0].part for group in groups]
    headline = max(
        (part for part in parts if part.section == "Experiment"),
        key=lambda part: rank_headline(notebook, [piece.cell for piece in part.pieces]),
        default=None,
    )
    figures = [s for group in groups for s in group if s.code and has_figure(s.code)]
    first_figure = min(figures, key=lambda slide: slide.start, default=None)
    seen = set()
    for group, part in zip(groups, parts, strict=True):
        is_first = part.section not in seen
        is_task = part.section == "Exercises" and (is_first or part.name.startswith(STARS))
        always = part in (headline, parts[0], parts[-1]) or is_task
        always |= part.section in WHOLE and (is_first or part.section == "Recipe")
        for slide in group:
            if slide is first_figure or (always and slide.level == FURTHER):
                slide.level = ALWAYS
            elif "Going deeper" in (part.section, part.name):
                slide.level = DEEPER
            elif slide.level == FURTHER and (is_first or part.section in WHOLE):
                slide.level = FIRST
            elif part.section in WHOLE:
                slide.level = FURTHER
        seen.add(part.section)


def _rank(slide: Slide) -> tuple[int, bool, bool, int, int]:
    section = slide.part.section
    importance = IMPORTANCE.index(section) if section in IMPORTANCE else 0
    has_no_figure = slide.code is None or not has_figure(slide.code)
    return slide.level, section not in WHOLE, has_no_figure, importance, slide.start


def _write_notes(slides: list[Slide], parts: list[Part]) -> None:
    """Put all text that no slide shows into the note of the slide before it."""
    shown = {piece for slide in slides for piece in slide.whole}
    following = iter([*slides[1:], None])
    slide, after = slides[0], next(following)
    for place, (part, piece) in enumerate((x, piece) for x in parts for piece in x.pieces):
        while after and after.start <= place:
            slide, after = after, next(following)
        slide.covered.append(piece.number)
        if is_speakers_note(piece.cell):  # folded in the notebook, which is projected too
            slide.notes.append(FOLD.sub("", piece.cell.source).strip())
        elif piece.text and piece not in shown:
            heading = f"**{part.heading}**"
            if part is not slide.part and heading not in slide.notes:
                slide.notes.append(heading)
            slide.notes.append(piece.text)
    for slide in slides:
        first, last = (f(slide.covered or slide.numbers) + 1 for f in (min, max))
        cells = f"Cell {first}" if first == last else f"Cells {first} to {last}"
        all_of_it = "" if slide.notes else " All that the lesson says here is on the slide."
        slide.notes.insert(0, f"{cells} of the notebook.{all_of_it}")


def choose_slides(notebook: nbformat.NotebookNode) -> list[Slide]:
    """The slides of a lesson in their order; none of a notebook without headings."""
    parts = [part for part in _split_parts(notebook) if part.heading]
    tasks = [part for part in parts if part.is_task]
    groups = []
    starts = {}
    start = 0
    for part in parts:
        starts[part] = start
        if part.heading == "Exercises" and tasks:
            numbers = {piece.number for x in [part, *tasks] for piece in x.pieces[:1]}
            groups.append([Slide(part, start, _list_tasks(tasks), [], numbers=numbers)])
        elif slides := _make_candidates(part, start):
            groups.append(slides)
        start += len(part.pieces)
    if not groups:
        return []
    _rate(groups, notebook)
    candidates = [slide for group in groups for slide in group]
    chosen = sorted(candidates, key=_rank)[:MOST_SLIDES]
    chosen.sort(key=lambda slide: (slide.start, candidates.index(slide)))
    before = None
    for slide in chosen:
        slide.heading = slide.part.heading
        if slide.part is before:
            slide.heading += " (continued)"
        else:
            slide.start = starts[slide.part]
        before = slide.part
    _write_notes(chosen, parts)
    return chosen
