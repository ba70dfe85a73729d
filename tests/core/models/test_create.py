import pytest
import torch

from course_utils.errors import CourseError
from course_utils.measure.memory import count_parameters
from course_utils.models.create import create_model


@pytest.mark.parametrize(
    "name",
    ["convnet_small", "vgg_tiny", "airbench94", "airbench94_half", "resnet18", "timm/resnet10t"],
)
def test_images_become_logits(name):
    logits = create_model(name, num_classes=7)(torch.zeros(2, 3, 32, 32))
    assert logits.shape == (2, 7)


@pytest.mark.parametrize("name", ["resnet19", "timm/resnet_nineteen", ""])
def test_unknown_model(name):
    with pytest.raises(CourseError, match="no model"):
        create_model(name, num_classes=10)


@pytest.mark.parametrize(("name", "near"), [("resnetx", "resnet"), ("xyz", "timm.list_models")])
def test_names_near_an_unknown_model_of_timm(name, near):
    with pytest.raises(CourseError, match=rf"no model {name!r} \(some near: {near}"):
        create_model(f"timm/{name}", num_classes=10)


@pytest.mark.parametrize(
    ("name", "download"),
    [
        ("resnet18", "torchvision.models._api.load_state_dict_from_url"),
        ("timm/resnet10t", "timm.models._builder.load_state_dict_from_hf"),
    ],
)
def test_weights_that_cannot_be_downloaded(monkeypatch, name, download):
    def refuse(*args, **kwargs):
        raise OSError("no network\nand a long story")

    monkeypatch.setattr(download, refuse)
    with pytest.raises(CourseError, match=r"could not be fetched \(no network\): connect") as found:
        create_model(name, num_classes=10, pretrained=True)
    assert "\n" not in str(found.value)


def test_a_plain_stack_halves_the_side_in_its_stem_and_in_each_stage():
    convolutions = create_model("vgg_tiny", num_classes=10)[:-3]
    assert convolutions(torch.zeros(1, 3, 32, 32)).shape == (1, 256, 2, 2)


@pytest.mark.parametrize("name", ["vgg_tiny", "airbench94_half"])
def test_networks_for_trainings_from_scratch_have_no_pretrained_weights(name):
    with pytest.raises(CourseError, match=f"{name} has no pretrained weights: use convnet_small"):
        create_model(name, num_classes=10, pretrained=True)


def test_convnet_small_has_named_stages_and_the_size_it_promises():
    model = create_model("convnet_small", num_classes=10)
    names = [name for name, _ in model.named_children()]
    assert names == ["stem", "layer1", "layer2", "layer3", "layer4", "global_pool", "fc"]
    assert count_parameters(model) == 1_572_810
    sizes, x = [], torch.zeros(2, 3, 32, 32)
    for name in names[:5]:
        x = getattr(model, name)(x)
        sizes.append(tuple(x.shape[1:]))
    assert sizes == [(32, 16, 16), (64, 8, 8), (128, 4, 4), (256, 2, 2), (256, 2, 2)]


def test_checkpointed_convnet_small_has_the_same_gradients():
    torch.manual_seed(0)
    model = create_model("convnet_small", num_classes=3).train()
    images = torch.randn(4, 3, 32, 32)
    gradients = []
    for enable in (False, True):
        model.set_grad_checkpointing(enable)
        model.zero_grad()
        model(images).square().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(checkpointed, plain)
