"""Slides and site in a browser: from the file system, no request leaves, everything is readable."""

import re

import pytest

from course_utils.tools.run.lessons import find_lessons
from course_utils.tools.teach.site import write_site
from course_utils.tools.teach.slides import write_slides

LESSONS = find_lessons()
LEAST_SCALE = 0.7  # of a slide's text: 22 px drawn as 15
HEIGHT = 720
BOTTOM = "Reveal.getCurrentSlide().querySelector('.fit').getBoundingClientRect().bottom"
PHONE, DESKTOP = (390, 844), (1300, 900)
PAGES = ("index", "glossary", "claims", *(lesson.name for lesson in LESSONS))


@pytest.fixture(scope="module")
def slides(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slides")
    return {lesson.name: write_slides(lesson, folder) for lesson in LESSONS}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    return write_site(LESSONS, folder / "no_run", folder / "site").parent


@pytest.mark.parametrize("name", [lesson.name for lesson in LESSONS])
def test_every_slide_can_be_read(slides, name, open_page):
    page, watch = open_page(slides[name].as_uri(), height=HEIGHT)
    page.locator("body[data-ready]").wait_for()
    for number in range(page.evaluate("Reveal.getTotalSlides()")):
        slide = page.locator("section.present .fit").last
        scale = float(page.evaluate("Reveal.getCurrentSlide().dataset.scale"))
        assert scale >= LEAST_SCALE, f"slide {number + 1} is too full: {slide.inner_text()[:80]}"
        shown = slide.locator("img").count() or len(slide.inner_text()) > 30
        assert shown, f"slide {number + 1} is empty"
        assert page.evaluate(BOTTOM) <= HEIGHT, f"slide {number + 1} is cut off"
        page.evaluate("Reveal.next()")
    assert not page.locator("mjx-merror").count()
    watch.assert_quiet()


def test_slides_print_a_page_each(slides, open_page):
    page, watch = open_page(f"{slides['05_mixup'].as_uri()}?print-pdf", height=HEIGHT)
    page.locator("body[data-ready]").wait_for()
    page.locator(".pdf-page").first.wait_for()
    assert page.locator(".pdf-page").count() == page.evaluate("Reveal.getTotalSlides()")
    scales = page.evaluate(
        "[...document.querySelectorAll('[data-scale]')].map(s => s.dataset.scale)"
    )
    assert {"1.00"} < set(scales), "nothing was fitted"
    watch.assert_quiet()


def test_slides_show_formulas(slides, open_page):
    page, _ = open_page(slides["05_mixup"].as_uri())
    page.locator("body[data-ready]").wait_for()
    assert page.locator("mjx-container").count() >= 10


def test_search_finds_warm_up(site, open_page):
    page, watch = open_page((site / "index.html").as_uri())
    page.locator("input[name=q]").first.fill("warm-up")
    page.keyboard.press("Enter")
    page.locator("#search-results li a", has_text="Warm-up and cosine").first.click()
    page.locator("h1", has_text="Warm-up and cosine").wait_for()
    watch.assert_quiet()


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_the_screen(site, open_page, size, scheme):
    for name in PAGES:
        uri = (site / f"{name}.html").as_uri()
        page, watch = open_page(uri, width=size[0], height=size[1], color_scheme=scheme)
        page.wait_for_function("!window.MathJax || window.MathJax.startup.promise")
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0], name
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness = sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / 3
        assert (brightness > 128) == (scheme == "light"), name
        watch.assert_quiet()


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


def test_hidden_code_can_be_shown(site, open_page):
    page, _ = open_page((site / "05_mixup.html").as_uri())
    page.locator("details.hide summary").first.click()
    assert page.locator("details.hide[open] pre").first.is_visible()
