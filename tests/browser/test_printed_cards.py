"""The page of all recipe cards in a browser: on a screen, on a phone, on paper, and copied."""

import re

import pytest

from course_utils.tools.run.lessons import find_lessons
from course_utils.tools.teach.cards import write_cards
from tests.browser.conftest import CONTRAST, LEAST_CONTRAST
from tests.cards import LINE_LENGTH, MOST_LINES, TOY_CODES, TOY_LIST, has_cards, write_toy_lesson

PHONE = (390, 844)
PX_PER_MM = 96 / 25.4
PAPERS_MM = {"A4": (210, 297), "Letter": (216, 279)}
MARGINS_MM = (12, 9)  # of `@page`
LONG_CODE = [f"x{i:02} = '{'x' * (LINE_LENGTH - 8)}'" for i in range(MOST_LINES)]
LONG_LIST = TOY_LIST.replace(" → ", " and as much text as one line of a trap can hold on paper → ")
WITH_CARDS = [lesson for lesson in find_lessons() if has_cards(lesson)]
PAGES = re.compile(rb"/Type /Page\b")
NO_CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', {value: undefined})"


@pytest.fixture(scope="module")
def cards(tmp_path_factory):
    """A short card, three that take over half a page, and one as long as a card may be."""
    folder = tmp_path_factory.mktemp("cards")
    notebooks = folder / "notebooks"
    lessons = [write_toy_lesson(notebooks, "50_short")]
    for name, lines in {"51_a": 15, "52_b": 15, "53_c": 15, "54_long": MOST_LINES}.items():
        code = "\n".join(LONG_CODE[:lines])
        recipe = {"pytorch": code, "lightning": code, "text": LONG_LIST}
        lessons.append(write_toy_lesson(notebooks, name, **recipe))
    page, problem = write_cards(lessons, folder / "out")
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


@pytest.mark.parametrize("paper", PAPERS_MM)
def test_a_card_is_not_broken_on_paper(cards, open_page, paper):
    """Each card has a page of its own, though two of them would fill little more than one."""
    width, height = (
        (size - 2 * margin) * PX_PER_MM
        for size, margin in zip(PAPERS_MM[paper], MARGINS_MM, strict=True)
    )
    page, watch = open_page(cards.as_uri(), width=int(width), height=800, color_scheme="dark")
    page.emulate_media(media="print")
    heights = page.evaluate(
        "[...document.querySelectorAll('article')].map(x => x.getBoundingClientRect().height)"
    )
    assert max(heights) == heights[-1] <= height, "a card of the greatest length needs two pages"
    assert min(heights[1:]) > height / 2
    assert count_pages(page.pdf(format=paper, print_background=True)) == 5
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert colour == "rgb(255, 255, 255)", "no dark background on paper"
    assert not page.locator("button").first.is_visible()
    page.add_style_tag(content="article, .code { break-inside: auto !important; }")
    assert count_pages(page.pdf(format=paper)) == 4, "a broken card is not seen by the count"
    watch.assert_quiet()


def test_the_pdf_of_the_command_has_the_same_pages(cards):
    pdf = cards.with_suffix(".pdf").read_bytes()
    assert count_pages(pdf) == 5
    box = re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    assert [round(float(x) / 72 * 25.4) for x in box.groups()] == list(PAPERS_MM["A4"])


def test_the_cards_of_the_course_fit_a_phone_and_paper(open_page, tmp_path):
    if not WITH_CARDS:
        pytest.skip("no lesson has a recipe card yet")
    path, _ = write_cards(WITH_CARDS, tmp_path / "cards")
    page, watch = open_page(path.as_uri(), width=PHONE[0], height=PHONE[1])
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    assert page.locator("article").count() == len(WITH_CARDS)
    watch.assert_quiet()
