"""The module ``torch.pretend``: as ``torch.cuda``, for the one device."""

import contextlib
from types import SimpleNamespace

import torch

__all__ = ["NAME", "is_on_device", "make_backend_module"]

NAME = "pretend"


def is_on_device(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == NAME


class Stream:
    """A queue of the device, which has nothing to do: every operation has ended when it returns."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def wait_stream(self, *_: object) -> None:
        pass

    wait_event = record_event = synchronize = wait = record = wait_stream


def make_backend_module() -> SimpleNamespace:
    """What PyTorch, Lightning and recipe cards ask of the module of a device."""
    generator = torch.Generator(NAME)

    def set_rng_state(state: torch.Tensor, device: object = None) -> None:
        generator.set_state(state)

    def do_nothing(device: object = None) -> None:
        pass

    return SimpleNamespace(
        Event=Stream,
        Stream=Stream,
        current_device=lambda: 0,
        current_stream=lambda device=None: Stream(),
        default_generators=(generator,),
        device=contextlib.nullcontext,
        device_count=lambda: 1,
        empty_cache=do_nothing,
        get_amp_supported_dtype=lambda: [torch.float16, torch.bfloat16],
        get_rng_state=lambda device=None: generator.get_state(),
        init=do_nothing,
        _initialized=True,
        is_available=lambda: True,
        is_bf16_supported=lambda including_emulation=True: True,
        is_initialized=lambda: True,
        _is_in_bad_fork=lambda: False,
        manual_seed=generator.manual_seed,
        manual_seed_all=generator.manual_seed,
        set_device=do_nothing,
        set_rng_state=set_rng_state,
        stream=contextlib.nullcontext,
        synchronize=do_nothing,
    )
