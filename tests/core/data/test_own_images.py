"""A folder of one's own images: what is read, what is left out, what is refused."""

import os
import pickle
import re
import shutil
import unicodedata

import numpy as np
import pytest
from PIL import Image

from course_utils.config import PROFILES, load_config
from course_utils.data.image_data import FEWEST
from course_utils.data.load import load_data
from course_utils.data.sources import open_images
from course_utils.errors import CourseError
from tests.own_folder import write_images


def load_folder(folder, **changes):
    config = load_config("smoke", dataset=str(folder)).replace(num_train=16, num_val=8)
    return load_data(config.replace(**changes))


def write_smooth_images(folder):
    """As `write_images`, 36 a class: each of a few coloured areas, as photographs are."""
    rng = np.random.default_rng(0)
    for path in write_images(folder, count=36).rglob("*.jpg"):
        areas = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        areas.resize((240, 180), Image.Resampling.BICUBIC).save(path)
    return folder


def test_folder_is_read_as_it_is(tmp_path):
    data = load_folder(write_images(tmp_path / "mine"))
    assert data.class_names == ("cat", "dog")
    assert (len(data.train), len(data.val)) == (16, 8)
    test = data.open_test()
    assert len(test) == 24


@pytest.mark.parametrize("mode", ["L", "RGBA"])
def test_grey_and_rgba_images_are_accepted(tmp_path, mode):
    data = load_folder(write_images(tmp_path / "mine", mode=mode))
    assert data.train.images.shape[1:] == (32, 32, 3)


def test_sixteen_bits_of_grey_are_scaled_not_clipped(tmp_path):
    folder = write_images(tmp_path / "mine")
    ramp = np.linspace(0, 65535, 32 * 32).astype(np.uint16).reshape(32, 32)
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            for i in range(12):
                (folder / split / name / f"{i}.jpg").unlink()
                Image.fromarray(ramp).save(folder / split / name / f"{i}.png")
    images = load_folder(folder).train.images
    assert np.array_equal(images[0, ..., 0], (ramp / 257).astype(np.uint8))


def test_other_sizes_are_resized_and_it_is_said(tmp_path, capsys):
    data = load_folder(write_images(tmp_path / "mine", size=(48, 40)))
    assert data.train.images.shape[1:] == (32, 32, 3)
    assert "24 of 24 images are not 32×32: resized." in capsys.readouterr().out


def test_no_such_data_set():
    with pytest.raises(CourseError, match="use shapes, photos, cifar10 or an existing folder"):
        load_folder("/no/such/folder")


def test_the_home_of_a_user_who_does_not_exist_is_no_data_set():  # own-nobody
    with pytest.raises(CourseError, match="no data set '~nobody-has-this-name/images'"):
        load_folder("~nobody-has-this-name/images")


def test_folder_without_train(tmp_path):
    folder = write_images(tmp_path / "mine")
    (folder / "train").rename(folder / "training")
    with pytest.raises(CourseError, match="has no folder train/: expected"):
        load_folder(folder)


def test_folder_with_one_class(tmp_path):
    with pytest.raises(CourseError, match="needs two classes or more"):
        load_folder(write_images(tmp_path / "mine", classes=("cat",)))


def test_folder_with_an_empty_class(tmp_path):
    folder = write_images(tmp_path / "mine")
    for split in ("train", "test"):
        (folder / split / "fish").mkdir()
    with pytest.raises(CourseError, match=r"no images of fish: add some .* or delete the folder"):
        load_folder(folder)


@pytest.mark.parametrize("content", [b"not a picture", b"", None])
def test_broken_image_is_named(tmp_path, content):
    folder = write_images(tmp_path / "mine")
    broken = folder / "train" / "dog" / "3.jpg"
    broken.write_bytes(broken.read_bytes()[:300] if content is None else content)
    with pytest.raises(CourseError, match=r"dog/3\.jpg: replace or delete it"):
        load_folder(folder)


