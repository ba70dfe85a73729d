"""``course cards``: the recipe cards of all lessons on one page, to read, to copy and to print.

A card is the section *Recipe* of a lesson: a list, and below each heading the code of a cell with
the tag ``card``. The page needs no other file and no network.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat
from markupsafe import Markup
from nbconvert.filters import markdown2html
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from course_tools.pages import render_page
from course_tools.publish.browser import print_page
from course_tools.publish.made_folder import MadeFolder
from course_tools.publish.readme import describe_first_headlines
from course_tools.publish.sections import find_section, is_card, is_speakers_note, read_title
from course_tools.run.lessons import Lesson
from course_utils.errors import CourseError

__all__ = ["Card", "CardCode", "find_cards", "find_recipe", "read_card", "render_cards"]
__all__ += ["write_cards"]

TEMPLATE = Path(__file__).parent / "cards_template" / "cards.html"
CARDS = MadeFolder("folder of cards", ".course-cards.json", ())
RECIPE = "Recipe"
HEADING = re.compile(r"^### (.+)$", re.MULTILINE)
LOCAL_ADDRESS = re.compile(r'(?<=href=")(?![a-z]+:)[^"]+')
SOURCE = re.compile(r" *\(\[[^\]]*\]\([^)]*\)[^()]*\)")  # ([PyTorch](https://…))
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
REMARK = re.compile(r" *\([^()]{15,}\)")
SENTENCE_END = re.compile(r"(?<=[^A-Z][.?!]) +(?=[A-Z])|(?<=;) ")
SHORT = 20  # characters: a sentence as short as that is followed by the next one
NOT_MEASURED = "–"
# of accessible-pygments, which furo brings
STYLES = {"light": "a11y-high-contrast-light", "dark": "a11y-high-contrast-dark"}
PAPER = "<style>@page { size: A4 landscape; }</style></head>"  # who prints chooses


@dataclass(frozen=True)
class CardCode:
    """One code of a card: the heading above it, the Markdown below the heading, and the code."""

    title: str
    text: str
    source: str

    @property
    def lines(self) -> int:
        return len(self.source.splitlines())


@dataclass(frozen=True)
class Card:
    """The recipe card of a lesson.

    ``text`` is its list in Markdown, ``measured`` what the lesson's first headline found.
    """

    lesson: Lesson
    title: str
    text: str
    codes: tuple[CardCode, ...]
    measured: str = NOT_MEASURED

    @property
    def longest(self) -> CardCode:
        return max(self.codes, key=lambda code: code.lines)

    def shorten(self, lead_in: str) -> str:
        """How an item of the list begins, without what stands in brackets."""
        found = re.search(rf"^[-*] \*\*{lead_in}\*\*:? *(.+)$", self.text, re.MULTILINE)
        if not found:
            return "–"
        text = REMARK.sub("", LINK.sub(r"\1", SOURCE.sub("", found[1])))
        first, *others = SENTENCE_END.split(text)
        return " ".join([first, *others[: len(first) < SHORT]]).rstrip(";")


def find_recipe(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The cells of a lesson's Recipe, without speaker's notes."""
    section = ""
    cells = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            section = find_section(cell.source, section)
        if section == RECIPE and not is_speakers_note(cell):
            cells.append(cell)
    return cells


def read_card(lesson: Lesson, measured: str = NOT_MEASURED) -> Card | None:
    """The card of a lesson; None if it has none.

    Args:
        lesson: any.
        measured: what the results say of its first headline.

    Raises:
        CourseError: not every code of the card has a heading of its own.
    """
    notebook = lesson.read()
    cells = find_recipe(notebook)
    sources = [cell.source for cell in cells if is_card(cell)]
    if not sources:
        return None
    texts = [cell.source for cell in cells if cell.cell_type == "markdown"]
    _, _, recipe = "\n\n".join(texts).partition(f"## {RECIPE}")
    text, *parts = HEADING.split(recipe)
    titles, below = parts[::2], parts[1::2]
    if len(titles) != len(sources):
        raise CourseError(
            f"{lesson.name}: its Recipe has {len(sources)} cells with the tag card and "
            f"{len(titles)} headings with ###: give each card a heading"
        )
    codes = tuple(map(CardCode, titles, below, sources))
    return Card(lesson, read_title(notebook, lesson.name), text, codes, measured)


def find_cards(lessons: Sequence[Lesson]) -> list[Card]:
    """The cards of those lessons that have one."""
    found = describe_first_headlines(lessons)
    cards = (read_card(lesson, found.get(lesson.name, NOT_MEASURED)) for lesson in lessons)
    return [card for card in cards if card]


def _highlight(source: str) -> Markup:
    """Python with colours; the text of the HTML is the source itself."""
    return Markup(highlight(source, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)))


def render_cards(cards: Sequence[Card], link: Callable[[str], str], home: str = "") -> str:
    """The page with all cards.

    Args:
        cards: at least one.
        link: turns an address as it stands in a lesson (``05_mixup.ipynb#Recipe``) into one that
            works where the page lies.
        home: the address of a site's first page, if the page is part of one.
    """

    def render_text(text: str, card: Card) -> Markup:
        def lead(found: re.Match[str]) -> str:
            address = found[0]
            return link(f"{card.lesson.path.name}{address}" if address[0] == "#" else address)

        return Markup(LOCAL_ADDRESS.sub(lead, markdown2html(text)))

    styles = {
        name: Markup(HtmlFormatter(style=style).get_style_defs("pre"))
        for name, style in STYLES.items()
    }
    return render_page(
        TEMPLATE,
        cards=cards,
        home=home,
        highlight=_highlight,
        link=link,
        render_text=render_text,
        styles=styles,
    )


def write_cards(lessons: Sequence[Lesson], target: Path) -> tuple[Path, str]:
    """Write ``<target>/cards.html``, and ``cards.pdf`` where a Chromium is found.

    Links lead to the lessons' notebooks, relative to the page.

    Returns:
        The page, and why there is no PDF (an empty text if there is one).

    Raises:
        CourseError: no lesson has a card; ``target`` is something else, or holds other files.
    """
    cards = find_cards(lessons)
    if not cards:
        raise CourseError("no lesson has a recipe card: give its cells the tag card")
    notebooks = Path(os.path.relpath(cards[0].lesson.path.parent, target)).as_posix()
    page = render_cards(cards, lambda address: f"{notebooks}/{address}")
    with CARDS.replacing(target) as new:
        on_paper = new / "on_paper.html"
        on_paper.write_text(page.replace("</head>", PAPER, 1), encoding="utf-8")
        problem = print_page(on_paper, new / "cards.pdf")
        on_paper.unlink()
        (new / "cards.html").write_text(page, encoding="utf-8")
    return target / "cards.html", problem
