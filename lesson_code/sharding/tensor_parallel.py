"""A block split over ranks, by hand and by PyTorch: is it the same, and what does it send?"""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from course_utils.models.text_small import Block
from lesson_code.sharding.sent import CountSent, ring_bytes
from lesson_code.sharding.split_block import Gather, Scatter, SplitBlock

__all__ = ["count_parameters_of_rank", "measure", "predict_sent"]

WIDTH, HEADS = 96, 12  # 2, 3 and 4 ranks divide both, and the tokens of a text
TEXTS, TOKENS = 4, 12
ITEM = 8  # bytes of a number, in double precision
CUT_BY_COLUMNS, CUT_BY_ROWS = ("q", "k", "v", "up"), ("o", "down")
PLAN = dict.fromkeys(CUT_BY_COLUMNS, ColwiseParallel) | dict.fromkeys(CUT_BY_ROWS, RowwiseParallel)


def count_parameters_of_rank(width: int, ranks: int) -> int:
    """Numbers of a `Block` that each rank has: matrices are cut, norms and two biases are not.

    >>> [count_parameters_of_rank(width=128, ranks=ranks) for ranks in (1, 2, 4)]
    [198272, 99520, 50144]
    """
    cut = 12 * width**2 + 7 * width  # q, k, v, o, up, down, and the biases of q, k, v, up
    return cut // ranks + 6 * width


def predict_sent(width: int, tokens: int, ranks: int, item: int = ITEM) -> int:
    """Bytes that a rank sends in a forward and a backward pass of one block: four all-reduces.

    Args:
        tokens: of the batch.
        item: bytes of a number.
    """
    return int(4 * ring_bytes("all_reduce", tokens * width * item, ranks))


def _make_inputs() -> tuple[Block, Tensor, Tensor, Tensor]:
    """The block, its input ``(N, T, D)``, the mask, and what the loss weighs the output with."""
    torch.manual_seed(0)
    block = Block(WIDTH, HEADS).double()
    x, weights = torch.randn(2, TEXTS, TOKENS, WIDTH, dtype=torch.float64)
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    return block, x, mask, weights


def _run(run: Callable[[Tensor], Tensor], x: Tensor, weights: Tensor) -> dict[str, Any]:
    """Output, gradient of the input, and what was sent in each pass."""
    x = x.clone().requires_grad_()
    with CountSent() as forward:
        y = run(x)
    with CountSent() as backward:
        (y * weights).sum().backward()
    assert x.grad is not None
    return {"y": y.detach(), "grad": x.grad, "forward": forward, "backward": backward}


def _describe(found: dict[str, Any], gap: float, numbers: int) -> dict[str, Any]:
    passes = {name: found[name] for name in ("forward", "backward")}
    calls = {name: dict(counted.calls) for name, counted in passes.items()}
    sent = sum(counted.total for counted in passes.values())
    return {"gap": gap, "parameters": numbers, "sent_bytes": sent, "calls": calls}


def _gap(one: Tensor, other: Tensor) -> float:
    return (one - other).abs().max().item()


def _compare_parts(part: SplitBlock, block: Block, rank: int, ranks: int) -> float:
    """The largest difference of a gradient of this rank's part from the whole block's."""
    gaps = []
    for group, dim in ((part.columns, 0), (part.rows, 1), (part.whole, None)):
        for name, parameter in group.items():
            layer, _, bias = name.partition("_")
            whole = getattr(getattr(block, layer), bias or "weight").grad
            expected = whole if dim is None else whole.chunk(ranks, dim)[rank]
            gaps.append(_gap(parameter.grad, expected))
    return max(gaps)


def measure(rank: int, size: int, **others: Any) -> dict[str, Any]:
    """One forward and backward pass of a `Block`, whole and split in three ways.

    Args:
        others: arguments of other modules of the same start.

    Returns:
        For "by hand", "with sequence" and "PyTorch's": ``gap``, the largest difference of output
        and gradients from the whole block, ``parameters`` of this rank, ``sent_bytes`` by this
        rank, and ``calls`` of each collective by pass.
    """
    block, x, mask, weights = _make_inputs()
    whole = _run(lambda x: block(x, mask), x, weights)
    found = {}

    part = SplitBlock(block, rank, size)
    ran = _run(lambda x: part(x, mask), x, weights)
    gap = max(_gap(ran[name], whole[name]) for name in ("y", "grad"))
    gap = max(gap, _compare_parts(part, block, rank, size))
    found["by hand"] = _describe(ran, gap, sum(p.numel() for p in part.parameters()))

    part = SplitBlock(block, rank, size, Gather.apply, Scatter.apply)
    own = [tensor.chunk(size, dim=1)[rank] for tensor in (x, weights)]
    ran = _run(lambda x: part(x, mask), *own)
    gap = max(_gap(ran[name], whole[name].chunk(size, 1)[rank]) for name in ("y", "grad"))
    for parameter in part.whole.values():  # each rank has seen its own tokens alone
        dist.all_reduce(parameter.grad)
    gap = max(gap, _compare_parts(part, block, rank, size))
    found["with sequence"] = _describe(ran, gap, sum(p.numel() for p in part.parameters()))
    found["with sequence"]["numbers"] = ran["y"].numel()

    found["PyTorch's"] = _run_library(block, x, mask, weights, whole, size)
    return {"tensor parallel": found}


def _run_library(
    block: Block, x: Tensor, mask: Tensor, weights: Tensor, whole: dict[str, Any], size: int
) -> dict[str, Any]:
    model = copy.deepcopy(block)
    model.zero_grad()
    model.heads //= size  # of the heads, each rank computes its share
    mesh = init_device_mesh("cpu", (size,))
    parallelize_module(model, mesh, {name: style() for name, style in PLAN.items()})
    ran = _run(lambda x: model(x, mask), x, weights)
    gaps = [_gap(ran[name], whole[name]) for name in ("y", "grad")]
    for parameter, expected in zip(model.parameters(), block.parameters(), strict=True):
        gradient, right = parameter.grad, expected.grad
        assert gradient is not None
        assert right is not None
        gaps.append(_gap(_read_whole(gradient), right))
    return _describe(ran, max(gaps), sum(_count_local(p) for p in model.parameters()))


def _read_whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _count_local(parameter: nn.Parameter) -> int:
    """Numbers that this rank has of a parameter."""
    tensor: Any = parameter
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).numel()
