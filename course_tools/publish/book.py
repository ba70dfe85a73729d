"""``course book``: all lessons and the glossary as one PDF, printed by Chromium."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from course_tools.publish.browser import print_page
from course_tools.publish.site import LOCALE, build_pages
from course_tools.run.lessons import Lesson
from course_utils.errors import CourseError
from course_utils.files import write_atomically

__all__ = ["write_book"]

FORMULAS_S = 120  # of the page's own clock, for MathJax to set all formulas


def write_book(
    lessons: Sequence[Lesson], target: Path, language: str = "en", locale: Path = LOCALE
) -> None:
    """Write the ``lessons`` as the PDF ``target``; each begins on a new page.

    Raises:
        CourseError: there is no Chromium, or it fails; what `build_pages` refuses.
    """
    with tempfile.TemporaryDirectory() as work:
        pages, pdf = Path(work) / "pages", Path(work) / "book.pdf"
        build_pages("singlehtml", lessons, Path(work) / "no run", pages, language, locale)
        problem = print_page(pages / "index.html", pdf, FORMULAS_S)
        if problem:
            raise CourseError(problem)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, pdf.read_bytes())
