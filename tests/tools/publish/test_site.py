"""The site: the same bytes twice, no broken link, nothing from elsewhere, no solution."""

import html
import json
import re
from dataclasses import replace

import nbformat
import pytest

from course_tools.publish.release import make_students_version
from course_tools.publish.site import write_site
from course_tools.run.lessons import find_lessons
from course_tools.run.runner import run_lessons
from course_utils.claims import CLAIM_MIME
from course_utils.errors import CourseError
from tests.pages import (
    Page,
    find_dead_links,
    find_figures_without_text,
    find_foreign,
    read_pages,
    strip_tags,
)
from tests.tools.conftest import School, write_lesson
from tests.tools.toy_lessons import CLAIM, GLOSSARY, GOOD, write_course


@pytest.fixture(scope="module")
def school(tmp_path_factory):
    """The toy lessons, of which one was executed: it has an idea of 40 minutes."""
    school = School(tmp_path_factory.mktemp("course"))
    lessons = write_course(school.notebooks)
    school.execute.results["01_numbers"] = {"claims": [CLAIM]}
    run_lessons(lessons[1:2], school.plan(), school.console, execute=school.execute)
    course = school.build / "smoke" / "course.json"
    content = json.loads(course.read_text(encoding="utf-8"))
    names = [cell.id for cell in lessons[1].read().cells]
    content["lessons"][0]["cells_s"] = [2400.0 * (name == "idea") for name in names]
    course.write_text(json.dumps(content), encoding="utf-8")
    return school


@pytest.fixture(scope="module")
def lessons(school):
    return school.lessons


@pytest.fixture(scope="module")
def site(school, tmp_path_factory):
    target = tmp_path_factory.mktemp("site") / "site"
    return write_site(school.lessons, school.build / "smoke", target).parent


@pytest.fixture(scope="module")
def pages(site):
    return read_pages(site)


def test_every_lesson_has_its_page(pages, lessons):
    assert {f"{lesson.name}.html" for lesson in lessons} <= set(pages)
    assert {"index.html", "search.html", "glossary.html", "claims.html"} <= set(pages)


def test_every_internal_link_works(site, pages):
    assert find_dead_links(site, pages) == []
    assert sum(len(page.links) for page in pages.values()) > 30
    links = pages["01_numbers.html"].links
    assert {"glossary.html#toy", "00_start_here.html"} <= set(links)
    assert "01_numbers.html#idea" in pages["index.html"].links, "the table of problems"


def test_nothing_is_loaded_from_elsewhere(site, pages):
    assert find_foreign(site, pages) == []
    assert all(page.loaded for page in pages.values())


def test_what_a_page_lacks_is_found(tmp_path):
    tags = '<a href="no.html"></a><a href="#no"></a><a href="#b"></a><script src="//x.org/a.js">'
    pages = {"a.html": Page(f'<p id="b">{tags}</script><img alt="" src="_images/a.png">')}
    (tmp_path / "a.html").write_text("")
    assert find_dead_links(tmp_path, pages) == ["a.html: no.html", "a.html: #no"]
    assert find_foreign(tmp_path, pages) == ["a.html: //x.org/a.js", "a.html: _images/a.png"]
    assert find_figures_without_text(pages) == ["a.html: ''"]


@pytest.mark.nightly  # a build of 7 s; only new versions of Sphinx change it
def test_the_same_lessons_give_the_same_bytes(site, school, tmp_path):
    again = write_site(school.lessons, school.build / "smoke", tmp_path / "site").parent
    first, second = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (site, again)
    )
    assert sorted(first) == sorted(second)
    assert [str(name) for name in first if first[name] != second[name]] == []


def test_no_solution_is_on_the_site_and_other_code_is(site):
    text = strip_tags((site / "01_numbers.html").read_text(encoding="utf-8"))
    for source in GOOD.values():
        head, body = source.split("\n")
        assert head in text
        assert body.strip() not in text
    assert "return 4 * x" in text
    assert "NotImplementedError" in text


def test_programs_that_read_the_site_are_told_what_it_has(site, pages, lessons):
    text = (site / "llms.txt").read_text(encoding="utf-8")
    links = re.findall(r"^- \[.+\]\((\S+)\)", text, re.MULTILINE)
    assert len(links) == len(lessons) + 2
    assert all((site / link).is_file() for link in links)
    assert all(lesson.question in text for lesson in lessons)


def test_claims_stand_on_their_page(site):
    assert CLAIM["text"] in (site / "claims.html").read_text(encoding="utf-8")


