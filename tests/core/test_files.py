import os
import shutil

import pytest

from course_utils.files import replace_folder, write_atomically


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
    with pytest.raises(OSError, match="No space") as caught:
        write_atomically(path, "new")
    assert caught.value.filename == str(path)  # the system does not say which file
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.txt"]


def test_a_folder_is_replaced_or_stays(tmp_path, monkeypatch):
    new, target = tmp_path / "work" / "new", tmp_path / "target"
    for folder, text in ((new, "new"), (target, "old")):
        folder.mkdir(parents=True)
        (folder / "file").write_text(text)
    (target / "kept").write_text("mine")
    replace_folder(new, target, keep=("kept", "absent"))
    assert (target / "file").read_text() == "new"
    assert (target / "kept").read_text() == "mine"
    shutil.rmtree(tmp_path / "work")
    (tmp_path / "work").mkdir()
    with pytest.raises(FileNotFoundError):  # there is no new folder, so nothing to move
        replace_folder(new, target)
    assert (target / "file").read_text() == "new"
