"""The page of all recipe cards in a browser: on a screen, on a phone, on paper, and copied."""

import re

import pytest

from course_tools.publish.cards import write_cards
from course_tools.run.lessons import find_lessons
from tests.browser.conftest import CONTRAST, LEAST_CONTRAST
from tests.lessons.cards import (
    LINE_LENGTH,
    MOST_LINES,
    TOY_CODES,
    TOY_LIST,
    has_cards,
    write_toy_lesson,
)

PHONE = (390, 844)
PAPERS_MM = {"A4": (210, 297), "Letter": (216, 279)}
LEAST_PT = {"beside": 7, "flow": 7, "short": 6, "table": 5}  # of the code; text is larger
# Scripts from start to end, or a layer with its training.
LONG_PROGRAMS = {
    "09_ddp",
    "12_putting_it_together",
    "20_sharding",
    "22_mixture_of_experts",
    "23_loops_and_engines",
    "24_deployment",
}
FONTS = {
    name: f'* {{ font-family: "{text}" !important; }} code, code * {{ font-family: "{code}" '
    "!important; }"
    for name, text, code in (
        ("DejaVu", "DejaVu Sans", "DejaVu Sans Mono"),
        ("Arial", "Liberation Sans", "Liberation Mono"),  # of the same metrics
    )
}
LONG_CODE = [f"x{i:02} = '{'x' * (LINE_LENGTH - 8)}'" for i in range(MOST_LINES)]
LONG_LIST = TOY_LIST.replace(" → ", " and as much text as one line of a trap can hold on paper → ")
TOYS = {
    "50_short": {},
    "51_long": {"pytorch": LONG_CODE, "lightning": LONG_CODE, "text": LONG_LIST},
    "52_program": {"pytorch": LONG_CODE * 8, "lightning": LONG_CODE},
    "53_words": {"text": TOY_LIST.replace("none.", "a long sentence of costs, " * 120)},
}
WITH_CARDS = [lesson for lesson in find_lessons() if has_cards(lesson)]
PAGES = re.compile(rb"/Type /Page\b")
NO_CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', {value: undefined})"


@pytest.fixture(scope="module")
def cards(tmp_path_factory):
    """A short card, one as long as a card may be, a whole program, and one with a long list."""
    folder = tmp_path_factory.mktemp("cards")
    lessons = []
    for name, recipe in TOYS.items():
        codes = {kind: "\n".join(lines) for kind, lines in recipe.items() if kind != "text"}
        text = recipe.get("text", TOY_LIST)
        lessons.append(write_toy_lesson(folder / "notebooks", name, text=text, **codes))
    page, problem = write_cards(lessons, folder / "out")
    assert problem == ""
    return page


@pytest.fixture(scope="module")
def course_cards(tmp_path_factory):
    """The page of the course's own cards."""
    page, problem = write_cards(WITH_CARDS, tmp_path_factory.mktemp("course") / "out")
    assert problem == ""
    return page


def count_pages(pdf):
    return len(PAGES.findall(pdf))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE[0], 1280], ids=["phone", "desktop"])
