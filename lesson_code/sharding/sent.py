"""Count the bytes that a rank sends, whoever calls the collective: ours, DDP, `fully_shard`."""

from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["CountSent", "ring_bytes"]

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER = "all_reduce", "reduce_scatter", "all_gather"
BROADCAST, SEND = "broadcast", "send"
# PyTorch's operators behind the calls: which collective, and which argument holds the whole vector
OPERATORS = {
    "c10d::allreduce_": (ALL_REDUCE, 0),
    "c10d::_reduce_scatter_base_": (REDUCE_SCATTER, 1),
    "c10d::reduce_scatter_tensor_coalesced_": (REDUCE_SCATTER, 1),
    "c10d::_allgather_base_": (ALL_GATHER, 0),
    "c10d::allgather_": (ALL_GATHER, 0),
    "c10d::allgather_into_tensor_coalesced_": (ALL_GATHER, 0),
    "c10d::broadcast_": (BROADCAST, 0),
    "c10d::send": (SEND, 0),
    "_c10d_functional::all_reduce": (ALL_REDUCE, 0),
    "_c10d_functional::all_reduce_": (ALL_REDUCE, 0),
    "_c10d_functional::reduce_scatter_tensor": (REDUCE_SCATTER, 0),
}
SHARDED = "_c10d_functional::all_gather_into_tensor"  # its argument is this rank's part alone


def ring_bytes(kind: str, whole: int, ranks: int) -> Fraction:
    """Bytes that each of ``ranks`` sends in a ring, for a vector of ``whole`` bytes.

    A reduce-scatter and an all-gather pass all parts but one on, so that an all-reduce, which is
    both, sends twice that: 2 (n − 1) / n of the vector. In a broadcast every rank but the last
    one passes the vector on: on average over the ranks (n − 1) / n of it. ``send``: the vector.

    >>> ring_bytes("all_reduce", 100, ranks=4)
    Fraction(150, 1)
    """
    parts = {ALL_REDUCE: 2 * (ranks - 1), SEND: ranks}.get(kind, ranks - 1)
    return Fraction(parts * whole, ranks)


class CountSent(TorchDispatchMode):
    """Context: the bytes that this rank sends in collectives of the group of all ranks.

    They are counted from the sizes of the tensors, for rings, so that they are exact and the same
    in every run. ``by_kind`` has bytes by collective and ``calls`` their number.
    """

    def __init__(self):
        super().__init__()
        self.by_kind: defaultdict[str, Fraction] = defaultdict(Fraction)
        self.calls: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """Bytes in all, rounded down."""
        return int(sum(self.by_kind.values()))

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name().partition(".")[0]
        if name in OPERATORS or name == SHARDED:
            self._note(name, args)
        return function(*args, **(kwargs or {}))

    def _note(self, name: str, arguments: tuple[Any, ...]) -> None:
        kind, place = OPERATORS.get(name, (ALL_GATHER, 0))
        tensors = [x for x in tree_leaves(arguments[place]) if isinstance(x, Tensor)]
        whole = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        ranks = dist.get_world_size()
        if name == SHARDED:
            whole *= ranks
        self.by_kind[kind] += ring_bytes(kind, whole, ranks)
        self.calls[kind] += 1
