import json
import os

import pytest
import torch

from course_utils.config import load_config
from course_utils.data.image_data import load_data
from course_utils.errors import CourseError
from course_utils.models.backbone import (
    BACKBONE,
    WEIGHTS,
    describe_backbone,
    read_backbone,
    write_backbone,
)
from course_utils.models.create import create_model


@pytest.fixture
def folder(tmp_path):
    kernel = torch.arange(16.0).reshape(2, 2, 2, 2).to(memory_format=torch.channels_last)
    write_backbone({"conv1.weight": kernel}, {"seed": 3}, tmp_path)
    return tmp_path


def test_what_is_written_is_read(folder):
    assert read_backbone(folder)["conv1.weight"].flatten().tolist() == list(range(16))
    assert describe_backbone(folder)["seed"] == 3
    assert sorted(os.listdir(folder)) == [f"{BACKBONE}.json", f"{BACKBONE}.safetensors"]


def test_a_changed_file_is_refused(folder):
    path = folder / f"{BACKBONE}.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CourseError, match=r"sha256 differs\): restore it with `git checkout"):
        read_backbone(folder)


def test_a_wrong_checksum_is_refused(folder):
    path = folder / f"{BACKBONE}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sha256": "0" * 64}))
    with pytest.raises(CourseError, match="sha256 differs"):
        read_backbone(folder)


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_a_missing_file_names_the_cure(folder, suffix):
    (folder / f"{BACKBONE}.{suffix}").unlink()
    with pytest.raises(CourseError, match=r"missing.* `course pretrain`") as found:
        read_backbone(folder)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("text", ["{", "[1]", "null", "3"])
def test_a_damaged_description_names_the_cure(folder, text):
    (folder / f"{BACKBONE}.json").write_text(text)
    with pytest.raises(CourseError, match="damaged"):
        read_backbone(folder)


def test_the_committed_backbone_says_how_it_was_made():
    about = describe_backbone()
    keys = {"command", "seed", "data", "epochs", "val_accuracy", "versions", "hardware", "commit"}
    assert keys <= set(about)
    assert about["commit"]
    assert not about["commit"].endswith("+"), "made from files that were never committed"
    assert (WEIGHTS / f"{BACKBONE}.safetensors").stat().st_size <= 2 * 2**20


def test_the_committed_backbone_knows_the_shapes_it_was_trained_on():
    """Its features alone separate the source classes: a linear probe by least squares."""
    config = load_config("smoke", dataset="shapes_source").replace(num_train=600, num_val=300)
    data = load_data(config)
    model = create_model("resnet_tiny", num_classes=10, pretrained=True).eval()
    model.fc = torch.nn.Identity()

    def embed(images):
        batches = [(model(x), y) for x, y in data.eval_loader(images)]
        features, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
        return torch.cat([features, torch.ones(len(features), 1)], dim=1), targets

    with torch.no_grad():
        features, targets = embed(data.train)
        onehot = torch.nn.functional.one_hot(targets, 10).float()
        ridge = features.T @ features + torch.eye(features.shape[1])
        probe = torch.linalg.solve(ridge, features.T @ onehot)
        features, targets = embed(data.val)
        accuracy = ((features @ probe).argmax(dim=1) == targets).float().mean()
    assert accuracy > 0.8


def test_pretrained_differs_from_random_in_all_but_the_head():
    torch.manual_seed(0)
    random = create_model("resnet_tiny", num_classes=7).state_dict()
    torch.manual_seed(0)
    pretrained = create_model("resnet_tiny", num_classes=7, pretrained=True).state_dict()
    same = {name for name in random if torch.equal(random[name], pretrained[name])}
    assert same == {"fc.weight", "fc.bias"}
