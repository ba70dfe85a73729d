"""Translations: in step with the English text, shown by the site, left out where it has changed."""

import pytest
from babel.messages.pofile import read_po, write_po

from course_tools.publish.site import find_catalogue, write_site
from course_tools.publish.translate import update_catalogue
from course_utils.errors import CourseError
from tests.pages import find_dead_links, read_pages, strip_tags
from tests.tools.toy_lessons import write_course

SMALL = "A small thing. Lessons: [01](01_numbers.ipynb)"
TRANSLATED = {
    "Glossary": "Словарь",
    "Toy": "игрушка (toy)",
    SMALL: "Маленькая вещь. Уроки: [01](01_numbers.ipynb)",
    "symptom": "симптом",
}


@pytest.fixture(scope="module")
def lessons(tmp_path_factory):
    return write_course(tmp_path_factory.mktemp("course") / "notebooks")


def translate(path, texts):
    """Fill in translations, as a person does in an editor."""
    with path.open("rb") as file:
        catalogue = read_po(file)
    for english, other in texts.items():
        catalogue[english].string = other
    with path.open("wb") as file:
        write_po(file, catalogue)


def read_messages(path):
    with path.open("rb") as file:
        return {message.id: message for message in read_po(file) if message.id}


@pytest.fixture(scope="module")
def begun(lessons, tmp_path_factory):
    """A folder of translations with four messages in Russian."""
    locale = tmp_path_factory.mktemp("locale")
    found = update_catalogue("ru", lessons, locale=locale)
    assert found.translated == found.fuzzy == 0
    assert found.missing == len(read_messages(find_catalogue("ru", locale)))
    translate(find_catalogue("ru", locale), TRANSLATED)
    return locale


def test_the_site_has_what_is_translated_and_the_rest_in_english(lessons, begun, tmp_path):
    path = lessons[0].path.with_name("glossary.md")
    text = path.read_text(encoding="utf-8")
    try:
        path.write_text(text.replace("A small thing", "A very small thing"), encoding="utf-8")
        found = update_catalogue("ru", lessons, locale=begun)
        assert (found.translated, found.fuzzy) == (3, 1)
        site = write_site(lessons, tmp_path, tmp_path / "site", "ru", begun).parent
    finally:
        path.write_text(text, encoding="utf-8")
    glossary = strip_tags((site / "glossary.html").read_text(encoding="utf-8"))
    assert "игрушка (toy)" in glossary
    assert "A very small thing" in glossary
    assert "Маленькая вещь" not in glossary, "of a text that is no longer there"
    index = strip_tags((site / "index.html").read_text(encoding="utf-8"))
    assert {"симптом", "Словарь", "small"} <= set(index.split())
    assert find_dead_links(site, read_pages(site)) == [], "anchors stay the English ones"


def test_the_catalogue_has_titles_and_of_a_lesson_all_when_it_is_asked_for(lessons, begun):
    path = find_catalogue("ru", begun)
    idea = "A number is doubled, $2x$: see [the start](00_start_here.ipynb)."
    assert idea not in read_messages(path)
    update_catalogue("ru", lessons, lessons[1:2], begun)
    assert idea in read_messages(path)
    update_catalogue("ru", lessons, locale=begun)
    assert idea not in read_messages(path), "nothing of the lesson was translated"
    update_catalogue("ru", lessons, lessons[1:2], begun)
    translate(path, {idea: "Число удваивается, $2x$: см. [начало](00_start_here.ipynb)."})
    update_catalogue("ru", lessons, locale=begun)
    assert read_messages(path)[idea].string


def test_what_cannot_be_a_catalogue_is_one_line(lessons, begun, tmp_path):
    for code in ("klingon", "../../x", ""):
        with pytest.raises(CourseError, match="no language"):
            update_catalogue(code, lessons, locale=tmp_path)
    path = find_catalogue("vi", tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text('msgid "Toy"\nmsgst "?"\n', encoding="utf-8")
    with pytest.raises(CourseError, match=r"course\.po.*repair it"):
        update_catalogue("vi", lessons, locale=tmp_path)
    with pytest.raises(CourseError, match="no translation 'vi': choose from en, ru"):
        write_site(lessons, tmp_path, tmp_path / "site", "vi", begun)
