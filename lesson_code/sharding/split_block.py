"""Tensor parallelism by hand: a transformer block of which every rank has a part.

Source: M. Shoeybi et al., Megatron-LM, 2019, https://arxiv.org/abs/1909.08053; the sequence form is
V. Korthikanti et al., Reducing Activation Recomputation, 2022, https://arxiv.org/abs/2205.05198.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from course_utils.models.text_small import Block

__all__ = ["Copy", "Gather", "Scatter", "SplitBlock", "Sum"]


class Copy(torch.autograd.Function):
    """Forward: nothing. Backward: the sum of what the parts of all ranks want of the input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient


class Sum(torch.autograd.Function):
    """Forward: the sum of what all ranks have computed. Backward: nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def _gather_tokens(x: Tensor) -> Tensor:  # (N, T / n, D) -> (N, T, D)
    ranks = dist.get_world_size()
    parts = x.new_empty(ranks * len(x), *x.shape[1:])  # (n N, T / n, D)
    dist.all_gather_single(parts, x.contiguous())
    return torch.cat(parts.chunk(ranks), dim=1)


def _scatter_tokens(x: Tensor) -> Tensor:  # (N, T, D) -> (N, T / n, D): a part of the sum
    ranks = dist.get_world_size()
    parts = torch.cat(x.chunk(ranks, dim=1))  # (n N, T / n, D)
    own = parts.new_empty(len(x), *parts.shape[1:])
    dist.reduce_scatter_single(own, parts)
    return own


class Gather(torch.autograd.Function):
    """Forward: the tokens of all ranks. Backward: this rank's tokens of the sum of gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _gather_tokens(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _scatter_tokens(gradient)


class Scatter(torch.autograd.Function):
    """Forward: this rank's tokens of the sum. Backward: the gradients of all tokens."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _scatter_tokens(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _gather_tokens(gradient)


def _take(tensor: Tensor, dim: int, rank: int, ranks: int) -> nn.Parameter:
    """One of ``ranks`` equal parts along a dimension."""
    return nn.Parameter(tensor.detach().chunk(ranks, dim)[rank].clone())


class SplitBlock(nn.Module):
    """Part ``rank`` of a `Block`: its share of the heads and of the wide layer.

    The layers that widen are cut by columns of ``W`` in ``x W``, which are rows of ``weight``, so
    that each rank computes other numbers from the same input. The layers behind them are cut the
    other way, so that the sum over the ranks is their output.

    Args:
        block: the whole one, equal on all ranks.
        rank: whose part this is.
        ranks: a divisor of the number of heads.
        enter: before the layers that are cut; ``Copy.apply``, or ``Gather.apply`` if each rank
            has only its part of the tokens, ``(N, T / ranks, D)`` (sequence parallelism).
        leave: behind them; ``Sum.apply`` or ``Scatter.apply``.

    Raises:
        ValueError: the heads cannot be dealt out.
    """

    def __init__(
        self,
        block: Block,
        rank: int,
        ranks: int,
        enter: Callable[[Tensor], Tensor] = Copy.apply,
        leave: Callable[[Tensor], Tensor] = Sum.apply,
    ):
        super().__init__()
        if block.heads % ranks:
            raise ValueError(f"{block.heads} heads cannot be dealt out to {ranks} ranks")
        self.heads, self.enter, self.leave = block.heads // ranks, enter, leave
        self.columns, self.rows = nn.ParameterDict(), nn.ParameterDict()
        for name in ("q", "k", "v", "up"):
            layer = getattr(block, name)
            self.columns[name] = _take(layer.weight, 0, rank, ranks)
            self.columns[f"{name}_bias"] = _take(layer.bias, 0, rank, ranks)
        for name in ("o", "down"):
            layer = getattr(block, name)
            self.rows[name] = _take(layer.weight, 1, rank, ranks)
        self.whole = nn.ParameterDict()  # the same on all ranks, and small
        for name in ("norm1", "norm2"):
            self.whole[name] = nn.Parameter(getattr(block, name).weight.detach().clone())
            self.whole[f"{name}_bias"] = nn.Parameter(getattr(block, name).bias.detach().clone())
        for name in ("o", "down"):  # added once, behind the sum
            self.whole[f"{name}_bias"] = nn.Parameter(getattr(block, name).bias.detach().clone())

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.whole[name], self.whole[f"{name}_bias"])

    def _column(self, x: Tensor, name: str) -> Tensor:  # (N, T, D) -> (N, T, out / n)
        return F.linear(x, self.columns[name], self.columns[f"{name}_bias"])

    def _row(self, x: Tensor, name: str) -> Tensor:  # (N, T, in / n) -> (N, T, D)
        return self.leave(F.linear(x, self.rows[name])) + self.whole[f"{name}_bias"]

    def attend(self, x: Tensor, mask: Tensor) -> Tensor:
        """What attention adds: ``x`` ``(N, T, D)``, or this rank's tokens."""
        normed = self.enter(self._norm(x, "norm1"))
        q, k, v = (
            self._column(normed, name).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for name in ("q", "k", "v")
        )  # (N, H / n, T, D / H)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self._row(seen.transpose(1, 2).flatten(2), "o")

    def widen(self, x: Tensor) -> Tensor:
        """What the two linear layers add."""
        normed = self.enter(self._norm(x, "norm2"))
        return self._row(F.gelu(self._column(normed, "up")), "down")

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """As `Block`: ``x`` ``(N, T, D)``, ``mask`` ``(N, 1, 1 or T, T)``."""
        x = x + self.attend(x, mask)
        return x + self.widen(x)
