"""Sheets of a tiny folder: the same bytes each time, no tile touched by its neighbours."""

import json
import math
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from PIL import Image

from course_utils.data.photos import DESCRIPTION, cut_sheet, describe_photos, open_photos
from course_utils.errors import CourseError
from scripts import make_photos as making
from scripts.make_photos import encode_sheet, main, make_photos

FEW = {"train": 5, "test": 3}


@pytest.fixture
def folder(tmp_path):
    """Six training and three test images for each of two classes, no two alike."""
    rng = np.random.default_rng(0)
    for split, count in {"train": 6, "test": 3}.items():
        for name in ("cat", "dog"):
            (tmp_path / "tiny" / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(60, 200, (4, 4, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
                path = tmp_path / "tiny" / split / name / f"{number:04d}.jpg"
                Image.fromarray(pixels).save(path, quality=75)
    return tmp_path / "tiny"


def read_files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_same_folder_gives_the_same_bytes(folder, tmp_path):
    about = make_photos(folder, tmp_path / "one", per_class=FEW)
    again = make_photos(folder, tmp_path / "two", per_class=FEW)
    assert about == again == describe_photos(tmp_path / "one")
    assert read_files(tmp_path / "one") == read_files(tmp_path / "two")
    other = make_photos(folder, tmp_path / "three", seed=1, per_class=FEW)
    assert other["sheets"]["train_cat"]["files"] != about["sheets"]["train_cat"]["files"]


def test_what_is_written_is_what_is_read(folder, tmp_path):
    about = make_photos(folder, tmp_path / "made", per_class=FEW)
    assert about["classes"] == ["cat", "dog"]
    assert about["command"] == "python -m scripts.make_photos tiny"
    assert set(read_files(tmp_path / "made")) == {
        "train_cat.jpg",
        "train_dog.jpg",
        "test_cat.jpg",
        "test_dog.jpg",
        DESCRIPTION,
    }
    for split, count in FEW.items():
        names, targets, pick = open_photos(split, tmp_path / "made")
        images = pick(np.arange(len(targets)))
        assert len(images) == 2 * count
        for label, name in enumerate(names):
            files = about["sheets"][f"{split}_{name}"]["files"].split()
            assert len(set(files)) == count
            for file, image in zip(files, images[targets == label], strict=True):
                original = np.asarray(Image.open(folder / split / name / f"{file}.jpg"))
                assert np.abs(original.astype(int) - image).mean() < 2
        assert about["psnr_db"][split] > 35


def test_a_tile_does_not_change_its_neighbours():
    rng = np.random.default_rng(0)
    tiles = rng.integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    changed = tiles.copy()
    changed[4] = 255 - changed[4]
    one, other = (cut_sheet(encode_sheet(x, 3), 6, 3) for x in (tiles, changed))
    assert np.array_equal(np.delete(one, 4, 0), np.delete(other, 4, 0))
    assert not np.array_equal(one[4], other[4])


def test_psnr_follows_its_definition():
    black = np.zeros((1, 32, 32, 3), np.uint8)
    assert making.psnr_db(making.mean_squared_error(black, black)) == math.inf
    assert making.psnr_db(making.mean_squared_error(black, black + 255)) == pytest.approx(0)
    assert making.psnr_db(making.mean_squared_error(black + 1, black)) == pytest.approx(
        48.13, abs=0.01
    )


# --- folders that cannot be used


def remove_test(folder):
    (folder / "test").rename(folder / "validation")


def rename_class(folder):
    (folder / "test" / "dog").rename(folder / "test" / "wolf")


def remove_image(folder):
    (folder / "test" / "dog" / "0002.jpg").unlink()


def break_image(folder):
    (folder / "test" / "dog" / "0001.jpg").write_bytes(b"not a picture")


def enlarge_image(folder):
    Image.new("RGB", (48, 40)).save(folder / "test" / "dog" / "0001.jpg")


def copy_image(folder):
    content = (folder / "test" / "cat" / "0000.jpg").read_bytes()
    (folder / "test" / "dog" / "0001.jpg").write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove_test, r"no folder .*/tiny/test: expected .*<class>/<name>\.jpg"),
        (rename_class, "has not the same classes in train and test: expected"),
        (remove_image, "test/dog has 2 JPEG files: 3 are needed"),
        (break_image, r"cannot read .*dog/0001\.jpg: unpack the archive again"),
        (enlarge_image, r"0001\.jpg is 48×40: give photographs of 32×32 pixels"),
        (copy_image, r"(?s)cat/0000\.jpg and .*dog/0001\.jpg are the same photograph: delete one"),
    ],
)
def test_a_folder_that_cannot_be_used_is_one_line(folder, tmp_path, damage, message):
    damage(folder)
    with pytest.raises(CourseError, match=message) as error:
        make_photos(folder, tmp_path / "made", per_class=FEW)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "made").exists()


def test_the_command_says_what_it_made(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(making, "make_photos", partial(make_photos, per_class=FEW))
    main([str(folder), "--output", str(tmp_path / "made")])
    assert capsys.readouterr().out.startswith("4 sheets, 0.0")
    assert json.loads((tmp_path / "made" / DESCRIPTION).read_text())["seed"] == 0


def test_a_wrong_folder_is_one_line_and_status_2(tmp_path):
    command = [sys.executable, "-m", "scripts.make_photos", str(tmp_path / "none")]
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "made")], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"make_photos: no folder {tmp_path / 'none' / 'train'}: expected")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
