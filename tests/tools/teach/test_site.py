"""The site: the same bytes twice, no broken link, nothing from elsewhere, no solution."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import unquote

import nbformat
import pytest

from course_utils.errors import CourseError
from course_utils.tools.run.lessons import find_lessons
from course_utils.tools.run.runner import run_lessons
from course_utils.tools.teach.site import write_site

LESSONS = find_lessons()


class Page(HTMLParser):
    """Where a page's links lead, what it loads, and which anchors it has."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors.add(attrs.get("id"))
        if tag == "a" and "href" in attrs:
            self.links.append(attrs["href"])
        elif tag in ("script", "img", "iframe") or attrs.get("rel") in ("stylesheet", "icon"):
            self.loaded += [attrs[name] for name in ("src", "href") if name in attrs]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first")
    return write_site(LESSONS, folder / "no_run", folder / "site").parent


@pytest.fixture(scope="module")
def pages(site):
    return {p.name: Page(p.read_text(encoding="utf-8")) for p in sorted(site.glob("*.html"))}


def test_every_lesson_has_its_page(pages):
    assert {f"{lesson.name}.html" for lesson in LESSONS} <= set(pages)
    assert {"index.html", "search.html", "glossary.html", "claims.html"} <= set(pages)


def test_every_internal_link_works(site, pages):
    checked = 0
    for name, page in pages.items():
        for link in page.links:
            if link.startswith(("https://", "http://", "mailto:")):
                continue
            target, _, anchor = link.partition("#")
            target = target or name
            assert (site / target).exists(), f"{name}: {link}"
            if anchor and target in pages:
                assert unquote(anchor) in pages[target].anchors, f"{name}: {link}"
            checked += 1
    assert checked > 1000


def test_nothing_is_loaded_from_elsewhere(site, pages):
    for name, page in pages.items():
        for address in page.loaded:
            if not address.startswith("data:"):
                assert (site / address.partition("?")[0]).exists(), f"{name}: {address}"


def test_the_same_lessons_give_the_same_bytes(site, tmp_path):
    again = write_site(LESSONS, tmp_path / "no_run", tmp_path / "site").parent
    first, second = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (site, again)
    )
    assert sorted(first) == sorted(second)
    assert [str(name) for name in first if first[name] != second[name]] == []


def test_no_solution_is_on_the_site(site):
    cells = [cell for lesson in LESSONS for cell in lesson.read().cells]
    text = "".join(p.read_text(encoding="utf-8") for p in site.glob("[0-9]*.html"))
    text = re.sub(r"\s+", "", re.sub(r"<[^>]+>", "", text)).replace("&#39;", "'")
    text = text.replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">")
    shown = hidden = 0
    for cell in cells:
        if cell.cell_type == "code" and cell.source.startswith("def "):
            body = re.sub(r"\s+", "", cell.source.partition("### BEGIN SOLUTION")[2] or cell.source)
            found = body.partition("###ENDSOLUTION")[0] in text
            if cell.metadata.get("nbgrader", {}).get("solution"):
                assert not found, cell.metadata.nbgrader.grade_id
                hidden += 1
            else:
                shown += found
    assert hidden >= 40
    assert shown >= 40  # this search does find what is there


def test_claims_stand_on_their_page(site):
    text = (site / "claims.html").read_text(encoding="utf-8")
    assert "the loss of the soft targets is the interpolated loss" in text


def test_a_run_brings_its_report_and_the_seminars(school, tmp_path):
    school.write("01_one", "from course_utils.claims import claim\nclaim('one', True)")
    run_lessons(school.lessons, school.plan(), school.console)
    site = write_site(LESSONS, school.build / "smoke", tmp_path / "site").parent
    assert "01_one" in (site / "run.html").read_text(encoding="utf-8")
    seminars = (site / "seminars.html").read_text(encoding="utf-8")
    assert "No plan: course.json has no times of 05_mixup" in seminars


def test_another_folder_is_not_overwritten(tmp_path):
    (tmp_path / "thesis.txt").write_text("years")
    with pytest.raises(CourseError, match="is no site"):
        write_site(LESSONS[:1], tmp_path / "no_run", tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_a_broken_link_is_said(tmp_path):
    notebook = LESSONS[0].read()
    notebook.cells[0].source += "\n\n[two](02_two.ipynb)"
    nbformat.write(notebook, tmp_path / LESSONS[0].path.name)
    lessons = [replace(LESSONS[0], path=tmp_path / LESSONS[0].path.name), *LESSONS[1:]]
    with pytest.raises(CourseError, match=r"Sphinx: 00_start_here.ipynb.*02_two.ipynb"):
        write_site(lessons, tmp_path / "no_run", tmp_path / "site")
    assert not (tmp_path / "site").exists()
