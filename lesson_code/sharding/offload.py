"""AdamW whose state lies in the CPU's memory, and when the batch should grow with it."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from lesson_code.sharding.memory import (
    BF16_MIXED,
    CARD,
    LINKS,
    Card,
    Format,
    Shape,
    estimate_activations,
)


class OffloadedAdamW:
    """AdamW that keeps a copy of the weights, and its state, in the memory of the CPU.

    In each step the gradients come down and the new weights go up again; ``moved_bytes`` counts
    both. On a GPU its memory then holds neither the state nor the copy.

    Args:
        parameters: on any device.
        options: of `torch.optim.AdamW`.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], **options: float):
        self.parameters = list(parameters)
        self.copies = [nn.Parameter(p.detach().cpu().clone()) for p in self.parameters]
        self.optimizer = AdamW(self.copies, **options)  # type: ignore[arg-type]
        self.moved_bytes = 0

    def _move(self, source: Tensor, target: Tensor) -> None:
        target.copy_(source)
        self.moved_bytes += source.nbytes

    @torch.no_grad()
    def step(self) -> None:
        """One step of all parameters that have a gradient."""
        pairs = list(zip(self.parameters, self.copies, strict=True))
        for parameter, copy in pairs:
            copy.grad = None
            if parameter.grad is not None:
                copy.grad = torch.empty_like(copy)
                self._move(parameter.grad, copy.grad)
        self.optimizer.step()
        for parameter, copy in pairs:
            if copy.grad is not None:
                self._move(copy, parameter)


# ---- When should the batch grow?

MICRO_BATCH = 2048  # tokens whose activations are on the device at once


class Plan(NamedTuple):
    """A training on one device, as predicted."""

    fits: bool
    share: float  # of a step in which bytes cross the link
    tokens_per_s: float


def count_state(parameters: int, offload: bool, formats: Format = BF16_MIXED) -> int:
    """Bytes of the training state on the device; offloaded, the optimizer state is not there."""
    return parameters * (sum(formats) - (formats.optimizer_state if offload else 0))


def plan_tokens(
    shape: Shape, tokens: int, offload: bool, link: float = LINKS["PCIe 5"], card: Card = CARD
) -> Plan:
    """What a step with so many tokens takes, in micro-batches of `MICRO_BATCH` tokens.

    Gradients go down and weights come back, 2 bytes per parameter each, whatever the batch is.
    They are not overlapped with the computation, and the step of the CPU is not counted.

    Args:
        tokens: of all micro-batches of a step together.
        link: bytes per second between the device and the CPU's memory, in one direction.
    """
    activations = estimate_activations(shape, min(tokens, MICRO_BATCH), checkpointed=True)
    fits = count_state(shape.parameters, offload) + activations <= card.memory_bytes
    # recomputed activations take one more forward pass: 8 operations per parameter and token
    compute_s = 8 * shape.parameters * tokens / card.flop_per_s
    moved = shape.parameters * (BF16_MIXED.gradients + BF16_MIXED.weights)
    link_s = moved / link if offload else 0.0
    return Plan(fits, link_s / (compute_s + link_s), tokens / (compute_s + link_s))
