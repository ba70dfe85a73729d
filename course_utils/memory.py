"""Memory: bytes saved for the backward pass, bytes alive at the worst moment, a GPU's peak."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

__all__ = [
    "PeakBytes",
    "SavedBytes",
    "count_peak_bytes",
    "count_saved_bytes",
    "peak_memory_bytes",
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
    The figures are deterministic and the same on every device, so that they can be asserted, and
    are set when the context ends. Source: `torch.autograd.graph.saved_tensors_hooks`.
    """
    own = {
        tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())
    }
    storages = {}  # holds each storage, so that no address is given to another one meanwhile
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
    by_layer = defaultdict(int)
    for layer, storage in storages.values():
        by_layer[layer] += storage.nbytes()
    saved.total, saved.by_layer = sum(by_layer.values()), dict(by_layer)


class PeakBytes:
    """What `count_peak_bytes` found; ``total`` is in bytes."""

    total: int = 0


@contextmanager
def count_peak_bytes(model: nn.Module) -> Iterator[PeakBytes]:
    """Count the bytes alive at the worst moment of this context, forward and backward pass.

    All tensors count that are made in the context (activations, what is computed again, gradients
    on their way), and the model's gradients; its parameters and buffers do not, nor do buffers
    inside an operator. On every device; ``total`` is set when the context ends.
    Source: PyTorch's `MemTracker`.
    """
    from torch.distributed._tools.mem_tracker import MemTracker

    tracker, peak = MemTracker(), PeakBytes()
    tracker.track_external(model)
    with tracker:
        yield peak
    found = tracker.get_tracker_snapshot("peak")[next(model.parameters()).device]
    kinds = {str(kind).rsplit(".")[-1]: count for kind, count in found.items()}
    peak.total = kinds["Total"] - kinds["PARAM"] - kinds["BUFFER"]


def peak_memory_bytes(device: torch.device) -> int | None:
    """The allocator's peak on a CUDA device since its last reset; None where there is none.

    (`torch.cuda.max_memory_allocated` answers 0 on a machine without CUDA: a silently wrong plot.)
    """
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
