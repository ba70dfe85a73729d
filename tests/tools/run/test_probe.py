import pytest

from course_tools.run.probe import check_writable
from course_utils.errors import CourseError


def test_a_folder_is_made_and_left_empty(tmp_path):
    check_writable(tmp_path / "a" / "b", "")
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize("place", ["file", "file/below", "link"])
def test_where_nothing_can_be_written_is_one_line(tmp_path, place):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("link")
    with pytest.raises(CourseError, match=r"cannot write to .*: choose another"):
        check_writable(tmp_path / place, "choose another")
    assert (tmp_path / "file").read_text() == "mine"
