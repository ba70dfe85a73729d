"""The photographs that come with the course, and what is said when they are damaged."""

import io
import pickle
import shutil
import tarfile
from functools import partial

import numpy as np
import pytest
from PIL import Image

from course_utils.config import load_config
from course_utils.data.load import load_data
from course_utils.data.photos import DESCRIPTION, PHOTOS, describe_photos, open_photos
from course_utils.errors import CourseError
from scripts.make_photos import mean_squared_error, psnr_db
from tests.places import CIFAR_ARCHIVE

SPLITS = {"train": 8000, "test": 2000}
FIX = "restore it with `git checkout data/photos`, or use COURSE_DATASET=shapes"


@pytest.fixture(scope="module")
def photographs():
    """Split to class names, targets and images of every photograph."""
    found = {}
    for split in SPLITS:
        names, targets, pick = open_photos(split)
        found[split] = (names, targets, pick(np.arange(len(targets))))
    return found


@pytest.fixture
def copied(tmp_path):
    """The folder of photographs, to damage."""
    return shutil.copytree(PHOTOS, tmp_path / "photos")


@pytest.mark.parametrize(("split", "count"), SPLITS.items())
def test_sizes_and_balance(photographs, split, count):
    names, targets, images = photographs[split]
    assert len(names) == 10
    assert images.shape == (count, 32, 32, 3)
    assert images.dtype == np.uint8
    assert targets.dtype == np.int64
    assert np.bincount(targets).tolist() == [count // 10] * 10
    assert targets[:10].tolist() == list(range(10))


def test_no_photograph_is_there_twice(photographs):
    images = np.concatenate([images for _, _, images in photographs.values()])
    assert len({image.tobytes() for image in images}) == sum(SPLITS.values())


def test_all_files_are_named_and_small():
    about = describe_photos()
    files = {path.name: path.stat().st_size for path in PHOTOS.iterdir()}
    assert set(files) == {f"{name}.jpg" for name in about["sheets"]} | {DESCRIPTION}
    assert sum(files.values()) <= 6 * 2**20
    assert all(files[f"{name}.jpg"] == sheet["bytes"] for name, sheet in about["sheets"].items())


def test_pick_returns_the_images_in_the_order_asked_for(photographs):
    _, _, pick = open_photos("test")
    index = np.array([1999, 3, 3, 10])
    images = photographs["test"][2]
    assert np.array_equal(pick(index), images[index])
    assert np.array_equal(pick(index[:1]), images[index[:1]])  # a sheet that is decoded already


def test_only_the_sheets_that_are_needed_are_read(copied):
    for path in copied.glob("*.jpg"):
        if path.stem != "test_cat":
            path.unlink()
    names, _, pick = open_photos("test", copied)
    cat = names.index("cat")
    assert pick(np.array([cat, 10 + cat])).shape == (2, 32, 32, 3)
    with pytest.raises(CourseError, match=r"test_airplane\.jpg is missing"):
        pick(np.array([0]))


# --- load_data


def test_the_splits_of_quick():
    data = load_data(load_config("quick", dataset="photos"))
    assert data.describe() == (
        "photos: 1,000 training and 1,000 validation images of 10 classes, 32 × 32 × 3"
    )
    assert np.bincount(data.train.targets).tolist() == [100] * 10
    assert np.bincount(data.val.targets).tolist() == [100] * 10
    train, val, test = (
        {image.tobytes() for image in part.images}
        for part in (data.train, data.val, data.open_test())
    )
    assert len(train) == len(val) == 1000
    assert len(test) == 2000
    assert not train & val
    assert not (train | val) & test


def test_all_photographs():
    data = load_data(load_config("full", dataset="photos"))
    assert (len(data.train), len(data.val)) == (7200, 800)


@pytest.mark.parametrize("dataset", ["photos", "shapes"])
def test_data_can_be_sent_to_another_process(dataset):
    data = load_data(load_config("smoke", dataset=dataset))
    for one in (data, data.take_train(40)):
        other = pickle.loads(pickle.dumps(one))
        assert np.array_equal(other.train.images, one.train.images)
        assert np.array_equal(other.val.targets, one.val.targets)
        assert np.array_equal(other.open_test().images, one.open_test().images)


# --- damage


def load_damaged(monkeypatch, folder):
    opened = partial(open_photos, folder=folder)
    monkeypatch.setattr("course_utils.data.sources.open_photos", opened)
    with pytest.raises(CourseError) as error:
        load_data(load_config("smoke", dataset="photos"))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_changed_sheet(monkeypatch, copied):
    sheet = copied / "train_frog.jpg"
    content = bytearray(sheet.read_bytes())
    content[len(content) // 2] ^= 1
    sheet.write_bytes(content)
    assert load_damaged(monkeypatch, copied) == f"{sheet} is damaged (wrong checksum): {FIX}"


def test_a_sheet_that_was_cut_short(monkeypatch, copied):
    sheet = copied / "train_frog.jpg"
    sheet.write_bytes(sheet.read_bytes()[:1000])
    assert load_damaged(monkeypatch, copied) == f"{sheet} is damaged (wrong checksum): {FIX}"


def test_a_missing_sheet(monkeypatch, copied):
    (copied / "train_frog.jpg").unlink()
    message = load_damaged(monkeypatch, copied)
    assert message == f"{copied / 'train_frog.jpg'} is missing: {FIX}"


@pytest.mark.parametrize("content", [None, "", "{", "3", "{}"])
def test_a_description_that_is_missing_or_damaged(monkeypatch, copied, content):
    path = copied / DESCRIPTION
    path.unlink() if content is None else path.write_text(content)
    assert load_damaged(monkeypatch, copied) == f"{path} is missing or damaged: {FIX}"


def test_no_photographs_at_all(monkeypatch, tmp_path):
    assert FIX in load_damaged(monkeypatch, tmp_path / "nowhere")


# --- what the format loses


@pytest.fixture(scope="module")
def originals():
    """``<split>_<class>/<name>`` to the JPEG file of every chosen photograph in the archive."""
    if not CIFAR_ARCHIVE.exists():
        pytest.skip(f"no real images: {CIFAR_ARCHIVE.name} is not beside the repository")
    sheets = describe_photos()["sheets"]
    wanted = {f"{name}/{file}" for name, about in sheets.items() for file in about["files"].split()}
    found = {}
    with tarfile.open(CIFAR_ARCHIVE, "r|xz") as archive:  # cifar10/<split>/<class>/<name>.jpg
        for member in archive:
            name = member.name.removeprefix("cifar10/").removesuffix(".jpg").replace("/", "_", 1)
            if name in wanted:
                found[name] = archive.extractfile(member).read()
    assert set(found) == wanted
    return found


def test_the_psnr_is_the_one_that_is_stated(photographs, originals):
    about = describe_photos()
    for split, (names, targets, images) in photographs.items():
        errors = []
        for label, name in enumerate(names):
            sheet = f"{split}_{name}"
            files = [
                originals[f"{sheet}/{file}"] for file in about["sheets"][sheet]["files"].split()
            ]
            pixels = np.stack([np.asarray(Image.open(io.BytesIO(file))) for file in files])
            errors.append(mean_squared_error(pixels, images[targets == label]))
            stated = about["sheets"][sheet]["psnr_db"]
            assert stated <= psnr_db(errors[-1]) < stated + 0.01, sheet
        stated = about["psnr_db"][split]
        assert stated <= psnr_db(np.mean(errors)) < stated + 0.01
