"""Networks in int8, preprocessing, pruning and distillation of lesson 24."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_utils.data.tokens import END
from course_utils.models.create import create_model
from course_utils.models.text_small import PADDING
from lesson_code.deployment.planted import scale_wrong_axis
from lesson_code.deployment.preprocessing import AS_TRAINED, list_image_faults, list_text_faults
from lesson_code.deployment.quantized import (
    count_file_bytes,
    find_missing_engine,
    quantize_convolutions,
    quantize_linear,
    round_weights,
)
from lesson_code.deployment.smaller import Distillation, make_student, prune_smallest

needs_int8 = pytest.mark.skipif(bool(find_missing_engine()), reason="no int8 kernels here")
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return create_model("convnet_small", 10, pretrained=True).eval()


@pytest.fixture(scope="module")
def reader():
    torch.manual_seed(0)
    return create_model("text_small", 10, pretrained=True).eval()


def find_error(one, other, inputs):
    """Of the logits, as a part of their spread."""
    with torch.inference_mode():
        exact = other(inputs)
        return ((one(inputs) - exact).std() / exact.std()).item()


@needs_int8
@pytest.mark.parametrize("per_channel", [True, False])
def test_convolutions_in_int8_compute_nearly_the_same(network, per_channel):
    inputs = torch.randn(64, 3, 32, 32)
    small = quantize_convolutions(network, inputs.split(16), per_channel)
    assert 0 < find_error(small, network, inputs) < 0.1
    assert count_file_bytes(small) < 0.27 * count_file_bytes(network)
    kinds = {type(module).__module__ for module in small.modules()}
    assert any("quantized" in kind for kind in kinds)
    is_per_channel = small.fc.weight().qscheme() == torch.per_channel_affine
    assert is_per_channel == per_channel


@needs_int8
def test_a_linear_layer_in_int8_needs_no_calibration(reader):
    tokens = torch.randint(4, 4096, (16, 12))
    small = quantize_linear(reader)
    assert 0 < find_error(small, reader, tokens) < 0.1
    smallest = quantize_linear(reader, embeddings=["tokens"])
    assert 0 < find_error(smallest, reader, tokens) < 0.1
    sizes = [count_file_bytes(model) for model in (smallest, small, reader)]
    assert sizes[0] < 0.3 * sizes[2] < sizes[1] < 0.6 * sizes[2]


@needs_int8
def test_the_network_itself_stays_as_it_was(network):
    before = copy.deepcopy(network.state_dict())
    quantize_convolutions(network, [torch.randn(8, 3, 32, 32)])
    quantize_linear(network)
    round_weights(network, 4)
    prune_smallest(network, 0.5)
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])


def test_weights_of_few_bits_have_few_values():
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Linear(50, 3))
    with torch.no_grad():
        layer[0].weight[1] *= 100
    for bits, count in ((2, 3), (3, 7), (8, 255)):
        rounded = round_weights(layer, bits)[0].weight
        assert all(len(row.unique()) <= count for row in rounded)
        scale = layer[0].weight.abs().amax(dim=1, keepdim=True) / (count // 2)
        error = (rounded - layer[0].weight).abs()
        assert (error <= scale / 2 * 1.001).all()
    together = round_weights(layer, 8, per_channel=False)[0].weight
    assert len(together[0].unique()) < len(round_weights(layer, 8)[0].weight[0].unique())
    assert torch.equal(round_weights(layer, 8)[0].bias, layer[0].bias)


def test_scales_of_the_wrong_axis_are_those_of_the_outputs_along_the_inputs():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 2, 1, bias=False), nn.Conv2d(2, 3, 1, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.27, 0.5], [2.0, 12.7]]).view(2, 2, 1, 1))
    wrong = scale_wrong_axis(model)
    expected = torch.tensor([[1.27, 5.0], [0.2, 12.7]]).view(2, 2, 1, 1)
    torch.testing.assert_close(wrong[0].weight, expected)
    assert torch.equal(wrong[1].weight, model[1].weight), "its shapes would complain"
    right = round_weights(model, 8)
    torch.testing.assert_close(right[0].weight, model[0].weight)


def test_a_weight_of_zeros_stays_one():
    layer = nn.Sequential(nn.Linear(4, 2, bias=False))
    nn.init.zeros_(layer[0].weight)
    assert torch.equal(round_weights(layer, 8)[0].weight, layer[0].weight)


def test_faults_of_preprocessing_are_what_they_are_called():
    faults = list_image_faults(MEAN, STD)
    pixels = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    found = {name: fault(pixels) for name, fault in faults.items()}
    mean, std = (torch.tensor(x).view(3, 1, 1) for x in (MEAN, STD))
    right = (pixels / 255 - mean) / std
    torch.testing.assert_close(found.pop(AS_TRAINED), right)
    torch.testing.assert_close(found["BGR"], (pixels.flip(1) / 255 - mean) / std)
    torch.testing.assert_close(found["not normalised"] * 255, pixels.float())
    torch.testing.assert_close(found["not divided by 255"], (pixels - mean) / std)
    torch.testing.assert_close(found["rows and columns swapped"], right.mT)
    for name, images in found.items():
        assert images.shape == right.shape, name
        assert images.dtype == torch.float32, name
        assert not torch.allclose(images, right, atol=0.01), name


def test_one_colour_survives_every_resize():
    pixels = torch.full((1, 3, 32, 32), 100, dtype=torch.uint8)
    faults = list_image_faults(MEAN, STD)
    for name in ("resized to 36, middle 32", "sent at half the size"):
        torch.testing.assert_close(faults[name](pixels), faults[AS_TRAINED](pixels))


def test_faults_of_texts_are_what_they_are_called():
    texts = [np.array([5, 6, 7, END]), np.array([4095, END])]
    found = {name: fault(texts).tolist() for name, fault in list_text_faults().items()}
    assert found[AS_TRAINED] == [[5, 6, 7, END], [4095, END, PADDING, PADDING]]
    assert found["no [END]"] == [[5, 6, 7], [4095, PADDING, PADDING]]
    assert found["padded with [END]"] == [[5, 6, 7, END], [4095, END, END, END]]
    assert found["padded in front"] == [[5, 6, 7, END], [PADDING, PADDING, 4095, END]]
    assert found["token numbers plus one"] == [[6, 7, 8, 3], [4095, 3, PADDING, PADDING]]
    long = list_text_faults()["cut after 8 tokens"]([np.arange(1, 20)])
    assert long.tolist() == [list(range(1, 9))]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_pruning_takes_the_smallest_weights_of_the_whole_network(share):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 20), nn.BatchNorm1d(20), nn.Linear(20, 5))
    with torch.no_grad():
        model[2].weight *= 10
    pruned = prune_smallest(model, share)
    kept = torch.cat([pruned[n].weight.flatten() != 0 for n in (0, 2)])
    sizes = torch.cat([model[n].weight.detach().abs().flatten() for n in (0, 2)])
    assert kept.float().mean().item() == pytest.approx(1 - share, abs=0.01)
    if share:
        assert sizes[kept].min() > sizes[~kept].max()
    assert torch.equal(pruned[1].weight, model[1].weight)
    assert torch.equal(pruned[0].bias, model[0].bias)


def test_the_student_has_a_sixteenth_of_the_weights(network):
    student = make_student(10)
    assert student(torch.randn(2, 3, 32, 32)).shape == (2, 10)
    count = [sum(p.numel() for p in model.parameters()) for model in (network, student)]
    assert 14 < count[0] / count[1] < 18


def test_distillation_is_the_cross_entropy_of_both_at_the_temperature():
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.9)).train()
    distillation = Distillation(teacher, temperature=2.0)
    inputs, logits = torch.randn(5, 4), torch.randn(5, 3, requires_grad=True)
    same, targets = distillation(inputs, torch.zeros(5, dtype=torch.long))
    assert same is inputs
    assert not targets.requires_grad
    expected = (teacher[0](inputs) / 2).softmax(dim=1)
    torch.testing.assert_close(targets, expected)
    (gradient,) = torch.autograd.grad(distillation.loss(logits, targets), logits)
    by_hand = 2 * ((logits / 2).softmax(dim=1) - targets) / 5  # T² · 1/T · difference / N
    torch.testing.assert_close(gradient, by_hand.detach())
    off = Distillation(teacher, temperature=1.0)
    hard = F.one_hot(torch.tensor([0, 1, 2, 0, 1]), 3).float()
    plain = F.cross_entropy(logits, hard.argmax(dim=1))
    torch.testing.assert_close(off.loss(logits, hard), plain)
