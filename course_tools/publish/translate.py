"""``course translate``: bring the translations into a language in step with the English text.

The catalogue of a language, ``docs/locale/CODE/LC_MESSAGES/course.po``, is one of gettext: pairs of
an English paragraph and its translation. So a translation belongs to a text and not to a place, and
where the English text has changed the site shows it in English until somebody has looked.
"""

import re
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import nbformat
from babel.core import Locale, UnknownLocaleError
from babel.messages.catalog import Catalog, Message
from babel.messages.pofile import PoFileError, read_po, write_po

from course_tools.publish.sections import read_title
from course_tools.publish.site import LOCALE, find_catalogue, run_sphinx, stage_sources
from course_tools.run.lessons import Lesson
from course_utils.errors import CourseError
from course_utils.files import write_atomically

__all__ = ["Progress", "read_catalogue", "update_catalogue"]

WHOLE_PAGES = ("index", "glossary")
WIDTH = 100
HEADER = "# Fill in each msgstr; docs/translating.md says how."
NO_WORDS = re.compile(r"(\]\([^)]*\)|[^a-zA-Z])*")  # numbers, and links named by numbers


@dataclass(frozen=True)
class Progress:
    """How many messages of a catalogue are translated, have to be read again, and are missing."""

    translated: int
    fuzzy: int
    missing: int


def read_catalogue(path: Path, language: str) -> Catalog:
    """The translations into ``language``; an empty catalogue where there is no file yet.

    Raises:
        CourseError: no such language; a damaged file.
    """
    try:
        Locale.parse(language)
    except (UnknownLocaleError, ValueError):
        raise CourseError(f"no language {language!r}: give its code, such as ru or pt_BR") from None
    if not path.exists():
        return Catalog(language, header_comment=HEADER, language_team=language, fuzzy=False)
    try:
        with path.open("rb") as file:
            return read_po(file, language, abort_invalid=True)
    except (PoFileError, UnicodeDecodeError) as error:
        raise CourseError(f"{path}: {error}: repair it in an editor of PO files") from None


def _extract(lessons: Sequence[Lesson]) -> Catalog:
    """All messages of the site, each with the pages on which it stands."""
    with tempfile.TemporaryDirectory() as work:
        source, target = Path(work) / "source", Path(work) / "target"
        source.mkdir()
        stage_sources(lessons, Path(work) / "no run", source)
        for lesson in lessons:  # outputs are not translated, and gettext's builder shows no figures
            path = source / lesson.path.name
            notebook = nbformat.read(path, as_version=4)
            for cell in notebook.cells:
                if cell.cell_type == "code":
                    cell.outputs = []
            nbformat.write(notebook, path)
        run_sphinx("gettext", source, target)
        with (target / "course.pot").open("rb") as file:
            return read_po(file)


def _list_pages(message: Message) -> set[str]:
    return {Path(file).stem for file, _ in message.locations}


def update_catalogue(
    language: str,
    lessons: Sequence[Lesson],
    whole: Collection[Lesson] = (),
    locale: Path = LOCALE,
) -> Progress:
    """Add to a catalogue what has to be translated, and take out what is no longer said.

    It has the first page, the glossary and the titles of all lessons; of the lessons in ``whole``,
    and of those with a translated paragraph, all messages. A translation whose English text has
    changed a little is kept and marked as fuzzy: the site leaves it out until the mark is removed.

    Raises:
        CourseError: no such language; a damaged catalogue; Sphinx finds a fault in a page.
    """
    path = find_catalogue(language, locale)
    found = read_catalogue(path, language)
    everything = _extract(lessons)
    titles = {read_title(lesson.read(), lesson.name) for lesson in lessons}
    begun = set()  # a message on several pages, such as a section's title, begins none
    for message in everything:
        known = found.get(message.id)
        if known and known.string and message.id not in titles and len(_list_pages(message)) == 1:
            begun |= _list_pages(message)
    pages = {*WHOLE_PAGES, *begun, *(lesson.name for lesson in whole)}
    template = Catalog()
    for message in everything:
        is_asked = message.id in titles or _list_pages(message) & pages
        if is_asked and not NO_WORDS.fullmatch(str(message.id)):
            template[message.id] = Message(message.id)
    found.update(template, update_creation_date=False)
    content = BytesIO()
    write_po(content, found, width=WIDTH, ignore_obsolete=True, include_previous=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())
    messages = [message for message in found if message.id]
    fuzzy = sum(message.fuzzy for message in messages)
    missing = sum(not message.string for message in messages)
    return Progress(len(messages) - fuzzy - missing, fuzzy, missing)
