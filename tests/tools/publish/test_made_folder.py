"""A folder that the course made is made again, and nothing of its owner's is lost."""

import json
import os
import shutil
import sys
import time

import pytest

from course_tools.publish.made_folder import LEFTOVER_AGE_S, MadeFolder
from course_utils.errors import CourseError

SHELF = MadeFolder("shelf", ".shelf.json", (".git", "deep/kept"))


def fill(target, text="made"):
    with SHELF.replacing(target) as new:
        (new / "page.html").write_text(text)
        (new / "deep").mkdir()
        (new / "deep" / "page.html").write_text(text)
    return target


def test_it_is_replaced_and_what_is_kept_moves_over(tmp_path):
    shelf = fill(tmp_path / "shelf")
    for name in (".git/config", "deep/kept/a/b.txt"):
        (shelf / name).parent.mkdir(parents=True)
        (shelf / name).write_text("mine")
    fill(shelf, "again")
    assert (shelf / "page.html").read_text() == "again"
    assert (shelf / ".git/config").read_text() == "mine"
    assert (shelf / "deep/kept/a/b.txt").read_text() == "mine"
    assert os.listdir(tmp_path) == ["shelf"]


@pytest.mark.parametrize(
    "name", ["notes.txt", ".github/workflows/a.yml", "deep/kept.txt", "page.html"]
)
def test_an_owners_file_is_not_replaced(tmp_path, name):
    shelf = fill(tmp_path / "shelf")
    (shelf / name).parent.mkdir(parents=True, exist_ok=True)
    (shelf / name).write_text("mine")
    with pytest.raises(CourseError, match=f"holds work .{name}.: move it away"):
        fill(shelf)
    assert (shelf / name).read_text() == "mine"
    assert os.listdir(tmp_path) == ["shelf"]


@pytest.mark.parametrize("points_to", ["elsewhere", "elsewhere/file.txt", "nowhere"])
def test_an_owners_link_is_not_replaced(tmp_path, points_to):
    shelf = fill(tmp_path / "shelf")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file.txt").write_text("mine")
    (shelf / "link").symlink_to(tmp_path / points_to)
    with pytest.raises(CourseError, match=r"holds work .link."):
        fill(shelf)


def test_a_file_that_became_a_link_is_not_replaced(tmp_path):
    """It has the same content; but behind it lies a file of the owner's that he may change."""
    shelf = fill(tmp_path / "shelf")
    (shelf / "page.html").rename(tmp_path / "mine.html")
    (shelf / "page.html").symlink_to(tmp_path / "mine.html")
    with pytest.raises(CourseError, match=r"holds work .page.html."):
        fill(shelf)


def test_a_named_pipe_is_not_waited_for(tmp_path):
    shelf = fill(tmp_path / "shelf")
    os.mkfifo(shelf / "pipe")
    with pytest.raises(CourseError, match=r"holds work .pipe."):
        fill(shelf)


@pytest.mark.parametrize("record", ["", "[]", "null", "{", '{"page.html": 1}', "\x81"])
def test_a_damaged_record_protects_everything(tmp_path, record):
    shelf = fill(tmp_path / "shelf")
    (shelf / ".shelf.json").write_text(record, encoding="latin-1")
    with pytest.raises(CourseError, match=r"is no shelf|holds work"):
        fill(shelf)
    assert (shelf / "page.html").read_text() == "made"


def test_a_file_in_its_place_is_not_replaced(tmp_path):
    (tmp_path / "shelf").write_text("years")
    with pytest.raises(CourseError, match="is a file"):
        fill(tmp_path / "shelf")
    assert (tmp_path / "shelf").read_text() == "years"


def test_an_error_leaves_all_as_it_was(tmp_path):
    shelf = fill(tmp_path / "shelf")

    def fail():
        with SHELF.replacing(shelf) as new:
            (new / "half.html").write_text("half")
            raise CourseError("no")

    with pytest.raises(CourseError, match="no"):
        fail()
    assert sorted(os.listdir(shelf)) == [".shelf.json", "deep", "page.html"]
    assert os.listdir(tmp_path) == ["shelf"]


def test_what_a_killed_command_left_goes_after_a_day(tmp_path):
    """A folder ``old`` in it may be the only copy of an owner's files: it stays."""
    long_ago = time.time() - 2 * LEFTOVER_AGE_S
    for name in (".shelf-old/old", ".shelf-new/new", ".shelf-running/new"):
        (tmp_path / name).mkdir(parents=True)
    for name in (".shelf-old", ".shelf-new"):
        os.utime(tmp_path / name, (long_ago, long_ago))
    fill(tmp_path / "shelf")
    assert sorted(os.listdir(tmp_path)) == [".shelf-old", ".shelf-running", "shelf"]


def test_the_record_names_every_file(tmp_path):
    shelf = fill(tmp_path / "shelf")
    assert sorted(json.loads((shelf / ".shelf.json").read_text())) == [
        "deep/page.html",
        "page.html",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
@pytest.mark.parametrize(
    ("umask", "folders", "files"),
    [(0o077, 0o700, 0o600), (0o022, 0o755, 0o644), (0o027, 0o750, 0o640), (0o002, 0o775, 0o664)],
)
def test_all_files_can_be_read_by_the_same_people(tmp_path, umask, folders, files):
    """A copy brings the modes of its source, and what is written has those of the umask."""
    source = tmp_path / "source"
    (source / "open").mkdir(parents=True)
    for name, mode in {"readme": 0o644, "open/private": 0o600, "open/script": 0o755}.items():
        (source / name).write_text("x")
        (source / name).chmod(mode)
    before = os.umask(umask)
    try:
        with MadeFolder("thing", ".record.json", ()).replacing(tmp_path / "made") as new:
            shutil.copytree(source, new, dirs_exist_ok=True)
            (new / "written").write_text("x")
    finally:
        os.umask(before)
    made = [tmp_path / "made", *(tmp_path / "made").rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in made if path.is_dir()} == {folders}
    assert {path.stat().st_mode & 0o777 for path in made if path.is_file()} == {files}
    assert len(made) == 7