def test_a_hidden_folder_is_no_class_and_hidden_files_are_no_images(tmp_path):
    folder = write_images(tmp_path / "mine", count=30)
    for place in ("train/.ipynb_checkpoints", "train/cat/.ipynb_checkpoints"):
        (folder / place).mkdir()
        Image.new("RGB", (32, 32)).save(folder / place / "0-checkpoint.jpg")
    Image.new("RGB", (32, 32)).save(folder / "train" / "cat" / "._0.jpg", format="jpeg")
    data = load_folder(folder, num_train=None, num_val=100)
    assert data.class_names == ("cat", "dog")
    assert len(data.train) + len(data.val) == 60


def test_a_link_to_its_own_folder_is_not_followed(tmp_path):
    folder = write_images(tmp_path / "mine", count=30)
    (folder / "train" / "cat" / "me").symlink_to(folder / "train" / "cat")
    data = load_folder(folder, num_train=None, num_val=100)
    assert len(data.train) + len(data.val) == 60


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("train/dog/again.jpg", "train/cat/3.jpg"),
        ("train/wolf", "train/dog"),  # a class by another name
        ("train/all", "train"),  # everything once more
    ],
)
def test_an_image_that_is_there_twice_by_a_link_is_refused(tmp_path, link, target):
    folder = write_images(tmp_path / "mine")
    (folder / link).symlink_to(folder / target)
    if (folder / link).is_dir():
        (folder / link.replace("train", "test", 1)).mkdir()
    with pytest.raises(CourseError, match="are the same file: delete the link"):
        load_folder(folder)


def test_classes_and_images_may_be_links_elsewhere(tmp_path):
    folder = write_images(tmp_path / "mine", count=30)
    (folder / "train" / "dog").rename(tmp_path / "dogs")
    (folder / "train" / "dog").symlink_to(tmp_path / "dogs")
    (tmp_path / "dogs" / "0.jpg").rename(tmp_path / "best.jpg")
    (folder / "train" / "dog" / "0.jpg").symlink_to(tmp_path / "best.jpg")
    data = load_folder(folder, num_train=None, num_val=100)
    assert len(data.train) + len(data.val) == 60


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wolf", "train/ alone has dog, and test/ alone has wolf: give both the same folders"),
        ("dog ", "train/ alone has dog, and test/ alone has 'dog ': give"),
        ("d\u200bog", r"train/ alone has dog, and test/ alone has 'd\\u200bog': give"),
        ("dog\xa0", r"train/ alone has dog, and test/ alone has 'dog\\xa0': give"),
    ],
)
def test_both_splits_must_have_the_same_classes(tmp_path, name, said):
    folder = write_images(tmp_path / "mine")
    (folder / "test" / "dog").rename(folder / "test" / name)
    with pytest.raises(CourseError, match=said):
        load_folder(folder)


def test_a_class_that_only_one_split_has_is_named(tmp_path):
    folder = write_images(tmp_path / "mine", classes=("cat", "dog", "fish"))
    shutil.rmtree(folder / "test" / "fish")
    with pytest.raises(CourseError, match="mine: train/ alone has fish: give both the same"):
        load_folder(folder)


@pytest.mark.parametrize("name", ["café", "고양이", "Ångström", "ばら"])
def test_letters_that_are_composed_in_one_split_only_are_the_same(tmp_path, name):
    composed, parts = (unicodedata.normalize(form, name) for form in ("NFC", "NFD"))
    assert composed != parts
    folder = write_images(tmp_path / "mine", classes=("bars", composed))
    (folder / "test" / composed).rename(folder / "test" / parts)  # as a Mac writes it
    data = load_folder(folder)
    assert composed in data.class_names
    assert np.bincount(data.open_test().targets).tolist() == [12, 12]
    (folder / "train" / parts).mkdir()
    with pytest.raises(CourseError, match=r"two folders .* that look the same"):
        load_folder(folder)


