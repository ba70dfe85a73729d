"""A folder of one's own images: what is read, what is left out, what is refused."""

import os

import numpy as np
import pytest
from PIL import Image

from course_utils.config import load_config
from course_utils.data.image_data import load_data
from course_utils.data.own_images import read_image
from course_utils.errors import CourseError
from tests.own_folder import write_images


def load_folder(folder, **changes):
    config = load_config("smoke", dataset=str(folder)).replace(num_train=16, num_val=8)
    return load_data(config.replace(**changes))


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
    assert "16 of 16 images are not 32×32: resized." in capsys.readouterr().out


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


def test_a_hidden_folder_is_no_class_and_hidden_files_are_no_images(tmp_path):  # s1
    folder = write_images(tmp_path / "mine")
    for place in ("train/.ipynb_checkpoints", "train/cat/.ipynb_checkpoints"):
        (folder / place).mkdir()
        Image.new("RGB", (32, 32)).save(folder / place / "0-checkpoint.jpg")
    Image.new("RGB", (32, 32)).save(folder / "train" / "cat" / "._0.jpg", format="jpeg")
    data = load_folder(folder, num_train=None, num_val=100)
    assert data.class_names == ("cat", "dog")
    assert len(data.train) + len(data.val) == 24


def test_a_link_to_its_own_folder_is_not_followed(tmp_path):  # y05
    folder = write_images(tmp_path / "mine")
    (folder / "train" / "cat" / "me").symlink_to(folder / "train" / "cat")
    data = load_folder(folder, num_train=None, num_val=100)
    assert len(data.train) + len(data.val) == 24


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
    folder = write_images(tmp_path / "mine")
    (folder / "train" / "dog").rename(tmp_path / "dogs")
    (folder / "train" / "dog").symlink_to(tmp_path / "dogs")
    (tmp_path / "dogs" / "0.jpg").rename(tmp_path / "best.jpg")
    (folder / "train" / "dog" / "0.jpg").symlink_to(tmp_path / "best.jpg")
    data = load_folder(folder, num_train=None, num_val=100)
    assert len(data.train) + len(data.val) == 24


def test_both_splits_must_have_the_same_classes(tmp_path):  # Q04, z01
    folder = write_images(tmp_path / "mine")
    (folder / "test" / "dog").rename(folder / "test" / "wolf")
    with pytest.raises(CourseError, match="train has the classes cat, dog, test has cat, wolf"):
        load_folder(folder)


def test_files_that_are_not_read_are_counted(tmp_path, capsys):  # s3
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


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_32_bits_are_refused(tmp_path, kind):  # s2
    path = tmp_path / "a.tif"
    Image.fromarray(np.linspace(0, 1e6, 32 * 32).reshape(32, 32).astype(kind)).save(path)
    with pytest.raises(CourseError, match=r"a\.tif: .*32 bits per pixel: save it with 8 or 16"):
        read_image(path)


def test_an_image_that_the_camera_turned_stands_upright(tmp_path):  # s4
    upright = np.zeros((32, 32, 3), dtype=np.uint8)
    upright[:16] = 200  # the sky
    turned = Image.fromarray(np.rot90(upright).copy())
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned by 90 degrees clockwise
    turned.save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(read_image(tmp_path / "a.png")[0], upright)


def test_images_that_are_all_alike_are_refused(tmp_path):  # y01, V01
    folder = write_images(tmp_path / "mine")
    for path in folder.rglob("*.jpg"):
        Image.new("RGB", (32, 32)).save(path)
    with pytest.raises(CourseError, match="one and the same value: there is nothing to learn"):
        load_folder(folder)


def test_a_class_that_figures_read_as_a_formula_is_refused(tmp_path):  # y02
    folder = write_images(tmp_path / "mine", classes=("cat", r"$\frac$"))
    with pytest.raises(CourseError, match=r"figures read \$ as a formula: rename the folder"):
        load_folder(folder)
