"""What a result was measured on and with: hardware, versions, commit."""

import inspect
import os
import platform
import re
import subprocess
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
import torch

from course_utils.files import ROOT

__all__ = [
    "describe_hardware",
    "describe_making",
    "describe_value",
    "read_commit",
    "read_versions",
]

PACKAGES = (
    "torch",
    "torchvision",
    "lightning",
    "timm",
    "peft",
    "albumentations",
    "numpy",
    "torchmetrics",
)


def _cpu_name() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.processor() or platform.machine()


@cache
def describe_hardware() -> dict[str, str | int | None]:
    """Processor, cores this process may use, memory in bytes, GPU (None: none), system."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": _cpu_name(),
        "cores": cores,
        "memory_bytes": psutil.virtual_memory().total,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": f"{platform.system()} {platform.machine()}",
    }


@cache
def read_versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result can depend on."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "missing"
    return versions


@cache
def read_commit() -> str | None:
    """The course's git commit, ``+`` behind it if files were changed since; None outside git."""
    git = ["git", "-C", str(ROOT)]
    try:
        commit = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        dirty = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if dirty else "")


def describe_making() -> dict[str, object]:
    """On what a result was made: hardware, threads of PyTorch, versions, commit."""
    return {
        "hardware": describe_hardware(),
        "threads": torch.get_num_threads(),
        "versions": read_versions(),
        "commit": read_commit(),
    }


def describe_value(value: object) -> str:
    """An argument in words that are the same in every process: no addresses, no local scopes.

    ``partial(F.cross_entropy, label_smoothing=0.1)`` becomes
    ``"cross_entropy(label_smoothing=0.1)"``. An object without a readable ``repr`` becomes its
    class with its public numbers, strings and truth values.
    """
    if isinstance(value, partial):
        positional = [describe_value(argument) for argument in value.args]
        named = [f"{name}={describe_value(item)}" for name, item in value.keywords.items()]
        return f"{describe_value(value.func)}({', '.join(positional + named)})"
    if isinstance(value, dict):
        pairs = [f"{name}={describe_value(item)}" for name, item in value.items()]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(describe_value(item) for item in value)}]"
    if isinstance(value, type) or inspect.isroutine(value):
        return value.__qualname__.rpartition("<locals>.")[2]
    if type(value).__repr__ is object.__repr__ or " at 0x" in repr(value):
        simple = {
            name: item
            for name, item in sorted(getattr(value, "__dict__", {}).items())
            if not name.startswith("_") and isinstance(item, int | float | str)
        }
        settings = ", ".join(f"{name}={item!r}" for name, item in simple.items())
        return f"{type(value).__name__}({settings})"
    return " ".join(repr(value).split())
