import numpy as np
import pytest
from torch.utils.data import DataLoader

from course_utils.data.augment import train_transform
from course_utils.data.image_data import Images
from course_utils.errors import CourseError
from lesson_code.dali.jpegs import FILE_LIST, draw_scenes, open_jpegs, write_jpegs


@pytest.fixture
def smooth():
    """Twelve images that JPEG hardly changes: a gradient, another colour in each."""
    ramp = np.linspace(40, 200, 32)
    images = np.stack([np.add.outer(ramp, ramp) / 2 + shift for shift in range(12)])
    return Images(np.repeat(images[..., None], 3, axis=3).astype(np.uint8), np.arange(12) % 3)


def test_written_images_come_back_in_order(smooth, tmp_path):
    smooth.images[0, :, :, 0] = 250  # red: channels must not be exchanged
    files = write_jpegs(smooth, tmp_path / "new")
    assert files.targets == tuple(range(3)) * 4
    for number in (0, 5, 11):
        image, target = files[number]
        assert target == number % 3
        assert np.abs(image.astype(int) - smooth.images[number]).max() <= 12
    assert open_jpegs(tmp_path / "new") == files


def test_a_loader_gets_the_baselines_batches(smooth, tmp_path):
    files = write_jpegs(smooth, tmp_path)
    transform = train_transform((0.5,) * 3, (0.2,) * 3)
    files = type(files)(files.paths, files.targets, transform)
    images, targets = next(iter(DataLoader(files, batch_size=4)))
    assert images.shape == (4, 3, 32, 32)
    assert targets.tolist() == [0, 1, 2, 0]


def test_a_scene_has_its_photograph_in_the_middle_of_a_wall_of_others(smooth):
    scenes = list(draw_scenes(smooth))
    assert [target for _, target in scenes] == smooth.targets.tolist()
    for (scene, _), image in zip(scenes, smooth.images, strict=True):
        assert scene.shape == (256, 256, 3)
        middle = scene[64:192, 64:192].reshape(32, 4, 32, 4, 3).mean(axis=(1, 3))
        assert np.abs(middle - image).max() < 3
        corner = scene[:32, 224:]
        assert any(np.array_equal(corner, other) for other in smooth.images)
    again, other = list(draw_scenes(smooth)), list(draw_scenes(smooth, seed=1))
    assert np.array_equal(again[3][0], scenes[3][0])
    assert not np.array_equal(other[3][0], scenes[3][0])


def test_scenes_are_written_one_by_one(smooth, tmp_path):
    files = write_jpegs(draw_scenes(smooth), tmp_path)
    assert files.targets == tuple(smooth.targets)
    image, _ = files[7]
    assert image.shape == (256, 256, 3)


def test_bad_folders_are_one_line(smooth, tmp_path):
    with pytest.raises(CourseError, match=r"has no files\.txt: write the images"):
        open_jpegs(tmp_path)
    files = write_jpegs(smooth, tmp_path)
    files.paths[3].write_bytes(b"not an image")
    with pytest.raises(CourseError, match=r"cannot read the image .*00003\.jpg: write"):
        files[3]
    (tmp_path / FILE_LIST).write_text("00000.jpg 1\n00001.jpg\n")
    with pytest.raises(CourseError, match=r"line 2: expected 'name target'"):
        open_jpegs(tmp_path)
