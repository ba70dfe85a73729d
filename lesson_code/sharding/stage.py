"""One stage of a pipeline on its rank: receive, compute, send."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

__all__ = ["run_stage"]


def run_stage(
    order: Sequence[tuple[str, int]],
    stage: nn.Module,
    inputs: Sequence[Tensor],
    targets: Sequence[Tensor],
    compute_loss: Callable[[Tensor, Tensor], Tensor],
) -> None:
    """Compute what ``order`` says; the gradients are left in the parameters of ``stage``.

    Args:
        order: pairs such as ("F", 0), the forward pass of micro-batch 0, or ("B", 0).
        stage: this rank's layers, which keep the shape of their input.
        inputs: the micro-batches; only rank 0 reads their numbers, the others their shape.
        targets: of the micro-batches, for the last rank.
    """
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    stored: dict[int, Any] = {}  # input and output of each micro-batch that waits for its "B"
    leaving: list[Any] = []
    for kind, batch in order:
        buffer = torch.empty_like(inputs[batch])  # for what arrives
        if kind == "F":
            x = inputs[batch]
            if rank > 0:
                dist.recv(buffer, rank - 1)
                x = buffer.requires_grad_()
            y = stage(x)
            if rank < last:
                leaving.append(dist.isend(y.detach(), rank + 1))
            stored[batch] = x, y
        else:
            x, y = stored.pop(batch)
            if rank < last:
                dist.recv(buffer, rank + 1)
                y.backward(buffer)
            else:
                compute_loss(y, targets[batch]).backward()
            if rank > 0:
                leaving.append(dist.isend(x.grad, rank - 1))
    for message in leaving:
        message.wait()