def test_cards_fit_the_screen_and_can_be_read(cards, open_page, width, scheme):
    page, watch = open_page(cards.as_uri(), width=width, height=PHONE[1], color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    texts = page.locator("[id='50_short']").locator("h2, p, li, a, button, pre, pre span").all()
    assert len(texts) > 30
    for text in texts:
        if text.inner_text().strip():
            assert text.evaluate(CONTRAST) >= LEAST_CONTRAST, text.inner_text()
    watch.assert_quiet()


@pytest.mark.parametrize("clipboard", ["with a clipboard", "without"])
def test_a_button_copies_the_code(cards, open_page, clipboard):
    permissions = ["clipboard-read", "clipboard-write"]
    page, watch = open_page(cards.as_uri(), width=PHONE[0], permissions=permissions)
    page.evaluate("navigator.clipboard.writeText('before')")
    if clipboard == "without":
        page.evaluate("read = navigator.clipboard.readText.bind(navigator.clipboard)")
        page.evaluate(NO_CLIPBOARD)
    else:
        page.evaluate("read = () => navigator.clipboard.readText()")
    button = page.locator("[id='50_short'] button").first
    button.click()
    page.locator("[role=status]", has_text="Copied").wait_for(state="attached")
    assert page.evaluate("read()").rstrip("\n") == TOY_CODES["pytorch"]
    watch.assert_quiet()


def test_code_that_cannot_be_copied_is_selected(cards, open_page):
    page, _ = open_page(cards.as_uri())
    page.evaluate(NO_CLIPBOARD)
    page.evaluate("document.execCommand = () => false")
    page.locator("[id='50_short'] button").last.click()
    page.locator("[role=status]", has_text="Selected: press Ctrl+C").wait_for(state="attached")
    assert page.evaluate("getSelection().toString()").strip() == TOY_CODES["lightning"]


def test_without_scripts_there_is_no_button(cards, open_page):
    page, _ = open_page(cards.as_uri(), java_script_enabled=False)
    assert not page.locator("button").first.is_visible()
    assert page.locator("pre").first.is_visible()


def read_sheets(page):
    """Of each sheet on paper: its id, its layout, the size of its code in points, what is cut."""
    return page.evaluate(
        """[...document.querySelectorAll('.sheet')].map(x => [x.id, x.dataset.layout,
          parseFloat(x.style.getPropertyValue('--size')), x.scrollHeight - x.clientHeight > 0
          || x.scrollWidth - x.clientWidth > 0])"""
    )


@pytest.mark.parametrize("fonts", FONTS.values(), ids=FONTS)
@pytest.mark.parametrize("paper", PAPERS_MM)
def test_each_card_of_the_course_is_one_page(course_cards, open_page, paper, fonts):
    page, watch = open_page(course_cards.as_uri(), color_scheme="dark")
    page.add_style_tag(content=fonts)
    assert count_pages(page.pdf(format=paper, landscape=True)) == 1 + len(WITH_CARDS)
    sheets = read_sheets(page)
    assert [name for name, _, _, is_cut in sheets if is_cut] == []
    assert {layout: LEAST_PT[layout] <= size for _, layout, size, _ in sheets} == {
        layout: True for _, layout, _, _ in sheets
    }
    left_out = {name for name, layout, _, _ in sheets if layout == "short"}
    assert left_out <= LONG_PROGRAMS, "code that a sheet has room for is left out"
    page.emulate_media(media="print")
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert colour == "rgb(255, 255, 255)", "no dark background on paper"
    page.add_style_tag(content=".sheet { height: auto !important; font-size: 40pt !important; }")
    assert count_pages(page.pdf(format=paper, landscape=True)) > 2 * len(WITH_CARDS), "not seen"
    watch.assert_quiet()


@pytest.mark.parametrize("paper", PAPERS_MM)
def test_cards_of_any_length_are_one_page(cards, open_page, paper):
    page, watch = open_page(cards.as_uri())
    page.add_style_tag(content=FONTS["DejaVu"])
    assert count_pages(page.pdf(format=paper, landscape=True)) == 1 + len(TOYS)
    assert [name for name, _, _, is_cut in read_sheets(page) if is_cut] == []
    layouts = {name: layout for name, layout, _, _ in read_sheets(page)}
    assert layouts["52_program"] == "short"
    assert page.locator("[id='50_short'] button").first.is_visible(), "paper's look stays behind"
    watch.assert_quiet()


def test_the_pdf_of_the_command_has_the_same_pages(cards):
    pdf = cards.with_suffix(".pdf").read_bytes()
    assert count_pages(pdf) == 1 + len(TOYS)
    box = re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    sizes = [round(float(x) / 72 * 25.4) for x in box.groups()]
    assert sizes == list(reversed(PAPERS_MM["A4"])), "it lies on its long side"


def test_the_poster_has_a_row_for_each_card(course_cards, open_page):
    page, _ = open_page(course_cards.as_uri())
    rows = page.locator("#poster tbody tr").all()
    assert len(rows) == len(WITH_CARDS)
    for row, lesson in zip(rows, WITH_CARDS, strict=True):
        when, default, measured, cost = row.locator("td").all_inner_texts()
        assert min(map(len, (when, default, cost))) >= 5, lesson.name
        assert (measured == "–") == (not lesson.headline), lesson.name


def test_the_cards_of_the_course_fit_a_phone(course_cards, open_page):
    page, watch = open_page(course_cards.as_uri(), width=PHONE[0], height=PHONE[1])
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    assert page.locator("article").count() == len(WITH_CARDS)
    watch.assert_quiet()
