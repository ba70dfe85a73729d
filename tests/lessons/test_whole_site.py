"""The site of all lessons; what every site has to keep: tests/tools/publish/test_site.py."""

import pytest

from course_tools.publish.site import write_site
from course_tools.run.lessons import find_lessons
from tests.lessons.cards import has_cards
from tests.pages import (
    find_dead_links,
    find_figures_without_text,
    find_foreign,
    read_pages,
    strip_tags,
)

LESSONS = find_lessons()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    return write_site(LESSONS, folder / "no_run", folder / "site").parent


def find_solutions(lesson, site):
    """Exercises whose solution stands on the lesson's page; how many other functions do."""
    page = strip_tags((site / f"{lesson.name}.html").read_text(encoding="utf-8"))
    page, found, shown = "".join(page.split()), [], 0
    for cell in lesson.read().cells:
        if cell.cell_type == "code" and cell.source.startswith("def "):
            body = cell.source.partition("### BEGIN SOLUTION")[2] or cell.source
            is_there = "".join(body.partition("### END SOLUTION")[0].split()) in page
            if not cell.metadata.get("nbgrader", {}).get("solution"):
                shown += is_there
            elif is_there:
                found.append(cell.metadata.nbgrader.grade_id)
    return found, shown


def test_the_site_of_the_course(site):
    pages = read_pages(site)
    names = {f"{lesson.name}.html" for lesson in LESSONS}
    assert names <= set(pages)
    assert sum(len(page.links) for page in pages.values()) > 1000
    assert sum(len(page.figures) for page in pages.values()) > 100
    assert find_dead_links(site, pages) == []
    assert find_foreign(site, pages) == []
    assert find_figures_without_text(pages) == []
    cards = {lesson.name for lesson in LESSONS if has_cards(lesson)}
    assert cards <= pages["cards.html"].anchors
    solutions = {lesson.name: find_solutions(lesson, site) for lesson in LESSONS}
    assert {name: found for name, (found, _) in solutions.items() if found} == {}
    assert sum(shown for _, shown in solutions.values()) >= 40, "this search finds what is there"
