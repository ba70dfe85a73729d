"""`airbench94`: the network of a published record, for trainings from random weights in minutes."""

from collections import OrderedDict

import torch
from torch import Tensor, nn

__all__ = ["WIDTHS", "make_airbench94", "whiten_stem"]

WIDTHS = {"airbench94": (64, 256, 256), "airbench94_half": (32, 128, 128)}  # channels of the layers

STEM_CHANNELS = 24  # twice the values of a patch: 2 × 3 × 2 × 2
LOGIT_SCALE = 1 / 9


class _Scale(nn.Module):
    """Multiply by a constant: smaller logits, so a slower start."""

    def forward(self, logits: Tensor) -> Tensor:
        return logits * LOGIT_SCALE


def _convolution(in_channels: int, out_channels: int) -> nn.Conv2d:
    """3 × 3, and at first the identity on the channels that come in."""
    layer = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False)
    nn.init.dirac_(layer.weight.data[:in_channels])
    return layer


def _norm(channels: int) -> nn.BatchNorm2d:
    """BatchNorm whose scale is fixed at 1, with a short memory, as the training is short."""
    norm = nn.BatchNorm2d(channels, momentum=0.4)
    norm.weight.requires_grad_(False)
    return norm


def _layer(in_channels: int, out_channels: int) -> nn.Sequential:
    """Two convolutions; the side is halved after the first one."""
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            conv1=_convolution(in_channels, out_channels),
            pool=nn.MaxPool2d(kernel_size=2),
            norm1=_norm(out_channels),
            act1=nn.GELU(),
            conv2=_convolution(out_channels, out_channels),
            norm2=_norm(out_channels),
            act2=nn.GELU(),
        )
    )


def make_airbench94(num_classes: int, widths: tuple[int, int, int]) -> nn.Sequential:
    """Images ``(N, 3, 32, 32)`` to logits ``(N, num_classes)``, by seven convolutions.

    With ``widths`` (64, 256, 256) and a whitened stem (`whiten_stem`) this is the published
    network of 1.97 million parameters. With half of the widths a step takes a third of the time.

    Source: K. Jordan, 94 % on CIFAR-10 in 3.29 Seconds on a Single GPU, 2024, sections 3.1 to 3.3.
    """
    first, second, third = widths
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            stem=nn.Sequential(
                OrderedDict[str, nn.Module](
                    conv=nn.Conv2d(3, STEM_CHANNELS, kernel_size=2), act=nn.GELU()
                )
            ),
            layer1=_layer(STEM_CHANNELS, first),  # (N, 24, 31, 31) -> (N, first, 15, 15)
            layer2=_layer(first, second),  # (N, second, 7, 7)
            layer3=_layer(second, third),  # (N, third, 3, 3)
            global_pool=nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten()),
            fc=nn.Linear(third, num_classes, bias=False),
            scale=_Scale(),
        )
    )


def whiten_stem(network: nn.Sequential, images: Tensor, eps: float = 5e-4) -> nn.Sequential:
    """Fix the stem's weights so that its outputs are uncorrelated on ``images``; change in place.

    The twelve directions are the eigenvectors of the covariance of 2 × 2 patches, divided by the
    root of their variance. Each is there twice, the second time negated, as GELU keeps only one
    sign. The stem's bias starts at 0 and is trained.

    Args:
        network: made by `make_airbench94`.
        images: ``(N, 3, H, W)``, normalised as in training; a few thousand are enough.
        eps: added to the variances, so that directions that hardly vary are not amplified.

    Raises:
        AttributeError: the network has no ``stem.conv``.
        TypeError: it is no convolution with a bias.

    Source: the same, section 3.2; D. Page, How to train your ResNet, 2018.
    """
    stem = network.get_submodule("stem.conv")
    if not isinstance(stem, nn.Conv2d) or stem.bias is None:
        raise TypeError("whiten_stem takes a network of make_airbench94")
    size = stem.kernel_size[0]
    patches = images.unfold(2, size, 1).unfold(3, size, 1)  # (N, 3, H - 1, W - 1, 2, 2)
    patches = patches.permute(0, 2, 3, 1, 4, 5).flatten(0, 2).flatten(1)  # (patches, 12)
    covariance = patches.T @ patches / len(patches)
    variances, directions = torch.linalg.eigh(covariance)  # ascending; a direction is a column
    filters = (directions / (variances + eps).sqrt()).T.flip(0).view(-1, 3, size, size)
    with torch.no_grad():
        stem.weight.copy_(torch.cat([filters, -filters]))
        stem.bias.zero_()
    stem.weight.requires_grad_(False)
    return network
