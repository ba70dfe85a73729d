"""The translations: of texts that are still there, with the links, code and numbers of those."""

import re
from functools import cache

from course_tools.publish.cards import find_cards
from course_tools.publish.site import LOCALE, find_catalogue, write_index
from course_tools.publish.translate import read_catalogue
from tests.places import ROOT
from tests.text.offenders import for_each, list_lessons, read_lessons

KEPT = {
    "link": re.compile(r"\]\(([^)]*)\)"),
    "code": re.compile(r"`[^`]+`"),
    "formula": re.compile(r"\$[^$]+\$"),
    "number": re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?!\w)"),
}


def read_translations():
    """Name and pair of each English text and its translation, without those marked as fuzzy."""
    for language in sorted(folder.name for folder in LOCALE.iterdir()):
        for message in read_catalogue(find_catalogue(language), language):
            if message.id and message.string and not message.fuzzy:
                yield language, (message.id, message.string)


@cache
def read_english():
    """All English text of the site's pages, on one line."""
    texts = [write_index(list_lessons(), find_cards(list_lessons()), ["glossary", "claims"])]
    texts.append((ROOT / "notebooks" / "glossary.md").read_text(encoding="utf-8"))
    for notebook in read_lessons().values():
        texts += [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    return " ".join(" ".join(texts).split())


@for_each(read_translations)
def test_a_translation_is_of_a_text_that_is_there(language, pair):
    english, _ = pair
    if english not in read_english():
        yield f"{english[:60]!r} has changed: `course translate {language}` marks it"


@for_each(read_translations)
def test_a_translation_keeps_links_code_formulas_and_numbers(language, pair):
    for name, pattern in KEPT.items():
        english, other = (sorted(pattern.findall(text)) for text in pair)
        if english != other:
            yield f"{name} {english} is {other} in {pair[1][:60]!r}"
