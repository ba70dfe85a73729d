"""The calculator of lesson 20: bytes on each device, and bytes that it sends.

Bytes of weights, gradients, optimizer state and messages are exact for the units of
`lesson_code.sharding.zero`, and the lesson compares them with those of real ranks. Activations of
large networks are estimates from published numbers, which stand beside them.
"""

from collections.abc import Sequence
from typing import NamedTuple

__all__ = [
    "BF16_MIXED",
    "CARD",
    "FP32",
    "LINKS",
    "OPT",
    "PARTS",
    "WAYS",
    "Card",
    "Format",
    "Shape",
    "count_moment",
    "estimate_activations",
    "held_bytes",
    "sent_bytes",
]

WAYS = ("DDP", "ZeRO 1", "ZeRO 2", "ZeRO 3")  # by their stage, 0 to 3
PARTS = ("weights", "gradients", "optimizer state")
SHARDED_FROM = {"weights": 3, "gradients": 2, "optimizer state": 1}  # the first stage that cuts it


class Format(NamedTuple):
    """Bytes per parameter of each part of the training state."""

    weights: int
    gradients: int
    optimizer_state: int  # AdamW: two running means, and master weights where there are any

    def read(self, part: str) -> int:
        """Of one of `PARTS`."""
        return self[PARTS.index(part)]


FP32 = Format(4, 4, 8)
# fp16 or bf16 weights and gradients, and in fp32 master weights and two running means:
# S. Rajbhandari et al., ZeRO, 2020, section 3.1
BF16_MIXED = Format(2, 2, 12)


def pad(numbers: int, ranks: int) -> int:
    """The length of a vector of so many numbers that is cut into equal parts."""
    return -(-numbers // ranks) * ranks


def held_bytes(
    units: Sequence[int],
    stage: int,
    ranks: int,
    formats: Format = FP32,
    frozen: int = 0,
) -> dict[str, int]:
    """Bytes that one rank holds between two steps, by part.

    Args:
        units: trained parameters of each vector that is cut into parts of its own.
        stage: 0 for DDP, or of ZeRO: from 1 on the optimizer state is cut, from 2 on the
            gradients, and with 3 the weights.
        frozen: parameters that are not trained: weights alone. With stage 3 they are cut as one
            more unit.

    >>> held_bytes([100], stage=1, ranks=4)
    {'weights': 400, 'gradients': 400, 'optimizer state': 200}
    """
    divided = stage > 0  # without parts a vector is not padded
    trained = sum(pad(unit, ranks) if divided else unit for unit in units)
    found = {}
    for part in PARTS:
        is_cut = stage >= SHARDED_FROM[part]
        found[part] = formats.read(part) * (trained // ranks if is_cut else trained)
    found["weights"] += formats.weights * (pad(frozen, ranks) // ranks if stage == 3 else frozen)
    return found


def count_moment(units: Sequence[int], stage: int, ranks: int, formats: Format = FP32) -> int:
    """Bytes of whole vectors that live for a moment only, at the worst one of a step.

    The last unit is what belongs to no block, and is whole all the time. One block comes on top
    of it: with stage 2 its gradients, with stage 3 its weights and its gradients.
    """
    if stage < 2:
        return 0
    *blocks, rest = (pad(unit, ranks) for unit in units)
    numbers = rest + max(blocks, default=0)
    return numbers * (formats.gradients + (formats.weights if stage == 3 else 0))


def sent_bytes(units: Sequence[int], stage: int, ranks: int, formats: Format = FP32) -> int:
    """Bytes that each rank sends in one step, in rings.

    DDP's all-reduce of the gradients is a reduce-scatter and an all-gather. ZeRO 1 and 2 gather
    the new weights in place of the gradients. ZeRO 3 gathers the weights twice, for the forward
    and for the backward pass. Each of them sends (n − 1) / n of the vector.
    """
    numbers = sum(pad(unit, ranks) if stage else unit for unit in units)
    times = formats.gradients + (2 if stage == 3 else 1) * formats.weights
    if stage == 0:
        times = 2 * formats.gradients
    return times * numbers * (ranks - 1) // ranks


# ---- Large networks: published shapes and speeds, and what follows from them.


class Shape(NamedTuple):
    """A decoder-only transformer."""

    depth: int
    width: int
    vocabulary: int = 50272

    @property
    def block(self) -> int:
        """Parameters of a block, but for biases and norms: 4 matrices of D² and 2 of 4 D²."""
        return 12 * self.width**2

    @property
    def units(self) -> list[int]:
        """Every block, and the embedding, which serves as the output too."""
        return [*self.depth * [self.block], self.vocabulary * self.width]

    @property
    def parameters(self) -> int:
        return sum(self.units)


OPT = {  # S. Zhang et al., OPT: Open Pre-trained Transformer Language Models, 2022, table 1
    "125 M": Shape(12, 768),
    "1.3 B": Shape(24, 2048),
    "6.7 B": Shape(32, 4096),
    "13 B": Shape(40, 5120),
    "30 B": Shape(48, 7168),
    "66 B": Shape(64, 9216),
}


class Card(NamedTuple):
    """A GPU."""

    memory_bytes: float
    flop_per_s: float  # as sustained in training, not the data sheet's


# H100 SXM: 80 GB and 989 TFLOP/s in bf16 by its data sheet; 40 % of it is a usual share in training
CARD = Card(80e9, 0.4 * 989e12)
# Bytes per second in one direction, by data sheet: NVLink 4 has 900 GB/s and PCIe 5 with 16 lanes
# 128 GB/s in both directions together (NVIDIA H100); networks by their name
LINKS = {
    "NVLink 4": 450e9,
    "PCIe 5": 64e9,
    "InfiniBand, 400 Gbit/s": 50e9,
    "Ethernet, 100 Gbit/s": 12.5e9,
    "Ethernet, 10 Gbit/s": 1.25e9,
}


def estimate_activations(shape: Shape, tokens: int, checkpointed: bool) -> int:
    """Bytes that the blocks save for the backward pass, in 16 bits.

    34 bytes per token, layer and number of the width, with an attention that stores no scores; 2
    if each block stores its input alone. Source: V. Korthikanti et al., Reducing Activation
    Recomputation in Large Transformer Models, 2022, equation 2.
    """
    return (2 if checkpointed else 34) * tokens * shape.depth * shape.width
