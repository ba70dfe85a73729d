"""The page of all recipe cards: complete, self-contained, and only where it may be written."""

import html
import re
import subprocess
from pathlib import Path

import pytest

from course_tools.cli import main as cli
from course_tools.cli import teaching as commands
from course_tools.publish import browser
from course_tools.publish.cards import read_card, write_cards
from course_tools.run.lessons import find_lessons
from course_utils.errors import CourseError
from tests.lessons.cards import TOY_CODES, write_toy_lesson
from tests.tools.conftest import assert_one_line, write_lesson

PRINTED = b"%PDF-1.4"


@pytest.fixture(autouse=True)
def chromium(monkeypatch):
    """Stands for Chromium: what it was called with."""
    calls = []

    def run(command, **options):
        calls.append(command)
        [pdf] = [word.partition("=")[2] for word in command if word.startswith("--print-to-pdf")]
        Path(pdf).write_bytes(PRINTED)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(browser, "find_chromium", lambda: "/usr/bin/chromium")
    monkeypatch.setattr(browser.subprocess, "run", run)
    return calls


@pytest.fixture
def lessons(tmp_path):
    """Two lessons with cards, and one without."""
    folder = tmp_path / "notebooks"
    for name in ("50_scale", "51_dim"):
        write_toy_lesson(folder, name)
    write_lesson(folder, "52_bare", "x = 1")
    return find_lessons(folder)


@pytest.fixture
def page(lessons, tmp_path):
    path, problem = write_cards(lessons, tmp_path / "build" / "cards")
    assert problem == ""
    return path.read_text(encoding="utf-8")


def test_every_code_can_be_copied_as_it_is(page):
    shown = re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", page, re.DOTALL)
    texts = [html.unescape(re.sub(r"<[^>]+>", "", code)) for code in shown]
    assert texts == [f"{code}\n" for code in TOY_CODES.values()] * 2
    assert 'class="kn"' in shown[0], "no colours"
    assert page.count('<button type="button" hidden aria-label="Copy: 50 · The scale, In ') == 2


def test_the_whole_card_is_shown(page):
    assert page.count("<strong>Trap</strong>") == 4
    assert page.count("The function <code>scale</code> is all.") == 4
    assert page.count("Too &lt;bright&gt;?") == 2
    assert "52" not in re.findall(r"<h2>(\d\d)", page)


def test_the_contents_lead_to_each_card_and_each_card_to_its_lesson(page, tmp_path):
    contents = page[page.index("<nav") : page.index("</nav>")]
    poster = page[page.index("<tbody") : page.index("</tbody>")]
    assert re.findall(r'href="(.+?)"', poster) == ["#50_scale", "#51_dim"]
    assert re.findall(r'href="(.+?)"', contents) == ["#50_scale", "#51_dim"]
    assert re.findall(r'<article id="(.+?)" ', page) == ["50_scale", "51_dim"]
    articles = page[page.index("<article") :]
    links = set(re.findall(r'href="(?!https:)(.+?)"', articles))
    here = "../../notebooks"
    own = {
        f"{here}/{name}.ipynb#{x}"
        for name in ("50_scale", "51_dim")
        for x in ("Recipe", "Question")
    }
    assert links == own | {f"{here}/05_mixup.ipynb#Idea"}
    linked = [tmp_path / "build" / "cards" / link.partition("#")[0] for link in links]
    assert sorted(path.exists() for path in linked) == [False, True, True, True, True]


def test_the_page_loads_nothing(page):
    assert not re.search(r"\bsrc=|@import|url\(", page)
    assert re.findall(r"<link[^>]*>", page) == ['<link rel="icon" href="data:,">']
    assert not re.search(r'\bid="(.+?)".*\bid="\1"', page, re.DOTALL)


def test_the_same_lessons_give_the_same_page(lessons, page, tmp_path):
    again, _ = write_cards(lessons, tmp_path / "build" / "again")
    assert again.read_text(encoding="utf-8") == page


def test_the_pdf_is_printed_from_the_same_page(lessons, chromium, tmp_path):
    page, _ = write_cards(lessons, tmp_path / "cards")
    assert page.with_name("cards.pdf").read_bytes() == PRINTED
    [command] = chromium
    assert command[0] == "/usr/bin/chromium"
    assert command[-1].startswith("file://")
    assert sorted(path.name for path in page.parent.iterdir()) == [
        ".course-cards.json",
        "cards.html",
        "cards.pdf",
    ]