HOSTILE = {
    "tag": "<script>alert(1)</script>",
    "paragraph": "</td></table><p><script>alert(1)</script>",
    "comment": "<!-- <script>alert(1)</script>",
    "entity": "&lt;script&gt;alert(1)&lt;/script&gt; &#60;script&#62;",
    "escaped": "\\<script>alert(1)</script>\\",
    "link": "[click](javascript:alert(1)) <javascript:alert(1)>",
    "picture": "![x](http://evil.example/x.png)",
    "role": "{raw}`html <script>alert(1)</script>` {doc}`/etc/passwd`",
    "code": "`<script>alert(1)</script>`",
    "table": "a | b \\| c",
    "formula": "$\\href{javascript:alert(1)}{x}$ $$y$$",
    "lines": "one\ntwo\n\n# three\n\n```{raw} html\n<script>alert(1)</script>\n```",
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A site of lessons whose questions, seams and claims are attacks; each has its own lesson."""
    folder = tmp_path_factory.mktemp("hostile")
    path = write_lesson(folder / "notebooks", "00_start_here")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell("# 00 · Start here"))
    nbformat.write(notebook, path)
    for number, (name, text) in enumerate(HOSTILE.items(), 1):
        about = {"question": text, "seam": text}
        path = write_lesson(folder / "notebooks", f"{number:02}_{name}", "1", **about)
        notebook = nbformat.read(path, as_version=4)
        notebook.cells.insert(0, nbformat.v4.new_markdown_cell(f"# {number:02} · {name}"))
        for kind, value in (("identity", text), (text, 1.0)):
            record = {"text": text, "kind": kind, "holds": True, "value": value}
            output = nbformat.v4.new_output("display_data", {CLAIM_MIME: record})
            notebook.cells[-1].outputs.append(output)
        nbformat.write(notebook, path)
    (folder / "notebooks" / "glossary.md").write_text("# Glossary\n", encoding="utf-8")
    lessons = find_lessons(folder / "notebooks")
    return write_site(lessons, folder / "no_run", folder / "site").parent


@pytest.mark.parametrize("page", ["index", "claims"])
def test_texts_of_lessons_are_shown_and_do_nothing(hostile, page):
    text = (hostile / f"{page}.html").read_text(encoding="utf-8")
    article = text[text.index("<article") : text.index("</article>")]
    found = Page(article)
    assert not re.search(r"<script|<!--|<p><p>|problematic|class=\"math", article)
    assert not [link for link in found.links if "javascript:" in link.lower()]
    assert not [address for address in found.loaded if "evil" in address]
    cells = re.findall(r"<td>(.*?)</td>", article, re.DOTALL)
    shown = [html.unescape(re.sub(r"<[^>]+>", "", cell)).strip() for cell in cells]
    plain = str.maketrans({**dict.fromkeys("\"'“”‘’"), "–": "--", "—": "---", "…": "..."})
    texts = [cell.translate(plain) for cell in shown]  # Sphinx sets quotation marks and dashes
    for attack in HOSTILE.values():
        assert " ".join(attack.split()).translate(plain) in texts


def test_every_lesson_leads_to_the_students_notebook(site, pages, lessons):
    for lesson in lessons:
        assert f"notebooks/{lesson.path.name}" in pages[f"{lesson.name}.html"].links
        notebook = nbformat.read(site / "notebooks" / lesson.path.name, as_version=4)
        assert notebook == make_students_version(lesson.read())


def test_what_is_for_the_teacher_is_not_on_the_site(site, lessons):
    assert "For the teacher" not in (site / "01_numbers.html").read_text(encoding="utf-8")
    assert "For the teacher" in lessons[1].path.read_text(encoding="utf-8")


def test_a_run_brings_its_report_and_the_seminars(site, pages, hostile):
    assert "01_numbers" in (site / "run.html").read_text(encoding="utf-8")
    assert {"report.html", "seminars.html"} <= set(pages["index.html"].links)
    seminars = (site / "seminars.html").read_text(encoding="utf-8")
    assert re.search(r"<p>without Idea</p></td>\s*<td><p>all of it</p>", seminars)
    assert "No plan: course.json has no times of 02_scale" in seminars
    assert seminars.count("no plan</p></td>") == 2 * 2, "the table at the top"
    assert not (hostile / "seminars.html").exists(), "without a run"


def test_another_folder_is_not_overwritten(lessons, tmp_path):
    (tmp_path / "thesis.txt").write_text("years")
    with pytest.raises(CourseError, match="is no site"):
        write_site(lessons[:1], tmp_path / "no_run", tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_a_broken_link_is_said(lessons, tmp_path):
    notebook = lessons[0].read()
    notebook.cells[0].source += "\n\n[two](02_two.ipynb)"
    path = tmp_path / lessons[0].path.name
    nbformat.write(notebook, path)
    (tmp_path / "glossary.md").write_text(GLOSSARY, encoding="utf-8")
    with pytest.raises(CourseError, match=r"Sphinx: 00_start_here.ipynb.*02_two.ipynb"):
        write_site([replace(lessons[0], path=path), *lessons[1:]], tmp_path, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_the_site_has_the_cards_and_leads_to_them(site, pages):
    assert "cards.html" in pages["index.html"].links
    assert "cards.html#02_scale" in pages["02_scale.html"].links
    assert "02_scale" in pages["cards.html"].anchors
    text = (site / "02_scale.html").read_text(encoding="utf-8")
    assert text.index("<h2>Recipe") < text.index("cards.html#02_scale") < text.index("In plain PyT")
    links = {x for x in pages["cards.html"].links if not x.startswith(("https:", "#"))}
    assert links == {
        "index.html",
        "02_scale.html#Recipe",
        "02_scale.html#Question",
        "01_numbers.html#Idea",
    }


def test_a_site_without_cards_does_not_speak_of_them(hostile):
    assert not (hostile / "cards.html").exists()
    assert "cards.html" not in (hostile / "index.html").read_text(encoding="utf-8")


def test_every_figure_has_an_alternative_text_and_lessons_their_titles(site, pages):
    assert len(pages["01_numbers.html"].figures) == 1
    assert find_figures_without_text(pages) == []
    index = (site / "index.html").read_text(encoding="utf-8")
    assert ">00 · Start here<" in index
    assert ">00 start here<" not in index
