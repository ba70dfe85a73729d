"""A pretend accelerator: the device ``pretend``, on which mistakes with devices raise as on a GPU.

Most mistakes with devices show nothing on a CPU: a tensor made without ``device=``, ``.numpy()``
without ``.cpu()``, a generator of the other device. `register_device` gives PyTorch a second device
that is written in Python. A tensor of it is an ordinary ``torch.Tensor``. Its storage has no memory
of its own but an attribute ``host``, a storage on the CPU. Every operation reaches `_run`, which
compares the devices of the arguments as CUDA does, computes on the CPU, and gives the results back
as tensors of the device.

What it cannot show:

- kernels: it computes with those of the CPU, so numbers, their errors and missing operations are
  the CPU's, and TF32, cuDNN or the memory format that a kernel prefers do not exist;
- asynchrony: every operation has ended when it returns, so a missing ``synchronize``, or a read too
  early after ``non_blocking=True``, changes nothing, and times say nothing;
- memory: it is the CPU's, so nothing runs out of it, and pinned memory is a copy with a mark;
- NCCL, and whatever else needs several devices: there is ``pretend:0`` alone, and a process group
  sends its numbers from the CPU.

The registration cannot be undone, and the whole process sees it: `torch.accelerator` finds the
device, and `torch.Generator` is another class. So a process that has registered it runs nothing but
the tests of this folder.
"""

import functools
from collections import Counter
from types import SimpleNamespace

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from tests.pretend.autocast import register_autocast
from tests.pretend.generators import check_generator, draw_from_device, replace_generators
from tests.pretend.module import NAME, is_on_device, make_backend_module
from tests.pretend.saving import replace_methods

__all__ = ["OPERATIONS", "register_device"]

OPERATIONS: Counter[str] = Counter()  # how often the device has done each

# PyTorch divides these into parts where a device does not offer the whole.
WHOLE = ("as_strided_", "convolution", "convolution_backward", "copy_")
# A process group gets tensors of the CPU: gloo can send no others.
COMMUNICATION = ("allgather_", "_allgather_base_", "allreduce_", "broadcast_")

# Operations that take tensors of two devices on a GPU too.
INDEXING = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
TAKES_NUMBERS = (*INDEXING, "aten::fill_", "aten::masked_fill", "aten::masked_fill_")

_LIBRARIES: list[torch.library.Library] = []  # what they register ends with them


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's numbers as a tensor of the CPU that shares its memory."""
    empty = torch.empty(0, dtype=tensor.dtype, device="cpu")
    storage = tensor.untyped_storage().host
    return empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


def _to_device(host: torch.Tensor, base: torch.Tensor | None = None) -> torch.Tensor:
    """A tensor of the device with the memory of a tensor of the CPU; ``base`` has it already."""
    if base is None:
        base = torch._C._acc.create_empty_tensor((0,), host.dtype)
        base.untyped_storage().host = host.untyped_storage()
    if base.dtype != host.dtype:
        raise NotImplementedError(f"{NAME}: a view of {base.dtype} as {host.dtype}")
    offset = host.storage_offset() - base.storage_offset()
    with torch.inference_mode(base.is_inference()):  # a view is what its base is
        reinterpret = torch._C._dynamo.guards._reinterpret_tensor
        return reinterpret(base, host.shape, host.stride(), offset)


def _map(function, value):
    """Apply a function to everything inside of nested lists and tuples."""
    if isinstance(value, list | tuple):
        return type(value)(_map(function, inner) for inner in value)
    return function(value)


@functools.cache
def _describe(op) -> SimpleNamespace:
    """What `_run` has to know of an operation, from its schema and its tags."""
    name, places = op._schema.name, op._schema.arguments
    return SimpleNamespace(
        name=name,
        is_copy=name == "aten::copy_",
        is_indexing=name in INDEXING,
        is_random=torch.Tag.nondeterministic_seeded in op.tags,
        is_convolution=name.startswith("aten::convolution"),
        takes_numbers=torch.Tag.pointwise in op.tags or name in TAKES_NUMBERS,
        takes_tensor=[str(place.type) == "Tensor" for place in places],
        is_written={n for n, place in enumerate(places) if place.is_write}
        | {place.name for place in places if place.is_write},
    )


