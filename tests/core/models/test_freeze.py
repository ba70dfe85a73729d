import copy

import pytest
import timm
import torch
import torch.nn.functional as F

from course_utils.errors import CourseError
from course_utils.measure.memory import count_parameters, count_saved_bytes
from course_utils.models.create import create_model
from course_utils.models.freeze import freeze_before
from course_utils.training.fit import fit

CHILDREN = ["stem", "layer1", "layer2", "layer3", "layer4", "fc"]


@pytest.fixture(scope="module")
def model():
    return create_model("convnet_small", num_classes=10)


@pytest.fixture(scope="module")
def batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(8, 3, 32, 32, generator=generator), torch.arange(8)


def take_step(model, batch):
    model.train()
    images, targets = batch
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.01)
    with count_saved_bytes(model) as saved:
        loss = F.cross_entropy(model(images), targets)
    loss.backward()
    optimizer.step()
    return saved.total


def test_null_from_the_first_child_nothing_is_frozen(model, batch):
    plain, unfrozen = copy.deepcopy(model), freeze_before(copy.deepcopy(model), "stem")
    assert take_step(plain, batch) == take_step(unfrozen, batch)
    pairs = zip(plain.state_dict().values(), unfrozen.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("first_trained", CHILDREN[1:])
def test_frozen_children_stay_and_the_others_learn(model, batch, first_trained):
    frozen = freeze_before(copy.deepcopy(model), first_trained)
    before = copy.deepcopy(frozen.state_dict())
    take_step(frozen, batch)
    after = frozen.state_dict()
    names = [name for name, _ in frozen.named_children()]
    for name, child in frozen.named_children():
        keys = [f"{name}.{key}" for key in child.state_dict()]
        moved = [key for key in keys if not torch.equal(before[key], after[key])]
        if names.index(name) < names.index(first_trained):
            assert moved == []
        else:
            assert moved == keys


def test_frozen_or_not_an_evaluated_model_is_the_same(model, batch):
    model = copy.deepcopy(model)
    take_step(model, batch)  # running statistics that are not 0 and 1
    expected = model.eval()(batch[0])
    found = freeze_before(copy.deepcopy(model), "fc").train()(batch[0])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_memory_and_trainable_parameters_fall_with_the_frozen_depth(model, batch):
    saved, trainable = [], []
    for first_trained in CHILDREN:
        frozen = freeze_before(copy.deepcopy(model), first_trained)
        trainable.append(count_parameters(frozen, trainable=True))
        saved.append(take_step(frozen, batch))
    for figures in (saved, trainable):
        assert figures == sorted(figures, reverse=True)
        assert len(set(figures)) == len(figures)


def test_an_unknown_child_is_named_beside_those_there_are(model):
    with pytest.raises(CourseError, match=r"no child 'layer9' to train from: use stem, .*fc"):
        freeze_before(model, "layer9")


def test_it_fits_the_model_seam(tiny_config, tiny_data):
    run = fit(
        tiny_config,
        tiny_data,
        pretrained=True,
        model_transform=lambda model: freeze_before(model, "fc"),
    )
    assert run.trainable_parameters == count_parameters(run.model.fc) == 256 * 10 + 10


def test_the_positions_of_a_transformer_are_frozen_too(batch):
    size = {"img_size": 32, "patch_size": 8, "depth": 2, "num_classes": 10}
    vit = timm.create_model("vit_tiny_patch16_224", **size)
    whole = take_step(copy.deepcopy(vit), batch)
    frozen = freeze_before(copy.deepcopy(vit), "head")
    assert {name for name, p in frozen.named_parameters() if p.requires_grad} == {
        "head.weight",
        "head.bias",
    }
    assert take_step(frozen, batch) < whole / 10


def test_torchvisions_resnet_is_frozen_alike(batch):
    frozen = freeze_before(create_model("resnet18", num_classes=10), "layer4")
    before = copy.deepcopy(frozen.state_dict())
    take_step(frozen, batch)
    moved = {name for name, x in frozen.state_dict().items() if not torch.equal(x, before[name])}
    assert {name.split(".")[0] for name in moved} == {"layer4", "fc"}
