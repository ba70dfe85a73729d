"""Expert parallel: each rank keeps a part of the experts, and tokens go to them and come back.

`run_ranks` calls `measure` in every rank. It compares with one process that has all experts and
the tokens of all ranks, in double precision.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lesson_code.mixture_of_experts.experts import Experts, route

__all__ = ["exchange", "measure", "run_experts_of_all_ranks"]

WIDTH, HIDDEN, NUM_EXPERTS = 16, 32, 4


class _Exchange(torch.autograd.Function):
    """Rows to their ranks; the backward pass sends their gradients the other way."""

    @staticmethod
    def forward(ctx, rows: Tensor, sent: list[int], received: list[int], log: list[int]) -> Tensor:
        ctx.sizes = sent, received
        ctx.log = log
        return _send(rows, sent, received, log)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        sent, received = ctx.sizes
        return _send(grad.contiguous(), received, sent, ctx.log), None, None, None


def _send(rows: Tensor, sent: list[int], received: list[int], log: list[int]) -> Tensor:
    """One uneven all-to-all; appends to ``log`` the bytes that leave this rank."""
    arrived = rows.new_empty(sum(received), *rows.shape[1:])
    dist.all_to_all_single(arrived, rows, received, sent)
    row_bytes = rows[:1].numel() * rows.element_size() if len(rows) else 0
    log.append((sum(sent) - sent[dist.get_rank()]) * row_bytes)
    return arrived


def exchange(rows: Tensor, sent: list[int], received: list[int], log: list[int]) -> Tensor:
    """Send rows ``(R, D)``, sorted by rank, and get those that the others send.

    Args:
        rows: ``sent[r]`` of them for each rank r.
        sent, received: rows to and from each rank.
        log: gets the bytes that leave this rank, forward and backward.
    """
    return _Exchange.apply(rows, sent, received, log)


def run_experts_of_all_ranks(layer: Experts, x: Tensor, log: list[int]) -> Tensor:
    """The output of ``layer`` for this rank's tokens ``(M, D)``; each expert runs on one rank.

    Of ``layer`` this rank uses the router and its own experts alone.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    own = len(layer.experts) // size
    _, chosen, gates = route(layer.router(x), layer.k)
    order = chosen.flatten().argsort(stable=True)
    counts = torch.bincount(chosen.flatten(), minlength=len(layer.experts))  # (n,)
    arriving = torch.empty_like(counts)  # (ranks · own,): by rank, then by own expert
    dist.all_to_all_single(arriving, counts)
    sent = counts.view(size, own).sum(dim=1).tolist()
    received = arriving.view(size, own).sum(dim=1).tolist()
    rows = exchange(x[order // layer.k], sent, received, log)
    numbers = torch.arange(own).repeat(size).repeat_interleave(arriving)  # the expert of each row
    outputs = torch.zeros_like(rows)
    for number in range(own):
        places = (numbers == number).nonzero()[:, 0]
        outputs = outputs.index_add(0, places, layer.experts[rank * own + number](rows[places]))
    back = exchange(outputs, received, sent, log)
    return torch.zeros_like(x).index_add(0, order // layer.k, gates.flatten()[order, None] * back)


def _make_layer(k: int) -> Experts:
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH))
    layer = Experts(mlp, WIDTH, NUM_EXPERTS, k, balance=0.0).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)  # the experts differ
    return layer


def _make_tokens(rank: int, tokens: int) -> Tensor:
    """The tokens ``(M, D)`` of a rank; the ranks have different numbers of them."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(tokens + 8 * rank, WIDTH, generator=generator, dtype=torch.float64)


def measure(rank: int, size: int, tokens: int = 32, k: int = 2) -> dict:
    """Largest gaps to one process, and the bytes that each rank has sent.

    Returns:
        ``"output gap"``, ``"gradient gap"``; ``"rows"``, how many each rank sent to each other one
        (size, size); ``"sent_bytes"`` of each rank, forward and backward.
    """
    whole, split = _make_layer(k), _make_layer(k)
    shares = [_make_tokens(number, tokens) for number in range(size)]
    everything = torch.cat(shares).requires_grad_()
    expected = whole(everything)
    expected.square().sum().backward()
    mine = shares[rank].clone().requires_grad_()
    log: list[int] = []
    found = run_experts_of_all_ranks(split, mine, log)
    found.square().sum().backward()
    assert split.router.weight.grad is not None
    dist.all_reduce(split.router.weight.grad)  # each rank has the router, and its own tokens
    start = sum(map(len, shares[:rank]))
    place = slice(start, start + len(mine))
    assert everything.grad is not None
    pairs: list[tuple[Any, Any]] = [(mine.grad, everything.grad[place])]
    own = NUM_EXPERTS // size
    for number in range(rank * own, rank * own + own):
        parameters = split.experts[number].parameters(), whole.experts[number].parameters()
        pairs += [(one.grad, other.grad) for one, other in zip(*parameters, strict=True)]
    pairs.append((split.router.weight.grad, whole.router.weight.grad))
    gaps = torch.stack([
        (found - expected[place]).detach().abs().max(),
        torch.stack([(one - other).abs().max() for one, other in pairs]).max(),
    ])  # fmt: skip
    dist.all_reduce(gaps, dist.ReduceOp.MAX)
    with torch.no_grad():
        _, chosen, _ = route(split.router(mine), k)
    sent = torch.bincount(chosen.flatten() // own, minlength=size).tolist()
    everyone: list = [None] * size
    dist.all_gather_object(everyone, (sent, sum(log)))
    return {
        "output gap": gaps[0].item(),
        "gradient gap": gaps[1].item(),
        "rows": [rows for rows, _ in everyone],
        "sent_bytes": [count for _, count in everyone],
        "row_bytes": 8 * WIDTH,
    }
