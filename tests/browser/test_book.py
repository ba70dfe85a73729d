"""The course as one PDF."""

import re

import pytest

from course_tools.publish import browser
from course_tools.publish.book import write_book
from course_utils.errors import CourseError
from tests.tools.toy_lessons import write_course

PAGES = re.compile(rb"/Type /Page\b")


@pytest.fixture(scope="module")
def lessons(tmp_path_factory):
    return write_course(tmp_path_factory.mktemp("course") / "notebooks")


def test_each_lesson_of_the_book_begins_on_a_new_page(lessons, tmp_path):
    target = tmp_path / "new" / "course.pdf"
    write_book(lessons, target)
    titles = len(lessons) + len(["first page", "glossary", "claims"])
    assert len(PAGES.findall(target.read_bytes())) >= titles


def test_without_chromium_it_is_said_and_the_old_book_stays(lessons, tmp_path, monkeypatch):
    target = tmp_path / "course.pdf"
    target.write_bytes(b"old")
    monkeypatch.setattr(browser, "NAMES", ("no-such-browser",))
    with pytest.raises(CourseError, match=r"no Chromium .*apt-get install chromium"):
        write_book(lessons, target)
    assert target.read_bytes() == b"old"
