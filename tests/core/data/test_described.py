"""Descriptions of what the course brings: JSON files that somebody may have damaged."""

import pytest

from course_utils.data.described import read_description
from course_utils.errors import CourseError


@pytest.mark.parametrize("text", ['{"seed": 0, "source": ""}', '{"seed": 0, "source": "", "b": 1}'])
def test_a_description_with_all_entries_is_read(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    assert read_description(tmp_path / "a.json", {"seed", "source"}, "restore it")["seed"] == 0


@pytest.mark.parametrize("text", [None, "", "[1]", '{"seed": 0}', "\x00"])
def test_a_description_that_lacks_an_entry_is_damaged(tmp_path, text):
    if text is not None:
        (tmp_path / "a.json").write_text(text)
    with pytest.raises(CourseError, match=r"a\.json is missing or damaged: restore it"):
        read_description(tmp_path / "a.json", {"seed", "source"}, "restore it")
