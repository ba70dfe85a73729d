"""Links between lessons and pages of the course end where they say."""

import re

from course_tools.publish.site import make_anchor
from tests.places import ROOT
from tests.text.offenders import for_each, for_each_lesson, read_lessons

LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)|<a href=\"([^\"]+)\"")
CODE = re.compile(r"```.*?```|`[^`\n]+`|\$\$.*?\$\$", re.DOTALL)
NOTEBOOKS = ROOT / "notebooks"
DOCS = tuple(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))
PAGES = ("README.md", "AGENTS.md", "CONTRIBUTING.md", "data/README.md", *DOCS)


def list_links(text):
    """The targets inside the course; not those of the web."""
    found = [one or other for one, other in LINK.findall(CODE.sub("", text))]
    return [link for link in found if not re.match(r"https?:|mailto:|attachment:", link)]


def list_anchors(text):
    """The anchors of a page's headings, as JupyterLab makes them."""
    headings = re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE)
    return {make_anchor(re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", x)) for x in headings}


def read_text(notebook):
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def find_dead(text, links):
    """Links of a lesson to a file that is not there, or to a heading that it does not have."""
    texts = {f"{name}.ipynb": read_text(found) for name, found in read_lessons().items()}
    texts |= {"glossary.md": (NOTEBOOKS / "glossary.md").read_text("utf-8"), "": text}
    for link in links:
        target, _, anchor = link.partition("#")
        if target and not (NOTEBOOKS / target).exists():
            yield f"no file {link}"
        elif anchor and target in texts and anchor not in list_anchors(texts[target]):
            yield f"no heading {link}"


@for_each_lesson
def test_links_of_a_lesson_end_at_a_file_and_a_heading(name, notebook):
    return find_dead(read_text(notebook), list_links(read_text(notebook)))


@for_each(lambda: [(name, ROOT / name) for name in PAGES])
def test_links_of_a_page_end_at_a_file(name, path):
    for link in list_links(path.read_text(encoding="utf-8")):
        target = link.partition("#")[0]
        if target and not (path.parent / target).exists():
            yield f"no file {link}"


def test_dead_links_are_found():
    text = (
        "## A heading\n\n[a](#A-heading) [b](#B) [c](no.ipynb) [d](00_start_here.ipynb#no) `[e](f)`"
    )
    dead = ["no heading #B", "no file no.ipynb", "no heading 00_start_here.ipynb#no"]
    assert list(find_dead(text, list_links(text))) == dead
