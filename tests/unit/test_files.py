import os

import pytest

from course_utils.files import write_atomically


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "new" / "file.txt"
    write_atomically(path, "one")
    write_atomically(path, "two é")
    assert path.read_text(encoding="utf-8") == "two é"
    assert os.listdir(path.parent) == ["file.txt"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    write_atomically(path, "old")

    def refuse(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.txt"]
