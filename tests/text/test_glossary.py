"""The glossary: each word once and in order, and no link to one that leads nowhere."""

import re
from collections import Counter

from course_tools.publish.site import make_anchor
from tests.places import ROOT
from tests.text.offenders import for_each, for_each_lesson, read_lessons

GLOSSARY = ROOT / "notebooks" / "glossary.md"
LESSON = r"\[\d\d\]\(\d\d_\w+\.ipynb\)"


def read_glossary():
    """Term and definition, in the order of the page."""
    _, *entries = re.split(r"^### ", GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [tuple(part.strip() for part in entry.split("\n", 1)) for entry in entries]


def links_of(notebook):
    """Anchors of the glossary that a lesson links to, in their order."""
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    text = "\n".join(texts)
    anchors = re.findall(r"\[[^\]\n]+\]\(glossary\.md#([^)\s]+)\)", text)
    assert len(anchors) == text.count("glossary.md#"), "a link that is not one"
    return anchors


def test_each_term_is_defined_once_and_in_order():
    terms = [term for term, _ in read_glossary()]
    assert terms == sorted(terms, key=str.casefold)
    anchors = Counter(make_anchor(term).casefold() for term in terms)
    assert max(anchors.values()) == 1, anchors.most_common(3)


@for_each(read_glossary)
def test_headings_make_the_same_anchor_everywhere(term, definition):
    assert re.fullmatch(r"[A-Za-z0-9]+([ -][A-Za-z0-9]+)*", term)


@for_each(read_glossary)
def test_a_definition_is_a_paragraph_that_ends_with_its_lessons(term, definition):
    found = re.fullmatch(rf"(.+[.)]) Lessons?: ({LESSON}(?:, {LESSON})*)", definition)
    assert found
    assert "Lesson" not in found[1], "it is defined twice"
    for name in re.findall(r"\(([^)]+)\)", found[2]):
        if not (GLOSSARY.parent / name).is_file():
            yield f"no lesson {name}"


@for_each(read_glossary)
def test_links_inside_the_glossary_end_at_other_terms(term, definition):
    anchors = {make_anchor(other) for other, _ in read_glossary()} - {make_anchor(term)}
    found = re.findall(r"\]\(#([^)]*)\)", definition)
    return find_bad_links(found, anchors)


def find_bad_links(found, anchors):
    """What is wrong with links to terms: they lead nowhere, or to one for the second time."""
    yield from (f"no term {link}" for link in set(found) - anchors)
    yield from (f"{link} is linked twice" for link, times in Counter(found).items() if times > 1)


@for_each_lesson
def test_links_of_a_lesson_end_at_a_term_and_none_is_made_twice(name, notebook):
    found = links_of(notebook)
    yield from find_bad_links(found, {make_anchor(term) for term, _ in read_glossary()})
    if len(found) < 5:
        yield f"only {len(found)} links to the glossary"


def test_every_term_is_linked_from_a_lesson():
    linked = {anchor for notebook in read_lessons().values() for anchor in links_of(notebook)}
    assert not {make_anchor(term) for term, _ in read_glossary()} - linked
