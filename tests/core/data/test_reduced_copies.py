"""Large images are decoded once: copies follow what the files hold, and are never needed."""

import os

import numpy as np
import pytest
from PIL import Image

from course_utils.data import folder_reader, reduced_copies
from course_utils.data.folder_reader import FolderReader
from course_utils.data.reduced_copies import find_copies_folder


@pytest.fixture
def photographs(tmp_path, monkeypatch):
    """A folder of six large images, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "mine" / "train" / "cat"
    folder.mkdir(parents=True)
    for number in range(6):
        write_photograph(folder / f"{number}.jpg", 40 * number)
    return folder


def write_photograph(path, grey):
    Image.new("RGB", (320, 300), (grey, 99, 99)).save(path)


@pytest.fixture
def decoded(monkeypatch):
    """The names of the files that are decoded."""
    names = []
    read_image = folder_reader.read_image

    def watch(path):
        names.append(path.name)
        return read_image(path)

    monkeypatch.setattr(folder_reader, "read_image", watch)
    return names


def read(folder, count=6):
    paths = [folder / f"{number}.jpg" for number in range(count)]
    return FolderReader(folder.parents[1], paths)(np.arange(count))


def test_what_was_decoded_once_is_not_decoded_again(photographs, decoded, capsys):
    first = read(photographs)
    said = capsys.readouterr().out
    assert sorted(decoded) == [f"{number}.jpg" for number in range(6)]
    decoded.clear()
    (kept,) = find_copies_folder().iterdir()
    change_time(kept)
    assert np.array_equal(read(photographs), first)
    assert not decoded
    assert capsys.readouterr().out == said
    assert kept.stat().st_mtime_ns == 1  # copies that are there are not written again


def change_time(path):
    os.utime(path, ns=(1, 1))


def change_content(path):
    status = path.stat()
    write_photograph(path, 250)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def exchange(path):
    other = path.with_name("5.jpg")
    path.rename(path.with_name("x"))
    other.rename(path)
    path.with_name("x").rename(other)


@pytest.mark.parametrize("change", [change_time, change_content, exchange])
def test_a_change_is_noticed(photographs, decoded, change):
    read(photographs)
    decoded.clear()
    change(photographs / "2.jpg")
    images = read(photographs)
    assert "2.jpg" in decoded
    assert len(decoded) <= 2
    with Image.open(photographs / "2.jpg") as image:
        assert abs(int(images[2, 0, 0, 0]) - image.getpixel((0, 0))[0]) <= 1


@pytest.mark.parametrize("content", [b"", b"no zip", None])
def test_a_damaged_file_of_copies_is_written_again(photographs, decoded, content):
    first = read(photographs)
    [copies] = find_copies_folder().iterdir()
    copies.write_bytes(copies.read_bytes()[:-100] if content is None else content)
    decoded.clear()
    assert np.array_equal(read(photographs), first)
    assert len(decoded) == 6
    read(photographs)
    assert len(decoded) == 6


def test_copies_of_another_shape_are_not_used(photographs, decoded):
    first = read(photographs)
    [copies] = find_copies_folder().iterdir()
    with np.load(copies) as file:
        arrays = dict(file)
    np.savez(copies, **arrays | {"pixels": arrays["pixels"][:, :16]})
    assert np.array_equal(read(photographs), first)
    assert len(decoded) == 12


def test_where_no_copies_can_be_kept_images_are_decoded(photographs, decoded, tmp_path):
    (tmp_path / "cache").write_text("no folder")
    assert np.array_equal(read(photographs), read(photographs))
    assert len(decoded) == 12


def test_small_images_have_no_copies(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Image.new("RGB", (64, 64)).save(tmp_path / "0.jpg")
    FolderReader(tmp_path, [tmp_path / "0.jpg"])(np.arange(1))
    assert not (tmp_path / "cache").exists()


def test_the_newest_copies_stay(photographs, decoded, monkeypatch):
    monkeypatch.setattr(reduced_copies, "MOST_COPIES", 4)
    read(photographs)
    decoded.clear()
    read(photographs)
    assert len(decoded) == 2


def test_the_newest_folders_stay(photographs, monkeypatch):
    monkeypatch.setattr(reduced_copies, "MOST_FILES", 2)
    for number in range(4):
        paths = [photographs / "0.jpg"]
        FolderReader(photographs.parents[number % 3], paths)(np.arange(1))
    assert len(list(find_copies_folder().iterdir())) == 2


def test_reading_in_turns_keeps_all_copies(photographs, decoded):
    read(photographs, count=3)
    read(photographs, count=6)
    decoded.clear()
    read(photographs)
    assert not decoded
