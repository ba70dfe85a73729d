import pytest
import torch
from torch import nn

from course_utils.measure.memory import count_parameters
from course_utils.models.airbench import WIDTHS, make_airbench94, whiten_stem
from course_utils.models.create import create_model


def correlated_images(count):
    """Neighbours resemble each other, in space and between colours, as in photographs."""
    noise = torch.randn(count, 3, 34, 34, generator=torch.Generator().manual_seed(0))
    smooth = nn.functional.avg_pool2d(noise, kernel_size=3, stride=1)
    return smooth + smooth.mean(dim=1, keepdim=True)


def test_parameters_as_published():
    """1.97 million: convolutions, their stem, biases of the norms, and the last layer."""
    first, second, third = WIDTHS["airbench94"]
    convolutions = [(24, first), (first, first), (first, second), (second, second)]
    convolutions += [(second, third), (third, third)]
    expected = sum(9 * inputs * outputs for inputs, outputs in convolutions)
    expected += 2 * (first + second + third)  # biases of the norms
    expected += 10 * third + 24 * 3 * 4 + 24  # the last layer, the stem
    model = create_model("airbench94", num_classes=10)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert trained == expected
    assert round(count_parameters(model) / 1e6, 2) == 1.97


def test_convolutions_begin_as_the_identity():
    layer = create_model("airbench94_half", num_classes=10).layer2
    images = torch.randn(2, 32, 9, 9)
    assert torch.allclose(layer.conv1(images)[:, :32], images, atol=1e-6)
    assert not torch.allclose(layer.conv1(images)[:, 32:64], images, atol=0.1)


def test_the_outputs_of_a_whitened_stem_are_uncorrelated():
    images = correlated_images(64)
    network = whiten_stem(make_airbench94(10, WIDTHS["airbench94_half"]), images, eps=0.0)
    outputs = network.stem.conv(images).transpose(0, 1).flatten(1)
    positive, negative = outputs[:12], outputs[12:]
    assert torch.allclose(positive, -negative, atol=1e-4)
    second_moments = positive @ positive.T / positive.shape[1]
    assert torch.allclose(second_moments, torch.eye(12), atol=1e-2)
    plain = make_airbench94(10, WIDTHS["airbench94_half"]).stem.conv(images)
    plain = plain.transpose(0, 1).flatten(1)
    assert not torch.allclose(plain @ plain.T / plain.shape[1], torch.eye(24), atol=1e-1)


def test_whitening_fixes_the_weights_and_leaves_the_bias():
    network = whiten_stem(make_airbench94(10, (4, 8, 8)), correlated_images(8))
    assert not network.stem.conv.weight.requires_grad
    assert network.stem.conv.bias.requires_grad
    assert torch.isfinite(network(torch.randn(2, 3, 32, 32))).all()


def test_directions_that_never_vary_are_not_amplified_without_bound():
    grey = correlated_images(8).mean(dim=1, keepdim=True).expand(-1, 3, -1, -1)
    network = whiten_stem(make_airbench94(10, (4, 8, 8)), grey, eps=5e-4)
    assert network.stem.conv.weight.abs().max() < 5e-4**-0.5


@pytest.mark.parametrize(
    ("network", "error"),
    [
        (nn.Sequential(nn.Conv2d(3, 24, 2)), AttributeError),
        (nn.Sequential(), AttributeError),
        (create_model("vgg_tiny", 10), AttributeError),
    ],
)
def test_only_a_network_with_this_stem_is_whitened(network, error):
    with pytest.raises(error):
        whiten_stem(network, correlated_images(2))
