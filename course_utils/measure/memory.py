"""Memory: bytes saved for the backward pass, bytes alive at the worst moment, a GPU's peak."""

import weakref
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

__all__ = [
    "PeakBytes",
    "SavedBytes",
    "count_parameters",
    "count_saved_bytes",
    "peak_memory_bytes",
    "reset_peak_memory",
]


class SavedBytes:
    """What `count_saved_bytes` found, in bytes: ``total``, and ``by_layer`` (name to bytes)."""

    def __init__(self):
        self.total: int = 0
        self.by_layer: dict[str, int] = {}


@contextmanager
def count_saved_bytes(model: nn.Module) -> Iterator[SavedBytes]:
    """Count the bytes that the forward pass in this context saves for its backward pass.

    Each storage counts once, however many tensors view it, for the innermost layer that saved it
    first (``""`` is the model itself and what surrounds it, the loss); the model's own parameters
    and buffers do not count: what is left are activations (the input batch among them) and, under
    autocast, copies of weights. A slice of a batch keeps the storage of the whole batch.
    The figures are deterministic, so that they can be asserted (another device's kernels may save
    other tensors), and are set when the context ends.

    Source: `torch.autograd.graph.saved_tensors_hooks`.
    """
    own = {
        tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())
    }
    # by address: the layer and the storage, held so that no other one gets its address meanwhile
    storages: dict[int, tuple[str, torch.UntypedStorage]] = {}
    layers = [""]

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages.setdefault(storage.data_ptr(), (layers[-1], storage))
        return tensor

    def leave(*_) -> None:
        layers.pop()

    hooks = []
    for name, module in model.named_modules():
        enter = module.register_forward_pre_hook(lambda *_, name=name: layers.append(name))
        hooks += [enter, module.register_forward_hook(leave, always_call=True)]
    saved = SavedBytes()
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            yield saved
    finally:
        for hook in hooks:
            hook.remove()
    by_layer: defaultdict[str, int] = defaultdict(int)
    for layer, storage in storages.values():
        by_layer[layer] += storage.nbytes()
    saved.total, saved.by_layer = sum(by_layer.values()), dict(by_layer)


class PeakBytes(TorchDispatchMode):
    """Context: the bytes alive at its worst moment, forward and backward pass, in ``total``.

    Every storage counts that an operation makes in the context: activations, what is computed
    again, gradients. What was there before does not (parameters, inputs, gradients that are not
    zeroed), nor do buffers inside an operation. The figure is deterministic; another device's
    kernels may allocate other tensors. To be entered once.
    """

    def __init__(self):
        super().__init__()
        self.total, self._alive = 0, 0
        self._known: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tree_map_only(torch.Tensor, lambda x: self._known.add(x.untyped_storage()), (args, kwargs))
        result = function(*args, **kwargs)
        tree_map_only(torch.Tensor, self._note, result)
        return result

    def _note(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage not in self._known:  # neither a view nor changed in place
            self._known.add(storage)
            self._alive += storage.nbytes()
            self.total = max(self.total, self._alive)
            weakref.finalize(storage, self._forget, storage.nbytes())

    def _forget(self, nbytes: int) -> None:
        self._alive -= nbytes


def reset_peak_memory(device: torch.device) -> None:
    """Let the allocator's peak of a CUDA device begin anew; nothing to do on others."""
    if device.type == "cuda":
        torch.cuda.init()  # the next line does not, and fails as the process's first use of CUDA
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_bytes(device: torch.device) -> int | None:
    """The allocator's peak on a CUDA device since its last reset; None where there is none.

    (`torch.cuda.max_memory_allocated` answers 0 on a machine without CUDA: a silently wrong plot.)
    """
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def count_parameters(model: nn.Module, trainable: bool = False) -> int:
    """How many numbers the model holds as parameters; ``trainable``: those with gradients only."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad or not trainable)
