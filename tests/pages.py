"""What pages and slides show: the tests of toy lessons and of the real ones read them alike."""

import html
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import nbformat

from course_tools.publish.slides import make_slides

__all__ = [
    "Page",
    "find_dead_links",
    "find_figures_without_text",
    "find_foreign",
    "read_pages",
    "read_slides",
    "strip_tags",
]

ELSEWHERE = ("https://", "http://", "mailto:")


class Page(HTMLParser):
    """Where a page's links lead, what it loads, which anchors it has, and its figures' texts."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.figures: list[str] = []
        self.anchors: set[str | None] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors.add(found.get("id"))
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag in ("script", "img", "iframe") or found.get("rel") in ("stylesheet", "icon"):
            self.loaded += [found[name] for name in ("src", "href") if name in found]
        if tag == "img" and found.get("src", "").startswith("_images"):
            self.figures.append(found.get("alt", ""))


def read_pages(site: Path) -> dict[str, Page]:
    return {p.name: Page(p.read_text(encoding="utf-8")) for p in sorted(site.glob("*.html"))}


def find_dead_links(site: Path, pages: dict[str, Page]) -> list[str]:
    """Links inside a site that lead to no file, or to no anchor of a page."""
    found = []
    for name, page in pages.items():
        for link in page.links:
            target, _, anchor = link.partition("#")
            target = target or name
            if link.startswith(ELSEWHERE):
                continue
            is_anchor = target not in pages or unquote(anchor) in pages[target].anchors
            if not (site / target).exists() or (anchor and not is_anchor):
                found.append(f"{name}: {link}")
    return found


def find_foreign(site: Path, pages: dict[str, Page]) -> list[str]:
    """What pages load that is no file of the site."""
    return [
        f"{name}: {address}"
        for name, page in pages.items()
        for address in page.loaded
        if not address.startswith("data:") and not (site / address.partition("?")[0]).exists()
    ]


def find_figures_without_text(pages: dict[str, Page]) -> list[str]:
    """Alternative texts that say nothing."""
    return [
        f"{name}: {text!r}"
        for name, page in pages.items()
        for text in page.figures
        if len(text) < 8 or "_images/" in text
    ]


def strip_tags(page: str) -> str:
    """The text of a page; white space as it stands there."""
    return html.unescape(re.sub(r"<[^>]+>", "", page))


def read_slides(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """For each slide its heading, what else it shows (text, sources and outputs), and its note."""
    slides: list[list[str]] = []
    for cell in make_slides(notebook).cells:
        kind = cell.metadata.slideshow.slide_type
        if kind == "slide":
            heading, _, text = cell.source.partition("\n")
            slides.append([heading, text, ""])
        elif kind == "notes":
            slides[-1][2] += cell.source
        elif cell.cell_type == "markdown":
            slides[-1][1] += f"\n{cell.source}"
        else:
            hidden = "hide-input" in cell.metadata.get("tags", [])
            outputs = " ".join(
                str(dict(x.get("data", {}))) + x.get("text", "") for x in cell.outputs
            )
            slides[-1][1] += f"\n{'' if hidden else cell.source}\n{outputs}"
    return slides
