"""The site: the same bytes twice, no broken link, nothing from elsewhere, no solution."""

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import unquote

import nbformat
import pytest

from course_tools.publish import site as site_module
from course_tools.publish.release import make_students_version
from course_tools.publish.site import write_site
from course_tools.run.lessons import find_lessons
from course_tools.run.runner import run_lessons
from course_utils.claims import CLAIM_MIME
from course_utils.errors import CourseError
from tests.lessons.cards import has_cards, write_toy_lesson
from tests.tools.conftest import write_lesson

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


def read_page(site, name):
    return Page((site / f"{name}.html").read_text(encoding="utf-8"))


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


def write_small_site(lessons, run, folder):
    """A site of lessons that are not the course's, with a glossary that links none of them."""
    (folder / "glossary.md").write_text("# Glossary\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site_module, "NOTEBOOKS", folder)
        return write_site(lessons, run, folder / "site").parent


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
    lessons = find_lessons(folder / "notebooks")
    return write_small_site(lessons, folder / "no_run", folder)


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


def test_every_lesson_leads_to_the_students_notebook(site, pages):
    for lesson in LESSONS:
        assert f"notebooks/{lesson.path.name}" in pages[f"{lesson.name}.html"].links
        notebook = nbformat.read(site / "notebooks" / lesson.path.name, as_version=4)
        assert notebook == make_students_version(lesson.read())


def test_what_is_for_the_teacher_is_not_on_the_site(site, pages):
    for lesson in LESSONS:
        assert "For the teacher" not in (site / f"{lesson.name}.html").read_text(encoding="utf-8")
    assert "For the teacher" in LESSONS[1].path.read_text(encoding="utf-8")


def test_a_run_brings_its_report_and_the_seminars(school, tmp_path):
    school.write("01_one", "from course_utils.claims import claim\nclaim('one', True)")
    run_lessons(school.lessons, school.plan(), school.console)
    site = write_site(LESSONS, school.build / "smoke", tmp_path / "site").parent
    assert "01_one" in (site / "run.html").read_text(encoding="utf-8")
    seminars = (site / "seminars.html").read_text(encoding="utf-8")
    assert "No plan: course.json has no times of 05_mixup" in seminars
    assert seminars.count("no plan</p></td>") == 2 * len(LESSONS), "the table at the top"


def test_the_seminars_begin_with_what_fits(school, tmp_path):
    title = "# 00 · One\n\n" + "word " * 110
    path = school.write("00_start_here", "1")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell(title))
    idea = nbformat.v4.new_markdown_cell("## Idea\n\n" + "word " * 110 * 45)
    notebook.cells.insert(1, idea)
    nbformat.write(notebook, path)
    run_lessons(school.lessons, school.plan(), school.console, execute=school.execute)
    course = school.build / "smoke" / "course.json"
    content = json.loads(course.read_text(encoding="utf-8"))
    content["lessons"][0]["cells_s"] = [0.0] * len(notebook.cells)
    course.write_text(json.dumps(content), encoding="utf-8")
    site = write_small_site(school.lessons, course.parent, tmp_path)
    seminars = (site / "seminars.html").read_text(encoding="utf-8")
    assert re.search(r"<p>without Idea</p></td>\s*<td><p>all of it</p>", seminars)


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


@pytest.fixture(scope="module")
def site_with_cards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cards")
    notebooks = folder / "notebooks"
    (notebooks).mkdir()
    plain = write_lesson(notebooks, "00_start_here")
    for path in (plain, write_lesson(notebooks, "05_mixup")):
        notebook = nbformat.read(path, as_version=4)
        text = f"# {path.stem}\n\n## Idea\n\nOne."
        notebook.cells.insert(0, nbformat.v4.new_markdown_cell(text))
        nbformat.write(notebook, path)
    write_toy_lesson(notebooks)
    return write_small_site(find_lessons(notebooks), folder / "no_run", folder)


def test_the_site_has_the_cards_and_leads_to_them(site_with_cards):
    pages = {name: read_page(site_with_cards, name) for name in ("index", "50_scale", "cards")}
    assert "cards.html" in pages["index"].links
    assert "cards.html#50_scale" in pages["50_scale"].links
    text = (site_with_cards / "50_scale.html").read_text(encoding="utf-8")
    assert text.index("<h2>Recipe") < text.index("cards.html#50_scale") < text.index("In plain PyT")
    links = {link for link in pages["cards"].links if not link.startswith(("https:", "#"))}
    assert links == {
        "index.html",
        "50_scale.html#Recipe",
        "50_scale.html#Question",
        "05_mixup.html#Idea",
    }
    for link in links:
        name, _, anchor = link.partition(".html#")
        assert link == "index.html" or anchor in read_page(site_with_cards, name).anchors, link


def test_a_site_without_cards_does_not_speak_of_them(hostile):
    assert not (hostile / "cards.html").exists()
    assert "cards.html" not in (hostile / "index.html").read_text(encoding="utf-8")


def test_the_site_of_the_course_has_all_its_cards(site, pages):
    names = [lesson.name for lesson in LESSONS if has_cards(lesson)]
    assert (site / "cards.html").exists() == bool(names)
    for name in names:
        assert name in pages["cards.html"].anchors


def test_every_figure_has_an_alternative_text_and_lessons_their_titles(site):
    figures = []
    for lesson in LESSONS:
        page = (site / f"{lesson.name}.html").read_text(encoding="utf-8")
        figures += re.findall(r'<img alt="([^"]*)"[^>]*src="_images', page)
    assert len(figures) > 100
    assert [text for text in figures if len(text) < 8 or "_images/" in text] == []
    index = (site / "index.html").read_text(encoding="utf-8")
    assert ">00 start here<" not in index
