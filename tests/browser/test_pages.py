"""Slides and site in a browser: from the file system, no request leaves, everything is readable."""

import re
from functools import cache

import nbformat
import pytest

from course_tools.publish.minutes import find_core
from course_tools.publish.site import write_site
from course_tools.publish.slides import number_slides, write_slides
from course_tools.run.lessons import find_lessons
from course_tools.run.report import write_report
from course_tools.run.runner import run_lessons
from tests.browser.conftest import CLAIM, CONTRAST, LEAST_CONTRAST, list_barriers
from tests.lessons.cards import has_cards
from tests.tools.conftest import School

LESSONS = find_lessons()
LEAST_SCALE = 0.75  # of a slide's text: 22 px drawn as 16
LEAST_CODE_PX = 18  # of 720
# A recipe card is one program and stays on one slide.
LONG_LINES, LEAST_LONG_SCALE, LEAST_LONG_PX = 25, 0.5, 11
LEAST_FIGURE = 0.45  # of a slide's width; two may stand side by side
LEAST_SINGLE_FIGURE = 0.9  # alone on its slide, where there is room
WIDTH, HEIGHT = 1280, 720
CODE = ".jp-InputArea pre, .highlight pre, pre code"
MEASURE = """code => { const slide = Reveal.getCurrentSlide(), scale = Number(slide.dataset.scale);
  const drawn = image => { const box = image.getBoundingClientRect();
    return Math.min(box.width, box.height * image.naturalWidth / image.naturalHeight); };
  const texts = [...slide.querySelectorAll(code)];
  const images = [...slide.querySelectorAll('img')];
  return {scale, code: texts.map(x => parseFloat(getComputedStyle(x).fontSize) * scale),
    figures: images.map(drawn), alone: images.length === 1 && !texts.length,
    room: images.map(x => x.naturalWidth / x.naturalHeight)}; }"""
CUT_OFF = """() => [...document.querySelectorAll('.cell_output pre')]
  .filter(x => x.scrollWidth > x.clientWidth + 1).map(x => x.innerText.slice(0, 60))"""
OVER_THE_EDGE = """() => [...document.querySelectorAll('article mjx-container')].filter(x => {
  const right = part => part.getBoundingClientRect().right > innerWidth + 1;
  const scrolls = getComputedStyle(x).overflowX !== 'visible' && !right(x);
  return right(x.querySelector('mjx-math')) && !scrolls; }).length"""
BOTTOM = "Reveal.getCurrentSlide().querySelector('.fit').getBoundingClientRect().bottom"
PHONE, DESKTOP = (390, 844), (1300, 900)
WITH_CARDS = [lesson for lesson in LESSONS if has_cards(lesson)]
PAGES = ("index", "glossary", "claims", *(lesson.name for lesson in LESSONS))
PAGES += ("cards",) if WITH_CARDS else ()
SCREENS = {"phone": (PHONE, "light"), "dark": (DESKTOP, "dark")}  # half of the four pairs will do
# A search for barriers takes seconds; all others are searched nightly.
SEARCHED_ALWAYS = ("index-phone", "index-dark", "cards-phone", "05_mixup-dark", "20_sharding-phone")


@pytest.fixture(scope="module")
def slides(tmp_path_factory):
    """``slides(name)``: the address of a lesson's slides, which are written once."""
    folder, lessons = tmp_path_factory.mktemp("slides"), {x.name: x for x in LESSONS}
    return cache(lambda name: write_slides(lessons[name], folder).as_uri())


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    return write_site(LESSONS, folder / "no_run", folder / "site").parent


