import cv2
import numpy as np
import pytest
import torch

from course_tools.cli import main as cli
from course_tools.pretrain import images as pretrain
from course_utils.errors import CourseError
from course_utils.models import backbone
from course_utils.models.backbone import describe_backbone, read_backbone
from tests.tools.conftest import interrupt

SHORT = pretrain.Recipe(epochs=1, batch_size=8)
CLASSES = ("n01", "n02", "n03")


def write_tiny_imagenet(folder, images_per_class=8):
    """Tiny ImageNet's layout with three classes, each a colour of its own."""
    rng = np.random.default_rng(0)
    lines = []
    for number, name in enumerate(CLASSES):
        for split, target in (("train", f"train/{name}/images"), ("val", "val/images")):
            (folder / target).mkdir(parents=True, exist_ok=True)
            for index in range(images_per_class):
                image = rng.integers(0, 60, (64, 64, 3), dtype=np.uint8)
                image[..., number] += 150
                cv2.imwrite(str(folder / target / f"{name}_{index}.JPEG"), image)
                if split == "val":
                    lines.append(f"{name}_{index}.JPEG\t{name}\t0\t0\t62\t62")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_tiny_imagenet(tmp_path_factory.mktemp("images") / "tiny")


def test_images_are_halved_and_classes_numbered(images):
    train = pretrain.read_split(images, "train")
    assert train.images.shape == (24, 32, 32, 3)
    assert train.targets.tolist() == [0] * 8 + [1] * 8 + [2] * 8
    for split in (train, pretrain.read_split(images, "val")):
        colour = split.images.float().mean((1, 2))  # blue first in the file: red is the last
        assert torch.equal(2 - colour.argmax(1), split.targets)


def test_it_writes_a_backbone_that_says_how_it_was_made(images, tmp_path):
    lines = []
    about = pretrain.pretrain(images, tmp_path, seed=3, recipe=SHORT, report=lines.append)
    assert about["command"] == "course pretrain --images tiny --seed 3"
    assert describe_backbone("convnet_small", tmp_path).items() >= about.items()
    assert "24 training, 24 validation images of 3 classes" in about["data"]
    assert len(lines) == 1
    assert lines[0].startswith("epoch 1 of 1: training loss ")
    assert abs(about["val_accuracy"] - about["val_accuracy_of_stored_weights"]) <= 0.1


def test_the_seed_decides_the_backbone(images, tmp_path):
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        pretrain.pretrain(images, tmp_path / name, seed, SHORT, report=lambda line: None)
    one, same, other = (
        read_backbone("convnet_small", tmp_path / name) for name in ("one", "same", "other")
    )
    assert all(torch.allclose(one[name], same[name], atol=1e-2) for name in one)
    assert not torch.allclose(one["stem.conv.weight"], other["stem.conv.weight"], atol=1e-2)


def test_the_learning_rate_rises_to_its_peak_and_falls_to_zero():
    factors = [pretrain._lr_factor(step, 100, 0.2) for step in range(100)]
    assert factors[:20] == pytest.approx([(step + 1) / 20 for step in range(20)])
    assert factors[19] == factors[20] == 1
    assert factors[20:] == sorted(factors[20:], reverse=True)
    assert factors[99] == pytest.approx(1 / 80)


def run_command(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["course", "pretrain", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code or 0


def test_the_command_says_what_came_out(images, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pretrain.pretrain, "__defaults__", (0, SHORT, print))
    monkeypatch.setattr(backbone, "WEIGHTS", tmp_path)
    assert run_command(monkeypatch, "--images", str(images), "--seed", "4") == 0
    assert "% of the validation images in" in capsys.readouterr().out
    assert describe_backbone("convnet_small", tmp_path)["seed"] == 4


@pytest.mark.parametrize(
    "damage", ["no such folder", "an empty folder", "no annotations", "a broken image"]
)
def test_a_wrong_folder_is_one_line_and_leaves_the_backbone(damage, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "images"
    if damage == "an empty folder":
        folder.mkdir()
    elif damage != "no such folder":
        write_tiny_imagenet(folder, images_per_class=2)
    if damage == "no annotations":
        (folder / "val" / "val_annotations.txt").unlink()
    if damage == "a broken image":
        (folder / "train" / "n02" / "images" / "n02_0.JPEG").write_bytes(b"no image")
    monkeypatch.setattr(backbone, "WEIGHTS", tmp_path / "weights")
    assert run_command(monkeypatch, "--images", str(folder)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert ("replace or delete it" if damage == "a broken image" else "expected train/") in error
    assert not (tmp_path / "weights").exists()


def test_an_interrupt_is_one_line_and_leaves_the_backbone(images, tmp_path):
    started, weights = tmp_path / "started", tmp_path / "weights"
    weights.mkdir()
    script = (
        "import sys; from pathlib import Path; from course_utils.models import backbone;"
        "from course_tools.pretrain import images as pretrain;"
        "from course_tools.cli import main as cli;"
        "long = pretrain.Recipe(epochs=100_000, batch_size=8);"
        f"touch = lambda line: Path({str(started)!r}).touch();"
        "pretrain.pretrain.__defaults__ = (0, long, touch);"
        f"backbone.WEIGHTS = Path({str(weights)!r});"
        f"sys.argv = ['course', 'pretrain', '--images', {str(images)!r}]; cli.main()"
    )
    code, error = interrupt(script, started)
    assert code == 130
    assert error == "course: interrupted; the backbone is the one that was there"
    assert not list(weights.iterdir())


def test_a_missing_class_in_the_annotations_is_refused(tmp_path):
    folder = write_tiny_imagenet(tmp_path / "images", images_per_class=1)
    path = folder / "val" / "val_annotations.txt"
    path.write_text(path.read_text().replace("n03\t", "n99\t"))
    with pytest.raises(CourseError, match="no val images of its classes"):
        pretrain.read_split(folder, "val")
