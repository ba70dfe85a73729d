"""A fault of quantization, for the parity check to find."""

import copy

import torch
from torch import nn

__all__ = ["scale_wrong_axis"]


@torch.no_grad()
def scale_wrong_axis(model: nn.Module) -> nn.Module:
    """A copy with convolutions in int8 whose scales are multiplied along the wrong dimension.

    The whole numbers are right, with one scale for each output channel. Then the scales of the
    outputs are multiplied along the inputs. Only weights with as many inputs as outputs are
    changed, because only there no shape complains.
    """
    wrong = copy.deepcopy(model)
    for module in wrong.modules():
        if isinstance(module, nn.Conv2d) and module.in_channels == module.out_channels:
            scales = module.weight.abs().amax(dim=(1, 2, 3)) / 127  # (O,)
            numbers = (module.weight / scales.view(-1, 1, 1, 1)).round()
            module.weight.copy_(numbers * scales.view(1, -1, 1, 1))
    return wrong
