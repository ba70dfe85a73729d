"""Counts what a step asks of a device, which no clock is needed for."""

import math
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["CountOperations", "count_operations"]

aten = torch.ops.aten
# Python needs a number, or a shape, before it can go on. `item`, `float`, `int`, `bool`, `if` and
# `print` of a tensor all end in the first of them.
WAITING = (aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.equal, aten.unique_dim)
INDEXING = (aten.index, aten.index_put, aten.index_put_)  # by a mask, they look for its places
COPYING = (aten.clone, aten._to_copy)


class CountOperations(TorchDispatchMode):
    """Inside of the context, counts the operations that reach PyTorch's dispatcher.

    ``calls``: by name. ``synchronisations``: those after which Python needs a value or a shape,
    so that on a GPU it would have to wait for all that was queued before. ``copied_bytes``: of
    new tensors that are copies. On a CPU nothing is queued, so there the counts say what the same
    code would do on a GPU. ``tolist()`` and ``numpy()`` of a CPU tensor are no operations; on a GPU
    ``cpu()`` has to come before them, and that waits.

    Example:
        >>> with CountOperations() as counted:
        ...     value = torch.ones(3).sum().item()
        >>> counted.synchronisations
        1
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.synchronisations = 0
        self.copied_bytes = 0

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        packet = operation.overloadpacket
        self.calls[packet.__name__] += 1
        moved = packet is aten._to_copy and result.device != args[0].device
        to_python = packet in WAITING or (moved and result.device.type == "cpu")
        if to_python or (packet in INDEXING and _has_mask(args[1])):
            self.synchronisations += 1
        if packet in COPYING and isinstance(result, Tensor):
            self.copied_bytes += math.prod(result.shape) * result.element_size()
        return result

    @property
    def total(self) -> int:
        """All operations."""
        return sum(self.calls.values())


def _has_mask(indices: list[Tensor | None]) -> bool:
    return any(index is not None and index.dtype == torch.bool for index in indices)


def count_operations(call: Callable[[], object]) -> CountOperations:
    """The counts of one call."""
    with CountOperations() as counted:
        call()
    return counted
