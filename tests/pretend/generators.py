"""Random numbers of the pretend device: its own generators, and the errors of a wrong one.

PyTorch's bindings cannot make a generator of a device that is written in Python. `Generator` takes
the place of `torch.Generator`: for the pretend device it makes one of the CPU, and remembers it.
"""

import functools

import torch
from torch.utils._device import _device_constructors

from tests.pretend.module import NAME

__all__ = ["check_generator", "draw_from_device", "replace_generators"]

# These get the wrong generator without a tensor of the device, so the device does not see it. Of
# other functions on the CPU a generator of the device is not noticed.
CHECKED = ("bernoulli", "multinomial", "normal", "rand", "randint", "randn", "randperm")

_OURS: dict[int, torch._C.Generator] = {}  # by address: an operation gets another Python object


class _AnyGenerator(type(torch._C.Generator)):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_AnyGenerator):
    """A generator of the pretend device; an ordinary one for any other device."""

    def __new__(cls, device="cpu"):
        if torch.device(device).type != NAME:
            return torch._C.Generator(device)
        made = super().__new__(cls, "cpu")
        _OURS[made._cdata] = made
        return made

    @property
    def device(self) -> torch.device:
        return torch.device(NAME, 0)


def check_generator(generator: torch._C.Generator, expected: str) -> None:
    """Raise as CUDA does if the generator is of another type of device than ``expected``."""
    found = _OURS.get(generator._cdata, generator).device.type
    if found != expected:
        raise RuntimeError(f"Expected a '{expected}' device type for generator but found '{found}'")


def _check_first(function):
    """The function of `torch`, with a check of its generator before."""

    @functools.wraps(function)
    def checked(*args, generator=None, **kwargs):
        if generator is None:
            return function(*args, **kwargs)
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        device = kwargs.get("device") or torch.get_default_device()
        device = tensors[0].device if tensors else torch.device(device)
        check_generator(generator, device.type)
        return function(*args, generator=generator, **kwargs)

    return checked


def replace_generators() -> None:
    """Replace `torch.Generator`, and the functions in `CHECKED`."""
    torch.Generator = Generator
    _device_constructors()  # PyTorch keeps this list, which has to hold the functions as they are
    for name in CHECKED:
        setattr(torch, name, _check_first(getattr(torch, name)))


def draw_from_device(compute, args: list, kwargs: dict):
    """Compute with random numbers of the device's generator, and leave the CPU's as it is."""
    if kwargs.get("generator") is not None:
        return compute(*args, **kwargs)
    device, cpu = torch.pretend.default_generators[0], torch.default_generator
    before = cpu.get_state()
    cpu.set_state(device.get_state())
    try:
        return compute(*args, **kwargs)
    finally:
        device.set_state(cpu.get_state())
        cpu.set_state(before)