def test_it_is_written_again_and_over_nothing_else(lessons, tmp_path):
    folder = tmp_path / "cards"
    write_cards(lessons, folder)
    page, _ = write_cards(lessons[:1], folder)
    assert "51_dim" not in page.read_text(encoding="utf-8")
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(CourseError, match=r"holds work \(notes.txt\): move it away"):
        write_cards(lessons, folder)
    assert (folder / "notes.txt").read_text() == "mine"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("years")
    with pytest.raises(CourseError, match="is no folder of cards: choose an empty folder"):
        write_cards(lessons, tmp_path / "other")


def break_chromium(monkeypatch, how):
    if how == "missing":
        monkeypatch.setattr(browser, "find_chromium", lambda: None)
        return

    def run(command, **options):
        if how == "hangs":
            raise subprocess.TimeoutExpired(command, 300)
        return subprocess.CompletedProcess(command, 1, "", "one\nno \x1b[31mmemory\n")

    monkeypatch.setattr(browser.subprocess, "run", run)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("missing", "no PDF: no Chromium on this machine: install it (apt-get install chromium)"),
        ("hangs", "no PDF: /usr/bin/chromium did not print it (Command "),
        ("fails", "no PDF: /usr/bin/chromium did not print it (no �[31mmemory)"),
    ],
)
def test_without_chromium_one_sentence_says_so(
    lessons, tmp_path, monkeypatch, capsys, how, sentence
):
    break_chromium(monkeypatch, how)
    monkeypatch.setattr(commands, "find_lessons", lambda: lessons)
    commands.cards(tmp_path / "cards")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"cards: {tmp_path / 'cards' / 'cards.html'}"
    assert lines[1].startswith(sentence)
    assert len(lines) == 2
    assert (tmp_path / "cards" / "cards.html").exists()
    assert not (tmp_path / "cards" / "cards.pdf").exists()


def test_no_card_is_one_line(course, monkeypatch, tmp_path):
    """``course`` is a school whose lessons have none."""
    monkeypatch.setattr(commands, "find_lessons", lambda: cli.find_lessons())
    assert_one_line(
        course("cards", "--output", str(tmp_path / "out")), "no lesson has a recipe card"
    )
    assert not (tmp_path / "out").exists()


def test_a_card_without_its_heading_is_one_line(course, school, monkeypatch, tmp_path):
    def leave_out(notebook):
        notebook.cells = [cell for cell in notebook.cells if cell.id != "lightning-heading"]

    write_toy_lesson(school.notebooks, change=leave_out)
    monkeypatch.setattr(commands, "find_lessons", lambda: cli.find_lessons())
    sentence = r"50_scale: its Recipe has 2 cells with the tag card and 1 headings with ###"
    assert_one_line(course("cards", "--output", str(tmp_path / "out")), sentence)


def test_a_title_may_be_missing(tmp_path):
    def leave_out(notebook):
        notebook.cells[0].source = "no heading"

    card = read_card(write_toy_lesson(tmp_path, change=leave_out))
    assert card.title == "50_scale"
    assert [code.title for code in card.codes] == ["In plain PyTorch", "In Lightning"]


@pytest.mark.parametrize(
    ("item", "short"),
    [
        ("**Cost**: 2 (n − 1) / n bytes. More later.", "2 (n − 1) / n bytes."),
        (
            "**Cost** one copy of all weights ([timm](https://x.org): `a`); more",
            "one copy of all weights",
        ),
        ("**Cost** AdamW. It takes its default. And more.", "AdamW. It takes its default."),
        ("**Cost** see [that](05_mixup.ipynb), by K. Simonyan and others", None),
        ("**Price** none", "–"),
    ],
)
def test_the_poster_shows_how_an_item_begins(tmp_path, item, short):
    card = read_card(write_toy_lesson(tmp_path, text=f"## Recipe\n\n* {item}\n"))
    assert card.shorten("Cost") == (short or "see that, by K. Simonyan and others")
    assert card.measured == "–", "no results are kept of it"
