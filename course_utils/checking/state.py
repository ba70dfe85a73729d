"""A known state of the libraries for a check, whatever a notebook has set before.

A notebook may make float64 or a GPU its default, switch gradients off, or turn warnings into
errors. None of that makes an answer wrong, so a check runs as in a fresh notebook.
"""

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import numpy as np
import torch

__all__ = ["known_state"]


@contextmanager
def known_state(folder: str = "") -> Iterator[None]:
    """The defaults of PyTorch, NumPy and warnings inside, and what was set before afterwards.

    Random states are not touched: `ExerciseCheck` seeds them.

    Args:
        folder: the current folder inside; empty: as it is, but where it was deleted, the folder
            of temporary files.
    """
    with ExitStack() as stack:
        stack.enter_context(_folder(folder))
        stack.enter_context(warnings.catch_warnings())
        filters = [entry for entry in warnings.filters if entry[0] != "error"]
        warnings.filters[:] = filters  # type: ignore[index]  # a list, whatever its stub says
        stack.enter_context(np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"))
        stack.enter_context(_torch_defaults())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.autograd.set_detect_anomaly(False))
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


@contextmanager
def _torch_defaults() -> Iterator[None]:
    """dtype, device, algorithms and precision of matrix products as PyTorch starts with them."""
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    precision = torch.get_float32_matmul_precision()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_default_dtype(torch.float32)
    if device.type != "cpu":
        torch.set_default_device(None)
    if precision != "highest":
        torch.set_float32_matmul_precision("highest")
    if deterministic:
        torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        if device.type != "cpu":
            torch.set_default_device(device)
        if precision != "highest":
            torch.set_float32_matmul_precision(precision)
        if deterministic:
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)


@contextmanager
def _folder(wanted: str) -> Iterator[None]:
    try:
        before = os.getcwd()
    except OSError:  # a cell went into a folder and deleted it
        before = ""
    if wanted or not before:
        os.chdir(wanted or tempfile.gettempdir())
    try:
        yield
    finally:
        if before:
            with suppress(OSError):  # an answer deleted it
                os.chdir(before)
