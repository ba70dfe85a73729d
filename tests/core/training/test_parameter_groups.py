from functools import partial

import pytest
import torch
from timm.optim import param_groups_layer_decay, param_groups_weight_decay

from course_utils.models import create_model
from course_utils.training.parameter_groups import group_parameters, make_grouped


@pytest.fixture(scope="module")
def named():
    return list(create_model("convnet_small", 10).named_parameters())


def rates(groups):
    return {name: group["lr"] for group in groups for name, _ in group["params"]}


def decays(groups):
    return {name: group["weight_decay"] for group in groups for name, _ in group["params"]}


def test_with_nothing_asked_for_all_parameters_are_alike(named):
    groups = group_parameters(named, lr=0.1)
    assert set(rates(groups).values()) == {0.1}
    assert set(decays(groups).values()) == {0.0}
    assert [name for group in groups for name, _ in group["params"]] == [name for name, _ in named]


def test_norms_and_biases_are_left_out_of_decay_as_in_timm(named):
    model = create_model("convnet_small", 10)
    parts = param_groups_weight_decay(model, weight_decay=0.05)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    theirs = {names[id(p)]: part["weight_decay"] for part in parts for p in part["params"]}
    assert decays(group_parameters(named, lr=1, weight_decay=0.05, decay_norms=False)) == theirs


def test_layer_decay_has_the_factors_of_timm():
    """timm decays from the head by groups of its own; for a ViT these are our children's."""
    model = torch.nn.Sequential()
    model.add_module("stem", torch.nn.Linear(2, 2))
    model.add_module("layer1", torch.nn.Linear(2, 2))
    model.add_module("fc", torch.nn.Linear(2, 2))
    model.group_matcher = lambda coarse: {"stem": r"^stem", "blocks": [(r"^layer1", None)]}
    parts = param_groups_layer_decay(model, weight_decay=0, layer_decay=0.5)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    theirs = {names[id(p)]: part["lr_scale"] for part in parts for p in part["params"]}
    assert rates(group_parameters(list(model.named_parameters()), lr=1, layer_decay=0.5)) == theirs


def test_the_head_has_a_learning_rate_of_its_own(named):
    found = rates(group_parameters(named, lr=0.1, head_lr=1.0, layer_decay=0.5))
    assert found["fc.weight"] == found["fc.bias"] == 1.0
    assert found["layer4.0.conv1.weight"] == pytest.approx(0.05)
    assert found["layer3.0.conv.weight"] == pytest.approx(0.025)


def test_it_is_one_argument_for_any_optimizer(named):
    make = partial(make_grouped, partial(torch.optim.SGD, momentum=0.9), lr=0.1, head_lr=0.5)
    optimizer = make(named)
    assert {group["lr"] for group in optimizer.param_groups} == {0.1, 0.5}
    assert all(group["momentum"] == 0.9 for group in optimizer.param_groups)
    assert optimizer.param_groups[-1]["param_names"] == ["fc.weight", "fc.bias"]


@pytest.mark.parametrize("bad", [{"layer_decay": 0}, {"layer_decay": 1.1}])
def test_a_factor_outside_its_range(named, bad):
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        group_parameters(named, lr=1, **bad)
    with pytest.raises(ValueError, match="give one parameter"):
        group_parameters([], lr=1)
