"""Who does what in a training: each action of a step is done by your code or by the library.

The actions are spied on while a loop runs. An action is yours if the line of the loop that is
active at that moment is another one than the call that trains everything, such as ``fit``.
"""

import contextlib
import functools
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType, MethodType
from typing import Any
from unittest import mock

import pandas as pd
import torch
from torch import nn

from lesson_code.loops_and_engines import loops, plain
from lesson_code.loops_and_engines.job import Job, Loop

__all__ = ["ACTIONS", "LIBRARY", "NOBODY", "YOU", "trace", "trace_all"]

YOU, LIBRARY, NOBODY = "you", "the library", "nobody"
ACTIONS = (
    "seed the generator",
    "train mode",
    "backward pass",
    "clip",
    "optimizer step",
    "schedule step",
    "clear gradients",
)
WHOLE = (".fit(", "transformers.Trainer(", "trainer.train()")  # calls that train everything
FILES = [inspect.getsourcefile(module) for module in (loops, plain)]


def find_author() -> str:
    """`YOU` or `LIBRARY`, by the innermost line of a loop that is active now."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename not in FILES:
        frame = frame.f_back
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno) if frame else ""
    return LIBRARY if any(call in line for call in WHOLE) else YOU


class _Spy:
    """Notes who does each action."""

    def __init__(self) -> None:
        self.found = dict.fromkeys(ACTIONS, NOBODY)

    def watch(
        self, action: str, function: Callable, only: Callable[..., bool] | None = None
    ) -> Any:
        """The same function, which notes its caller if ``only(*arguments)`` is true."""

        @functools.wraps(function)
        def watched(*arguments: Any, **options: Any) -> Any:
            if only is None or only(*arguments):
                self.found[action] = find_author()
            return function(*arguments, **options)

        return watched

    def watch_method(self, action: str, thing: object, name: str) -> None:
        watched = self.watch(action, getattr(type(thing), name))
        setattr(thing, name, MethodType(watched, thing))  # schedules ask for a bound method


@contextlib.contextmanager
def _watch_pytorch(spy: _Spy, network: nn.Module) -> Iterator[None]:
    """While it lasts, functions of PyTorch are watched."""

    def is_network(module: nn.Module, mode: bool = True, *_: Any) -> bool:
        return mode and module is network

    clip = spy.watch("clip", nn.utils.clip_grad_norm_)
    watched = [
        (torch, "manual_seed", "seed the generator", None),
        (torch.Tensor, "backward", "backward pass", None),
        (torch.optim.Optimizer, "zero_grad", "clear gradients", None),
        (nn.Module, "zero_grad", "clear gradients", None),
        (nn.Module, "train", "train mode", is_network),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, action, only in watched:
            function = spy.watch(action, getattr(owner, name), only)
            stack.enter_context(mock.patch.object(owner, name, function))
        for owner in (nn.utils, plain):  # which has imported it
            stack.enter_context(mock.patch.object(owner, "clip_grad_norm_", clip))
        yield


def trace(loop: Loop, job: Job) -> dict[str, str]:
    """For each of `ACTIONS` who did it: `YOU`, `LIBRARY` or `NOBODY`.

    The generators are left as they were.
    """
    spy, network = _Spy(), job.make_model()

    def make_optimizer(job: Job, model: nn.Module) -> torch.optim.Optimizer:
        optimizer = make[0](job, model)
        spy.watch_method("optimizer step", optimizer, "step")
        return optimizer

    def make_schedule(job: Job, optimizer: torch.optim.Optimizer) -> Any:
        schedule = make[1](job, optimizer)
        spy.watch_method("schedule step", schedule, "step")
        return schedule

    make = Job.make_optimizer, Job.make_schedule
    with (
        torch.random.fork_rng(devices=[]),
        mock.patch.object(Job, "make_optimizer", make_optimizer),
        mock.patch.object(Job, "make_schedule", make_schedule),
        _watch_pytorch(spy, network),
    ):
        loop(replace(job, make_model=lambda: network))
    return spy.found


def trace_all(names: dict[str, Loop], job: Job) -> pd.DataFrame:
    """A row for each action, a column for each loop."""
    return pd.DataFrame({name: trace(loop, job) for name, loop in names.items()}).loc[list(ACTIONS)]
