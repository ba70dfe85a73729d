"""Bytes of a step of lesson 10, and its time beside that of other steps."""

import time
import weakref
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from course_utils.measure.memory import PeakBytes
from course_utils.measure.timing import synchronize

__all__ = ["count_saved", "measure_peak", "time_rounds"]

Name = TypeVar("Name", bound=Hashable)


class _Saved:
    """Holds a tensor that PyTorch saves; it lives as long as the backward pass needs it."""

    def __init__(self, tensor: Tensor):
        self.tensor = tensor


def count_saved(forward: Callable[[], Tensor], network: nn.Module) -> int:
    """Bytes that ``forward()`` saves for its backward pass, parameters and buffers apart.

    Tensors that share their memory count once. It counts *fake* tensors as well, which have a
    shape and no data, and what compiled code saves. What selective checkpointing stores counts
    with ``respect_saved_tensors_hooks=True``.
    """
    held: weakref.WeakSet[_Saved] = weakref.WeakSet()

    def pack(tensor: Tensor) -> _Saved:
        saved = _Saved(tensor)
        held.add(saved)
        return saved

    with saved_tensors_hooks(pack, lambda saved: saved.tensor):
        output = forward()
    if not output.requires_grad:  # nothing is trained
        return 0
    storages = {saved.tensor.untyped_storage()._cdata: saved.tensor for saved in held}
    own = {t.untyped_storage()._cdata for t in (*network.parameters(), *network.buffers())}
    return sum(storages[i].untyped_storage().nbytes() for i in storages.keys() - own)


def measure_peak(step: Callable[[], object]) -> int:
    """Bytes of all tensors that a step makes at its worst moment, without weights and inputs."""
    with PeakBytes() as peak:
        step()
    return peak.total


def _read_clock(device: torch.device) -> float:
    """Seconds: of this process alone on a CPU, of the wall clock on other devices."""
    if device.type == "cpu":
        return time.process_time()
    synchronize(device)
    return time.perf_counter()


def time_rounds(
    steps: Mapping[Name, Callable[[], object]], rounds: int, device: torch.device
) -> dict[Name, list[float]]:
    """Seconds of each step in each round, with one thread and after one round of warm-up.

    Every round begins with another step, so that none of them has a fixed place. On a CPU these
    are seconds of processor time, in which other programs do not count.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    names = list(steps)
    found: dict[Name, list[float]] = {name: [] for name in names}
    try:
        for number in range(-1, rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                start = _read_clock(device)
                steps[name]()
                if number >= 0:
                    found[name].append(_read_clock(device) - start)
    finally:
        torch.set_num_threads(threads)
    return found