def _check_devices(op, args: tuple, kwargs: dict) -> None:
    """Raise where CUDA does: for tensors of two devices, or a generator of the CPU.

    As on CUDA, a tensor of the device may be indexed by tensors of the CPU, and elementwise
    operations take one number on the CPU, a tensor without dimensions, that they do not write to.
    """
    about = _describe(op)
    if about.is_copy:
        return
    if isinstance(kwargs.get("generator"), torch._C.Generator):
        check_generator(kwargs["generator"], NAME)
    given = {**dict(enumerate(args)), **kwargs}
    if about.is_indexing:
        indices = given.pop(1)
        if not is_on_device(args[0]) and any(map(is_on_device, indices)):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
            )

    def check(value, is_written: bool) -> None:
        if not isinstance(value, torch.Tensor) or is_on_device(value):
            return
        if value.dim() or is_written or not about.takes_numbers:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{NAME}:0 and cpu! (when checking the arguments of {op})"
            )

    for place, value in given.items():
        _map(functools.partial(check, is_written=place in about.is_written), value)


def _run(op, *args, **kwargs):
    """Compute an operation on the CPU, with memory of the device."""
    about = _describe(op)
    OPERATIONS[about.name] += 1
    _check_devices(op, args, kwargs)
    given = {}  # what was given, by the identity of what the CPU gets
    bases = {}  # a tensor of the device, by its storage on the CPU

    def lower(value):
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if not isinstance(value, torch.Tensor):
            return value
        host = _to_host(value) if is_on_device(value) else value
        if host is not value:
            bases[host.untyped_storage()._cdata] = value
        given[id(host)] = value, host
        return host

    def lift(value):
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) in given:
            return given[id(value)][0]
        return _to_device(value, bases.get(value.untyped_storage()._cdata))

    # PyTorch hands on the 2 of `x % 2` as a number, though the operation takes a tensor.
    args = [
        torch.tensor(one, device="cpu") if takes and isinstance(one, int | float) else one
        for one, takes in zip(args, about.takes_tensor, strict=False)
    ]
    args, kwargs = _map(lower, args), {name: _map(lower, one) for name, one in kwargs.items()}
    compute = functools.partial(_convolve, op) if about.is_convolution else op
    results = (
        draw_from_device(compute, args, kwargs) if about.is_random else compute(*args, **kwargs)
    )
    for tensor, host in given.values():
        if about.is_written and (tensor.shape, tensor.stride()) != (host.shape, host.stride()):
            tensor.data = _to_device(host)  # an operation in place has changed the shape
    return _map(lift, results)


def _convolve(op, *args):
    """A convolution, computed in fp32 and rounded: processors may take 50 times as long in bf16."""
    narrow = args[0].dtype
    if narrow not in (torch.bfloat16, torch.float16):
        return op(*args)

    def cast(value, dtype: torch.dtype):
        return value.to(dtype) if isinstance(value, torch.Tensor) else value

    wide = [cast(one, torch.float32) for one in args]
    return _map(functools.partial(cast, dtype=narrow), op(*wide))


def register_device() -> None:
    """Give this process the device ``pretend``, with ``torch.pretend``; once for all."""
    if _LIBRARIES:
        return
    torch.utils.rename_privateuse1_backend(NAME)
    replace_generators()
    _setup_privateuseone_for_python_backend(NAME, make_backend_module())
    every, aten, c10d = (torch.library.Library(name, "IMPL") for name in ("_", "aten", "c10d"))
    _LIBRARIES.extend((every, aten, c10d))
    every.fallback(_run, "PrivateUse1")
    for library, namespace, names in (
        (aten, torch.ops.aten, WHOLE),
        (c10d, torch.ops.c10d, COMMUNICATION),
    ):
        for name in names:
            kernel = functools.partial(_run, getattr(namespace, name).default)
            library.impl(name, kernel, "PrivateUse1", allow_override=True)
    register_autocast(every, aten)
    replace_methods()