@pytest.mark.parametrize("name", [lesson.name for lesson in LESSONS])
def test_every_slide_can_be_read(slides, name, open_page):
    page, watch = open_page(slides(name), height=HEIGHT)
    page.locator("body[data-ready]").wait_for()
    for number in range(page.evaluate("Reveal.getTotalSlides()")):
        slide = page.locator("section.present .fit").last
        seen = page.evaluate(MEASURE, CODE)
        about = f"slide {number + 1}: {slide.inner_text()[:80]}"
        is_long = slide.inner_text().count("\n") > LONG_LINES
        scale = LEAST_LONG_SCALE if is_long else LEAST_SCALE
        assert seen["scale"] >= scale, f"too full, {about}"
        least = LEAST_LONG_PX if is_long else LEAST_CODE_PX
        assert min(seen["code"], default=least) >= least, f"small code, {about}"
        has_room = seen["alone"] and page.evaluate(BOTTOM) < 0.85 * HEIGHT
        width = WIDTH * (LEAST_SINGLE_FIGURE if has_room else LEAST_FIGURE)
        for figure, ratio in zip(seen["figures"], seen["room"], strict=True):
            least = min(width, ratio * HEIGHT / 2) * 0.95
            assert figure >= least, f"a small figure, {about}"
        shown = slide.locator("img").count() or len(slide.inner_text()) > 30
        assert shown, f"slide {number + 1} is empty"
        assert page.evaluate(BOTTOM) <= HEIGHT, f"slide {number + 1} is cut off"
        page.evaluate("Reveal.next()")
    assert not page.locator("mjx-merror").count()
    watch.assert_quiet()


@pytest.mark.parametrize("name", [lesson.name for lesson in LESSONS])
def test_the_plans_numbers_are_those_of_the_slides(slides, name, open_page):
    page, _ = open_page(slides(name), height=HEIGHT)
    page.locator("body[data-ready]").wait_for()
    lesson = next(lesson for lesson in LESSONS if lesson.name == name)
    numbers = number_slides(lesson.read())
    assert page.evaluate("Reveal.getTotalSlides()") == max(max(found) for found in numbers.values())
    texts = page.evaluate("Reveal.getSlides().map(slide => slide.innerText)")
    notes = page.evaluate(
        "Reveal.getSlides().map(s => [...s.querySelectorAll('aside.notes')].length)"
    )
    assert sum(notes) >= 2
    core = {cell.id for cell in find_core(lesson.read())}
    for place, cell in enumerate(lesson.read().cells):
        heading = re.match(r"### (☆|★+) ", cell.source)
        if heading and cell.cell_type == "markdown" and cell.id in core:
            assert heading[1] in texts[numbers[place][0] - 1]


def test_slides_can_be_read_on_a_phone(slides, open_page):
    page, _ = open_page(slides("05_mixup"), width=PHONE[0], height=PHONE[1])
    page.locator("body[data-ready]").wait_for()
    assert page.evaluate("Reveal.getTotalSlides()") == len(set(number_slides_of("05_mixup")))
    scale = page.evaluate("Reveal.getScale()")
    for _ in range(page.evaluate("Reveal.getTotalSlides()")):
        seen = page.evaluate(MEASURE, CODE)
        assert 22 * seen["scale"] * scale >= 9
        page.evaluate("Reveal.next()")


def test_slides_print_a_page_each(slides, open_page):
    page, watch = open_page(f"{slides('05_mixup')}?print-pdf", height=HEIGHT)
    page.locator("body[data-ready]").wait_for()
    page.locator(".pdf-page").first.wait_for()
    assert page.locator(".pdf-page").count() == page.evaluate("Reveal.getTotalSlides()")
    scales = page.evaluate(
        "[...document.querySelectorAll('[data-scale]')].map(s => s.dataset.scale)"
    )
    assert len(scales) == page.locator(".pdf-page").count(), "not every slide was fitted"
    watch.assert_quiet()


def test_slides_show_formulas(slides, open_page):
    page, _ = open_page(slides("05_mixup"))
    page.locator("body[data-ready]").wait_for()
    assert page.locator("mjx-container").count() >= 10


def number_slides_of(name):
    lesson = next(lesson for lesson in LESSONS if lesson.name == name)
    return [number for found in number_slides(lesson.read()).values() for number in found]


def test_search_finds_warm_up(site, open_page):
    page, watch = open_page((site / "index.html").as_uri())
    page.locator("input[name=q]").first.fill("warm-up")
    page.keyboard.press("Enter")
    page.locator("#search-results li a", has_text="Warm-up and cosine").first.click()
    page.locator("h1", has_text="Warm-up and cosine").wait_for()
    watch.assert_quiet()


