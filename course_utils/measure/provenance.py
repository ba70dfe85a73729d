"""What a result was measured on and with: hardware, versions, commit."""

import os
import platform
import re
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
import torch

from course_utils.files import ROOT

__all__ = ["describe_hardware", "read_commit", "read_versions"]

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
