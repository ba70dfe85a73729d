"""What PyTorch does with the memory of a tensor: moves, copies, files, pinned memory.

A storage of the pretend device has no memory of its own, so methods that read it are replaced for
tensors and storages of the device.
"""

import copy
import functools
from collections.abc import Iterable

import torch
from torch.distributed.fsdp._fully_shard import _fsdp_init
from torch.utils._pytree import tree_map_only

from tests.pretend.module import NAME

__all__ = ["replace_methods"]


def _replace(owner: type, name: str, function) -> None:
    """Replace a method for tensors or storages of the device."""
    old = getattr(owner, name)

    @functools.wraps(old)
    def method(self, *args, **kwargs):
        return (function if self.device.type == NAME else old)(self, *args, **kwargs)

    setattr(owner, name, method)


def _apply(apply, self: torch.nn.Module, *args, **kwargs) -> torch.nn.Module:
    """`torch.nn.Module._apply`, by which a module moves.

    Parameters stay the same objects, as on CUDA. That is not possible while a graph still holds
    them (after an error in a training), and then they become new ones.
    """
    try:
        torch.__future__.set_swap_module_params_on_conversion(True)
        return apply(self, *args, **kwargs)
    except RuntimeError as error:
        if "Couldn't swap" not in str(error):
            raise
        torch.__future__.set_swap_module_params_on_conversion(False)
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        return apply(self, *args, **kwargs)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
        torch.__future__.set_overwrite_module_params_on_conversion(False)


def _deepcopy(self: torch.Tensor, memo: dict) -> torch.Tensor:
    if not self.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user support the deepcopy")
    if id(self) not in memo:
        made = self.detach().clone()
        if isinstance(self, torch.nn.Parameter):
            made = torch.nn.Parameter(made, self.requires_grad)
        memo[id(self)] = made.requires_grad_(self.requires_grad)
        made.grad = copy.deepcopy(self.grad, memo)
    return memo[id(self)]


def _reduce(self: torch.Tensor, protocol: int) -> tuple:
    is_parameter = isinstance(self, torch.nn.Parameter)
    return _rebuild, (self.detach().cpu(), self.requires_grad, is_parameter)


def _rebuild(host: torch.Tensor, requires_grad: bool, is_parameter: bool) -> torch.Tensor:
    """A tensor of the device from a file, where ``map_location`` says."""
    device = torch.device(NAME, 0)
    where = torch.serialization._serialization_tls.map_location
    if callable(where):  # it may return None, which leaves the tensor on its device
        storage = where(host.untyped_storage(), str(device))
        where = storage and storage.device
    elif isinstance(where, dict):
        where = where.get(str(device))
    tensor = host.to(where or device)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def _load(load, *args, map_location=None, **kwargs):
    """`torch.load`, which can move tensors of the CPU to the device too."""
    is_name = isinstance(map_location, str | torch.device)
    if not is_name or torch.device(map_location).type != NAME:
        return load(*args, map_location=map_location, **kwargs)
    found = load(*args, map_location="cpu", **kwargs)
    return tree_map_only(torch.Tensor, lambda tensor: tensor.to(map_location), found)


def _pin_memory(self: torch.Tensor, device: object = None) -> torch.Tensor:
    if self.device.type != "cpu":
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
    pinned = self.clone()
    pinned.is_in_pinned_memory = True
    return pinned


def _is_pinned(self: torch.Tensor, device: object = None) -> bool:
    return hasattr(self, "is_in_pinned_memory")


def _move_states(
    params: Iterable[torch.nn.Parameter], buffers: Iterable[torch.Tensor], device: torch.device
) -> None:
    """How `fully_shard` moves a network: it sets ``data``, which the device does not allow."""
    for tensor in (*params, *buffers):
        moved = tensor.detach().to(device)
        if isinstance(tensor, torch.nn.Parameter):
            moved = torch.nn.Parameter(moved, tensor.requires_grad)
        torch.utils.swap_tensors(tensor, moved)


def replace_methods() -> None:
    for owner in (torch.Tensor, torch.nn.Parameter):
        _replace(owner, "__deepcopy__", _deepcopy)
        _replace(owner, "__reduce_ex__", _reduce)
    _replace(torch.UntypedStorage, "data_ptr", lambda self: self.host.data_ptr())
    to = torch.Tensor.to
    _replace(torch.Tensor, "to", lambda *args, non_blocking=False, **kwargs: to(*args, **kwargs))
    for name in ("nbytes", "size"):
        _replace(torch.UntypedStorage, name, lambda self: self.host.nbytes())
    _replace(torch.UntypedStorage, "resize_", lambda self, size: self.host.resize_(size))
    _replace(
        torch.Tensor,
        "data_ptr",
        lambda self: (
            self.untyped_storage().data_ptr() + self.storage_offset() * self.element_size()
        ),
    )
    _fsdp_init._move_states_to_device = _move_states
    apply = torch.nn.Module._apply
    torch.nn.Module._apply = lambda self, *args, **kwargs: _apply(apply, self, *args, **kwargs)
    torch.load = functools.partial(_load, torch.load)
    torch.serialization.add_safe_globals([_rebuild])
    torch.Tensor.pin_memory, torch.Tensor.is_pinned = _pin_memory, _is_pinned
