"""``course.json``: it comes back as it was written, and damage is one line."""

import json

import pytest

from course_tools.run.record import (
    COURSE_FILE,
    CourseResult,
    load_earlier,
    read_course,
    write_course,
)
from course_utils.errors import CourseError
from tests.tools.run.test_report import make_course


def test_the_record_comes_back_as_it_was_written(tmp_path):
    content = make_course()
    content["earlier"] = [content["lessons"].pop()]
    course = CourseResult.from_json(content)
    write_course(course, tmp_path / COURSE_FILE)
    assert read_course(tmp_path / COURSE_FILE) == course
    assert load_earlier(tmp_path / COURSE_FILE) == course
    assert [result.name for result in course.lessons] == ["01_a", "02_b"]
    assert course.find("02_b").reason == "cell 3: x"
    assert course.find("03_c") is None  # it is not of this run


def test_without_a_run_the_command_is_named(tmp_path):
    with pytest.raises(CourseError, match=r"no .*course\.json: run the lessons first"):
        read_course(tmp_path / COURSE_FILE)
    assert load_earlier(tmp_path / COURSE_FILE) is None


@pytest.mark.parametrize("name", sorted(make_course()))
def test_a_record_without_a_field_is_damaged(name):
    content = {key: value for key, value in make_course().items() if key != name}
    with pytest.raises(CourseError, match=f"{name}: Field required"):
        CourseResult.from_json(content)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ({"lessons": {}}, "lessons: Input should be a valid array"),
        ({"hardware": None}, "hardware: Input should be an object"),
        ({"lessons": [{"name": "01_a"}]}, "01_a: time_s: Field required"),
        ({"earlier": [3]}, "a lesson: Input should be an object"),
    ],
)
def test_damage_is_one_line_that_says_what_and_what_to_do(tmp_path, damage, sentence):
    (tmp_path / COURSE_FILE).write_text(json.dumps(make_course() | damage))
    with pytest.raises(CourseError, match=rf"is damaged \({sentence}\): run course run") as caught:
        read_course(tmp_path / COURSE_FILE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "{", "[]", "3", b"\xff\x00"])
def test_a_file_that_is_no_record_is_damaged(tmp_path, content):
    path = tmp_path / COURSE_FILE
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CourseError, match=r"is damaged .*: run course run --force") as caught:
        read_course(path)
    assert "\n" not in str(caught.value)
    assert load_earlier(path) is None