def test_files_that_are_not_read_are_counted(tmp_path, capsys):
    folder = write_images(tmp_path / "mine")
    for name in ("a.gif", "b.gif", "c.HEIC", "notes"):
        (folder / "train" / "cat" / name).write_bytes(b"x")
    os.mkfifo(folder / "train" / "cat" / "pipe.jpg")  # reading it would wait for ever
    load_folder(folder)
    said = "that are not read: 2 .gif, 1 .heic, 1 .jpg, 1 without an ending."
    assert said in capsys.readouterr().out


def test_a_class_of_other_formats_alone_says_which(tmp_path):  # i_gifonly
    folder = write_images(tmp_path / "mine")
    for path in (folder / "train" / "cat").iterdir():
        path.rename(path.with_suffix(".gif"))
    with pytest.raises(CourseError, match=r"no images of cat: .* not read are 12 \.gif"):
        load_folder(folder)


def test_images_that_are_all_alike_are_refused(tmp_path):
    folder = write_images(tmp_path / "mine")
    for path in folder.rglob("*.jpg"):
        Image.new("RGB", (32, 32)).save(path)
    with pytest.raises(CourseError, match="one and the same value: there is nothing to learn"):
        load_folder(folder)


def test_a_class_that_figures_read_as_a_formula_is_refused(tmp_path):
    folder = write_images(tmp_path / "mine", classes=("cat", r"$\frac$"))
    with pytest.raises(CourseError, match=r"figures read \$ as a formula: rename the folder"):
        load_folder(folder)


@pytest.mark.parametrize("place", ["train", "train/cat", "train/cat/holidays"])
@pytest.mark.parametrize("name", ["@eaDir", "#recycle", "__MACOSX", ".thumbnails", "$RECYCLE.BIN"])
def test_folders_of_the_system_are_skipped_and_it_is_said(tmp_path, capsys, place, name):
    folder = write_images(tmp_path / "mine")
    (folder / place / name).mkdir(parents=True)
    Image.new("RGB", (32, 32)).save(folder / place / name / "SYNOPHOTO_THUMB_M.jpg")
    opened = open_images(str(folder))
    assert opened.class_names == ("cat", "dog")
    assert len(opened.names) == 24
    assert f"Folders in {folder}/train that are not read: 1 {name}.\n" in capsys.readouterr().out


def test_all_damaged_images_are_named_at_once(tmp_path):
    """Also those that this profile would not read, and those of the test split."""
    folder = write_images(tmp_path / "mine", count=40)
    damaged = ["train/cat/7.jpg", "train/dog/3.jpg", "train/dog/31.jpg", "test/cat/5.jpg"]
    for name, content in zip(damaged, [b"", b"<html>", b"GIF89a", b"\xff\xd8\xff"], strict=True):
        (folder / name).write_bytes(content)
    with pytest.raises(CourseError) as error:
        load_folder(folder, num_train=40, num_val=35)
    assert str(error.value).startswith(f"cannot read 4 images: {', '.join(sorted(damaged))}: rep")
    assert str(error.value).endswith(f"they are in {folder})")


def test_of_many_damaged_images_ten_are_named(tmp_path):
    folder = write_images(tmp_path / "mine", count=12)
    for path in folder.glob("train/*/*.jpg"):
        path.write_bytes(b"")
    with pytest.raises(CourseError, match="cannot read 24 images or more: ") as error:
        load_folder(folder)
    assert str(error.value).count(".jpg") == 10


def test_too_few_images_are_said_before_any_is_read(tmp_path):
    folder = write_images(tmp_path / "mine", classes=("bird", "cat", "dog"), count=4)
    (folder / "train" / "cat" / "0.jpg").write_bytes(b"damaged")
    said = f"mine: train/ has 12 images, and the lessons need {FEWEST} or more"
    for profile in PROFILES:
        with pytest.raises(CourseError, match=said):
            load_data(load_config(profile, dataset=str(folder)))


