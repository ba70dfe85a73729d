"""The glossary: each word once and in order, and no link to one that leads nowhere."""

import re
from collections import Counter

import nbformat

from course_tools.publish.site import make_anchor
from tests.places import ROOT, find_notebooks

GLOSSARY = ROOT / "notebooks" / "glossary.md"
LESSON = r"\[\d\d\]\(\d\d_\w+\.ipynb\)"


def read_glossary():
    """Term and definition, in the order of the page."""
    _, *entries = re.split(r"^### ", GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [tuple(part.strip() for part in entry.split("\n", 1)) for entry in entries]


def links_of(notebook_path):
    """Anchors of the glossary that a lesson links to, in their order."""
    cells = nbformat.read(notebook_path, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    anchors = re.findall(r"\[[^\]\n]+\]\(glossary\.md#([^)\s]+)\)", text)
    assert len(anchors) == text.count("glossary.md#"), "a link that is not one"
    return anchors


def test_each_term_is_defined_once_and_in_order():
    terms = [term for term, _ in read_glossary()]
    assert terms == sorted(terms, key=str.casefold)
    anchors = Counter(make_anchor(term).casefold() for term in terms)
    assert max(anchors.values()) == 1, anchors.most_common(3)


def test_headings_make_the_same_anchor_everywhere():
    for term, _ in read_glossary():
        assert re.fullmatch(r"[A-Za-z0-9]+([ -][A-Za-z0-9]+)*", term), term


def test_a_definition_is_a_paragraph_that_ends_with_its_lessons():
    for term, definition in read_glossary():
        found = re.fullmatch(rf"(.+[.)]) Lessons?: ({LESSON}(?:, {LESSON})*)", definition)
        assert found, term
        assert "Lesson" not in found[1], f"{term} is defined twice"
        for name in re.findall(r"\(([^)]+)\)", found[2]):
            assert (GLOSSARY.parent / name).is_file(), f"{term}: {name}"


def test_links_inside_the_glossary_end_at_other_terms():
    anchors = {make_anchor(term) for term, _ in read_glossary()}
    for term, definition in read_glossary():
        found = re.findall(r"\]\(#([^)]*)\)", definition)
        assert set(found) <= anchors - {make_anchor(term)}, term
        assert len(set(found)) == len(found), f"{term} links a term twice"


def test_links_of_a_lesson_end_at_a_term_and_none_is_made_twice(notebook_path):
    found = links_of(notebook_path)
    assert set(found) <= {make_anchor(term) for term, _ in read_glossary()}
    assert len(found) >= 5
    assert len(set(found)) == len(found), Counter(found).most_common(3)


def test_every_term_is_linked_from_a_lesson():
    linked = {anchor for path in find_notebooks() for anchor in links_of(path)}
    assert not {make_anchor(term) for term, _ in read_glossary()} - linked