# Colours do not depend on the size, and sizes not on the colours.
@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_the_screen(site, open_page, name, screen):
    size, scheme = SCREENS[screen]
    uri = (site / f"{name}.html").as_uri()
    page, watch = open_page(uri, width=size[0], height=size[1], color_scheme=scheme)
    page.wait_for_function("!window.MathJax || window.MathJax.startup.promise")
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / 3
    assert (brightness > 128) == (scheme == "light")
    assert page.evaluate(CUT_OFF) == [], "a sentence is cut off"
    assert page.evaluate(OVER_THE_EDGE) == 0, "a formula runs over the edge"
    claims = page.locator(f".cell_output {CLAIM}").all()
    assert claims or name not in [lesson.name for lesson in LESSONS]
    for claim in claims[:4]:
        for part in (claim, claim.locator("span")):
            assert part.evaluate(CONTRAST) >= LEAST_CONTRAST, claim.inner_text()
    watch.assert_quiet()


def mark_search(name, screen):
    about = f"{name}-{screen}"
    is_seldom = about not in SEARCHED_ALWAYS
    return pytest.param(name, screen, id=about, marks=pytest.mark.nightly if is_seldom else ())


@pytest.mark.parametrize(
    ("name", "screen"), [mark_search(name, screen) for name in PAGES for screen in SCREENS]
)
def test_a_page_has_no_barrier(site, open_page, name, screen):
    size, scheme = SCREENS[screen]
    uri = (site / f"{name}.html").as_uri()
    page, _ = open_page(uri, width=size[0], height=size[1], color_scheme=scheme)
    if name != "cards":  # which stands for itself, without the site's script
        page.locator("body[data-ready]").wait_for()
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true })")
    page.evaluate("dispatchEvent(new Event('resize'))")  # at once; `toggle` comes some time later
    assert list_barriers(page) == []


@pytest.mark.parametrize("name", [lesson.name for lesson in LESSONS] + ["glossary"])
def test_formulas_are_rendered(site, open_page, name):
    page, _ = open_page((site / f"{name}.html").as_uri())
    page.wait_for_function("!window.MathJax || window.MathJax.startup.promise.then(() => true)")
    assert not page.locator("mjx-merror").count()
    formulas = page.locator("article .math")
    drawn = formulas.locator("mjx-container").count()
    assert drawn == formulas.count(), "a formula is not drawn"
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true })")
    prose = page.evaluate(
        """() => { const copy = document.querySelector('article').cloneNode(true);
        copy.querySelectorAll('pre, code, .cell_output').forEach((part) => part.remove());
        return copy.innerText; }"""
    )
    assert not re.findall(r"\$[^$\s][^$]*\$", prose)


def test_a_report_fits_a_phone(open_page, tmp_path):
    """It is part of the site, as `run.html`, where a run is given."""
    school = School(tmp_path)
    school.write("01_a_lesson_with_a_long_name", "1")
    run_lessons(school.lessons, school.plan(), school.console, execute=school.execute)
    page, _ = open_page(
        write_report(school.build / "smoke").as_uri(), width=PHONE[0], height=PHONE[1]
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    assert list_barriers(page) == []


def test_a_page_leads_to_its_notebook(site, open_page):
    """(Chromium opens a link between two files of the disk, and does not download.)"""
    page, _ = open_page((site / "05_mixup.html").as_uri())
    links = page.locator("a[download]")
    assert links.count() == 1
    assert links.is_visible()
    notebook = nbformat.read(site / links.get_attribute("href"), as_version=4)
    assert "raise NotImplementedError()" in "".join(cell.source for cell in notebook.cells)


def test_hidden_code_can_be_shown(site, open_page):
    page, _ = open_page((site / "05_mixup.html").as_uri())
    page.locator("details.hide summary").first.click()
    assert page.locator("details.hide[open] pre").first.is_visible()
