import hashlib
import json
import os

import pytest
import torch

from course_utils.config import load_config
from course_utils.data.load import load_data
from course_utils.errors import CourseError
from course_utils.models.backbone import (
    BACKBONES,
    WEIGHTS,
    describe_backbone,
    load_backbone,
    read_backbone,
    write_backbone,
)
from course_utils.models.create import create_model

NAME = "convnet_small"
FILES = BACKBONES[NAME]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    torch.manual_seed(1)
    model = create_model(NAME, num_classes=3)
    folder = tmp_path_factory.mktemp("weights")
    write_backbone(model, NAME, {"seed": 3}, folder)
    return model, folder


@pytest.fixture
def folder(made, tmp_path):
    """A copy that a test may damage."""
    for path in made[1].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_what_is_written_is_read_in_half_precision_and_without_the_head(made):
    model, folder = made
    state = read_backbone(NAME, folder)
    assert set(model.state_dict()) - set(state) == {"fc.weight", "fc.bias"}
    for name, tensor in state.items():
        expected = model.state_dict()[name]
        assert tensor.dtype == expected.dtype
        expected = expected.half().float() if expected.is_floating_point() else expected
        assert torch.equal(tensor, expected)
    assert describe_backbone(NAME, folder)["seed"] == 3
    assert sorted(os.listdir(folder)) == [f"{FILES}.json", f"{FILES}.safetensors"]


def test_a_network_in_channels_last_is_stored_too(made, tmp_path):
    model, folder = made
    write_backbone(model.to(memory_format=torch.channels_last), NAME, {"seed": 3}, tmp_path)
    kernel = read_backbone(NAME, tmp_path)["layer1.0.conv.weight"]
    assert torch.equal(kernel, read_backbone(NAME, folder)["layer1.0.conv.weight"])


def test_loading_leaves_the_head_as_it_is(made):
    torch.manual_seed(2)
    other = create_model(NAME, num_classes=3)
    head = other.fc.weight.clone()
    load_backbone(other, NAME, made[1])
    assert torch.equal(other.fc.weight, head)
    assert torch.equal(other.stem.conv.weight, read_backbone(NAME, made[1])["stem.conv.weight"])


def test_a_changed_file_is_refused(folder):
    path = folder / f"{FILES}.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CourseError, match=r"sha256 differs\): restore it with `git checkout"):
        read_backbone(NAME, folder)


def test_a_wrong_checksum_is_refused(folder):
    path = folder / f"{FILES}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sha256": "0" * 64}))
    with pytest.raises(CourseError, match="sha256 differs"):
        read_backbone(NAME, folder)


def test_a_file_that_holds_no_weights_is_refused(folder):
    content = b"not weights, whatever the JSON says"
    path = folder / f"{FILES}.safetensors"
    path.write_bytes(content)
    about = {"sha256": hashlib.sha256(content).hexdigest()}
    path.with_suffix(".json").write_text(json.dumps(about))
    with pytest.raises(CourseError, match=r"holds no weights \(.* `git checkout data/weights`"):
        read_backbone(NAME, folder)


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_a_missing_file_names_the_fix(folder, suffix):
    (folder / f"{FILES}.{suffix}").unlink()
    with pytest.raises(CourseError, match=r"missing.* `git checkout data/weights`") as found:
        read_backbone(NAME, folder)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("text", ["{", "[1]", "null", "3"])
def test_a_damaged_description_names_the_fix(folder, text):
    (folder / f"{FILES}.json").write_text(text)
    with pytest.raises(CourseError, match="damaged"):
        read_backbone(NAME, folder)


@pytest.mark.parametrize("name", BACKBONES)
def test_a_committed_backbone_says_how_it_was_made(name):
    about = describe_backbone(name)
    assert {"command", "seed", "data", "versions", "hardware", "commit"} <= set(about)
    assert {"val_accuracy", "val_loss"} & set(about)
    assert about["commit"]
    assert not about["commit"].endswith("+"), "made from files that were never committed"
    assert (WEIGHTS / f"{BACKBONES[name]}.safetensors").stat().st_size <= 4 * 2**20


def probe(model, data):
    """Accuracy of a linear classifier, found by least squares, on a network's features."""
    model.eval().fc = torch.nn.Identity()
    parts = []
    with torch.no_grad():
        for images in (data.train, data.val):
            batches = [(model(x), y) for x, y in data.eval_loader(images)]
            features, targets = (torch.cat(part) for part in zip(*batches, strict=True))
            parts.append((torch.cat([features, torch.ones(len(features), 1)], 1), targets))
    (train, targets), (val, expected) = parts
    onehot = torch.nn.functional.one_hot(targets, data.num_classes).float()
    ridge = train.T @ train + train.square().mean() * torch.eye(train.shape[1])
    answers = val @ torch.linalg.solve(ridge, train.T @ onehot)
    return (answers.argmax(dim=1) == expected).float().mean().item()


def test_the_committed_backbone_has_learned_features():
    """They separate classes better than random ones, on photographs that it has not seen."""
    config = load_config("smoke", dataset="photos").replace(num_train=600, num_val=300)
    data = load_data(config)
    torch.manual_seed(0)
    pretrained = probe(create_model(NAME, num_classes=10, pretrained=True), data)
    random = probe(create_model(NAME, num_classes=10), data)
    assert pretrained > 0.5
    assert pretrained > random + 0.1


def test_pretrained_differs_from_random_in_all_but_the_head():
    torch.manual_seed(0)
    random = create_model(NAME, num_classes=7).state_dict()
    torch.manual_seed(0)
    pretrained = create_model(NAME, num_classes=7, pretrained=True).state_dict()
    same = {name for name in random if torch.equal(random[name], pretrained[name])}
    assert same == {"fc.weight", "fc.bias"}
