"""The roofline of this machine, and where the layers of a network lie below it.

A layer that does few operations for each byte that it reads or writes cannot be faster than memory
allows; one that does many cannot be faster than the arithmetic units. The two lines meet at the
*ridge*. Source: S. Williams, A. Waterman and D. Patterson, Roofline: An Insightful Visual
Performance Model for Multicore Architectures, 2009.
"""

import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from course_utils.measure.timing import time_calls

__all__ = ["Placed", "Roofline", "count_bytes", "count_flops", "measure_roofline", "place_layers"]

COPY_BYTES = 256 * 2**20  # of the tensor that is copied
SIDE = 2048  # of the square matrices that are multiplied
REPEATS = 7  # timed forward passes, after two to warm up
CPU = torch.device("cpu")

# Operations for each element of the output, by rough count: products and sums are what
# `FlopCounterMode` counts, and of all other layers only the order of magnitude matters here.
PER_ELEMENT: dict[type[nn.Module], int] = {
    nn.ReLU: 1,
    nn.BatchNorm2d: 5,  # mean, variance, subtract, scale, shift
    nn.LayerNorm: 5,
    nn.MaxPool2d: 4,  # one comparison for each pixel of a window of 2 × 2
    nn.AdaptiveMaxPool2d: 1,
    nn.Embedding: 0,
    nn.Flatten: 0,
}


class Roofline(NamedTuple):
    """Bytes per second of a copy, read and written together; FLOP per second of a product."""

    bytes_per_s: float
    flops_per_s: float

    @property
    def ridge(self) -> float:
        """FLOP per byte at which both limits are equal."""
        return self.flops_per_s / self.bytes_per_s

    def limit(self, intensity: float) -> float:
        """The most FLOP per second that a layer with so many FLOP per byte can reach."""
        return min(self.flops_per_s, intensity * self.bytes_per_s)


class Placed(NamedTuple):
    """A layer of a network, with what one forward pass of it takes.

    Args:
        name: in the model.
        kind: of its class.
        flops: operations, see `count_flops`.
        bytes: read and written at least, see `count_bytes`.
        seconds: median of warm passes.
    """

    name: str
    kind: str
    flops: int
    bytes: int
    seconds: float

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes

    @property
    def flops_per_s(self) -> float:
        return self.flops / self.seconds

    def is_bound_by_memory(self, roofline: Roofline) -> bool:
        return self.intensity < roofline.ridge


def measure_roofline(
    dtype: torch.dtype = torch.float32, copy_bytes: int = COPY_BYTES, side: int = SIDE
) -> Roofline:
    """Measure both limits of this machine, with as many threads as PyTorch has now.

    The copy goes into memory that is already there. A copy into new memory is slower on some
    systems, which have to provide its pages first.

    Args:
        dtype: of the matrices.
        copy_bytes: of the tensor that is copied: more than the caches hold.
        side: n of the product of two n × n matrices, which has 2 n³ operations.
    """
    source, target = (torch.ones(copy_bytes // 4) for _ in range(2))
    a, b, out = (torch.ones(side, side, dtype=dtype) for _ in range(3))
    copy_s = time_calls(partial(target.copy_, source), CPU) / 1000
    product_s = time_calls(partial(torch.mm, a, b, out=out), CPU) / 1000
    return Roofline(2 * source.nbytes / copy_s, 2 * side**3 / product_s)


def count_flops(layer: nn.Module, inputs: Sequence[Tensor], output: Tensor) -> int:
    """Operations of one forward pass of a layer; a product and a sum are two.

    A convolution computes each output from ``in_channels / groups × kernel`` products, a linear
    layer from ``in_features``. For other layers see ``PER_ELEMENT``.

    Raises:
        ValueError: a kind of layer that has no rule.
    """
    if isinstance(layer, nn.Conv2d):
        products = layer.weight[0].numel()  # (in_channels / groups) × kernel
        return 2 * output.numel() * products
    if isinstance(layer, nn.Linear):
        return 2 * output.numel() * layer.in_features
    if type(layer) in PER_ELEMENT:
        return PER_ELEMENT[type(layer)] * output.numel()
    raise ValueError(f"no rule for {type(layer).__name__}: add it to PER_ELEMENT")


def count_bytes(layer: nn.Module, inputs: Sequence[Tensor], output: Tensor) -> int:
    """Bytes that a layer has to move at least: inputs and weights read, the output written, once.

    Of an embedding only the rows that are looked up are read.
    """
    moved = sum(x.nbytes for x in inputs) + output.nbytes
    if isinstance(layer, nn.Embedding):
        return moved + output.nbytes
    return moved + sum(p.nbytes for p in layer.parameters())


def list_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The layers that hold no others, by name."""
    return {name: layer for name, layer in model.named_modules() if not list(layer.children())}


def place_layers(model: nn.Module, batch: Tensor, repeats: int = REPEATS) -> list[Placed]:
    """Operations, bytes and seconds of each layer in a forward pass, without gradients.

    Functions that are no layers, such as attention's softmax or a sum of two branches, are not
    seen by hooks and do not count. The model is in the mode that it is in.

    Args:
        model: of layers that `count_flops` knows, each of which is called once.
        batch: its input.
        repeats: forward passes, whose median is taken.

    Raises:
        ValueError: a layer without a rule.
    """
    starts: dict[str, float] = {}
    seconds: dict[str, list[float]] = {}
    counts: dict[str, tuple[int, int]] = {}

    def begin(name: str, *_) -> None:
        starts[name] = time.perf_counter()

    def end(name: str, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seconds.setdefault(name, []).append(time.perf_counter() - starts[name])
        counts[name] = count_flops(layer, inputs, output), count_bytes(layer, inputs, output)

    layers = list_layers(model)
    hooks = []
    for name, layer in layers.items():
        hooks.append(layer.register_forward_pre_hook(partial(begin, name)))
        hooks.append(layer.register_forward_hook(partial(end, name)))
    try:
        with torch.no_grad():
            for _ in range(repeats + 2):
                model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return [
        Placed(name, type(layers[name]).__name__, *counts[name], statistics.median(times[2:]))
        for name, times in seconds.items()
    ]