@pytest.mark.parametrize(
    ("count", "profile", "sentence"),
    [
        (1, "smoke", "validation images leave out fish: give each class 3 images or more, or"),
        (1, "quick", "validation images leave out fish: give each class 3 images or more, or"),
        (2, "full", "validation images leave out fish: give each class 11 images or more, or"),
    ],
)
def test_a_class_that_a_split_leaves_out_is_named_with_what_helps(
    tmp_path, count, profile, sentence
):
    folder = write_images(tmp_path / "mine", count=30)
    for split in ("train", "test"):
        (folder / split / "fish").mkdir()
        for i in range(count):
            shutil.copy(folder / split / "cat" / f"{i}.jpg", folder / split / "fish")
    with pytest.raises(CourseError, match=sentence):
        load_data(load_config(profile, dataset=str(folder)))


def test_where_the_profile_is_the_cause_it_is_said(tmp_path):
    folder = write_images(tmp_path / "mine", tuple("abcdefgh"), count=8)
    with pytest.raises(CourseError, match=r"validation images leave out .* or take a profile that"):
        load_folder(folder, num_train=16, num_val=4)


def copy_files(folder, change):
    """Beside each image of training a copy that ``change(path, copy)`` writes."""
    for path in list(folder.glob("train/*/*.jpg")):
        change(path, path.with_name(f"{path.stem} (1).jpg"))


def save_thumbnail(path, copy):
    with Image.open(path) as image:
        image.resize((120, 90)).save(copy, quality=75)


@pytest.mark.parametrize("change", [shutil.copy, save_thumbnail])
def test_a_picture_in_training_and_validation_is_said_once(tmp_path, capsys, change):
    folder = write_smooth_images(tmp_path / "mine")
    copy_files(folder, change)
    load_folder(folder, num_train=48, num_val=24)
    said = [line for line in capsys.readouterr().out.splitlines() if "show the same" in line]
    assert len(said) == 1
    assert re.match(r"\d+ of 24 validation images show the same as a training image", said[0])
    assert re.search(r"\(train/(cat|dog)/(\d+) \(1\)\.jpg and train/\1/\2\.jpg; ", said[0])


def test_nothing_is_said_of_pictures_that_differ(tmp_path, capsys):
    load_folder(write_smooth_images(tmp_path / "mine")).open_test()
    assert "show the same" not in capsys.readouterr().out


def test_a_picture_in_two_classes_is_said(tmp_path, capsys):
    folder = write_smooth_images(tmp_path / "mine")
    shutil.copy(folder / "train/cat/3.jpg", folder / "train/dog/again.jpg")
    load_folder(folder, num_train=40, num_val=39)
    out = capsys.readouterr().out
    assert "2 of 73 images show the same as one of another class (train/cat/3.jpg and " in out


def test_a_test_split_that_holds_training_images_is_said_when_it_is_opened(tmp_path, capsys):
    folder = write_smooth_images(tmp_path / "mine")
    shutil.rmtree(folder / "test")
    shutil.copytree(folder / "train", folder / "test")
    data = load_folder(folder, num_train=48, num_val=24)
    assert "show the same" not in capsys.readouterr().out
    pickle.loads(pickle.dumps(data)).open_test()
    assert "72 of 72 test images show the same as a training image" in capsys.readouterr().out


def test_names_that_are_not_utf_8_are_written_out(tmp_path):
    folder = write_images(tmp_path / "mine")
    for split in ("train", "test"):
        os.rename(folder / split / "dog", os.fsencode(folder / split) + b"/caf\xe9")
    os.rename(folder / "train/cat/0.jpg", os.fsencode(folder) + b"/train/cat/\xff.jpg")
    for path in (folder / "train/cat").iterdir():
        path.write_bytes(b"")
    opened = open_images(str(folder))
    assert opened.class_names == (r"caf\xe9", "cat")
    assert r"train/cat/\xff.jpg" in opened.names
    with pytest.raises(CourseError) as error:
        load_folder(folder)
    str(error.value).encode()  # it can be printed
