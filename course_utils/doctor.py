"""Is this machine ready for the course? One finding per line, each with its fix."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

import psutil
from packaging.requirements import InvalidRequirement, Requirement

from course_utils.config import PROFILES, load_config
from course_utils.errors import CourseError
from course_utils.files import ROOT

__all__ = ["Finding", "check_environment", "find_package_faults", "find_unwritable_homes"]

GIB = 2**30
UNEXPECTED = "a file of the course is damaged, or a package: compare with git, run make setup"
MIN_MEMORY, MIN_DISK = 2 * GIB, 2 * GIB


@dataclass(frozen=True)
class Finding:
    """One line of ``course doctor``; ``fix`` is empty when all is well."""

    name: str
    detail: str
    fix: str = ""
    required: bool = True

    @property
    def ok(self) -> bool:
        return not self.fix

    def __str__(self) -> str:
        state = "ok" if self.ok else "missing" if self.required else "missing (optional)"
        return f"{self.name}: {state} · {self.detail}" + (f" → {self.fix}" if self.fix else "")


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def read_lock(lock: Path) -> dict[str, str]:
    """Name to version of every package that the lock file pins for this machine."""
    pins = {}
    for line in lock.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith((" ", "#", "-")):
            requirement = Requirement(line.rstrip(" \\"))
            if requirement.marker is None or requirement.marker.evaluate():
                pins[requirement.name] = str(requirement.specifier).removeprefix("==")
    return pins


def find_package_faults(pins: dict[str, str], needed: list[str]) -> list[str]:
    """Installed packages of another version than ``pins`` say, and ``needed`` ones not there."""
    faults = []
    for name, pinned in pins.items():
        found = _installed(name)
        if found is None and name in needed:
            faults.append(f"{name} is not installed")
        elif found is not None and found.partition("+")[0] != pinned:
            faults.append(f"{name} is {found}, locked is {pinned}")
    return faults


def _check_python() -> Finding:
    found = sys.version.split()[0]
    fix = "" if sys.version_info >= (3, 11) else "install Python 3.11 or newer"
    return Finding("Python", found, fix)


def _check_settings() -> Finding:
    try:
        config = load_config()
    except ValueError as error:  # int() refuses thousands of digits
        problem, _, fix = str(error).rpartition(": ")
        names = "COURSE_PROFILE and COURSE_FIRST_SEED"
        return Finding("Settings", problem or str(error), f"correct {names}: {fix}")
    return Finding("Settings", f"profile {config.profile}, first seed {config.first_seed}")


def _check_packages() -> Finding:
    lock = ROOT / "requirements.lock"
    restore = f"restore it with `git checkout {lock.name}`"
    try:
        pins = read_lock(lock)
    except (OSError, UnicodeDecodeError, InvalidRequirement):
        return Finding("Packages", f"{lock} is missing or damaged", restore)
    declared = [Requirement(text) for text in requires("course-utils") or []]
    needed = [r.name for r in declared if r.marker is None or r.marker.evaluate({"extra": ""})]
    faults = find_package_faults(pins, needed)
    if not faults:
        return Finding("Packages", "as locked")
    more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
    fix = "delete .venv and run make setup"
    return Finding("Packages", "; ".join(faults[:3]) + more, fix)


def _check_compiler() -> Finding:
    found = next(filter(None, map(shutil.which, ("g++", "c++", "clang++", "cl"))), None)
    fix = "" if found else "install a C++ compiler for torch.compile; all else runs without"
    return Finding("Compiler", found or "none", fix, required=False)


def _check_gpu() -> Finding:
    import torch

    if torch.cuda.is_available():
        return Finding("GPU", torch.cuda.get_device_name(), required=False)
    return Finding("GPU", "none", "not needed: smoke and quick run on a CPU", required=False)


def _check_dali() -> Finding:
    found = _installed("nvidia-dali-cuda120")
    if found and find_spec("nvidia.dali"):
        return Finding("DALI", found, required=False)
    fix = "pip install 'nvidia-dali-cuda120' (Linux x86-64 only); lesson 11 runs without it too"
    return Finding("DALI", "not installed", fix, required=False)


def _check_memory() -> Finding:
    free = psutil.virtual_memory().available
    fix = "" if free >= MIN_MEMORY else "close other programs: a lesson takes up to 2 GiB"
    return Finding("Memory", f"{free / GIB:.1f} GiB free", fix)


def _check_threads() -> Finding:
    from course_utils.processes.threads import measure_threads

    return Finding("Threads", measure_threads().describe(), required=False)


def find_unwritable_homes(variables: Mapping[str, str]) -> dict[str, Path]:
    """Folders in which Jupyter, IPython and Matplotlib keep their files and cannot.

    Returns:
        For each the variable that names another folder.
    """
    home = Path(os.path.expanduser("~"))
    usual = {
        "JUPYTER_CONFIG_DIR": home / ".jupyter",
        "JUPYTER_DATA_DIR": Path(variables.get("XDG_DATA_HOME") or home / ".local/share"),
        "JUPYTER_RUNTIME_DIR": Path(variables.get("XDG_DATA_HOME") or home / ".local/share"),
        "IPYTHONDIR": home / ".ipython",
        "MPLCONFIGDIR": Path(variables.get("XDG_CONFIG_HOME") or home / ".config"),
    }
    places = {name: Path(variables.get(name) or folder) for name, folder in usual.items()}
    return {name: folder for name, folder in places.items() if not _can_be_written(folder)}


def _can_be_written(folder: Path) -> bool:
    """Whether files can be made in ``folder``, which need not exist yet."""
    nearest = next((x for x in (folder, *folder.parents) if os.path.lexists(x)), folder)
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def _check_home() -> Finding:
    faults = find_unwritable_homes(os.environ)
    if not faults:
        return Finding("Home", "Jupyter can keep its files", required=False)
    name, folder = next(iter(faults.items()))
    fix = f"course lab takes other folders; for Jupyter without it set {name}"
    return Finding("Home", f"Jupyter cannot write to {folder}", fix, required=False)


def _check_disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    fix = "" if free >= MIN_DISK else f"free {MIN_DISK / GIB:.0f} GiB on the disk of {folder}"
    return Finding("Disk", f"{free / GIB:.1f} GiB free", fix)


def _check_write_access(folder: Path) -> Finding:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return Finding("Write access", "the course's folder")
    except OSError as error:
        return Finding("Write access", f"{error.strerror}: {folder}", "clone the course elsewhere")


def _read_dataset() -> str:
    return os.environ.get("COURSE_DATASET") or PROFILES["quick"].dataset


def _check_data() -> Finding:
    from course_utils.data.sources import open_images

    dataset = _read_dataset()
    if dataset == "shapes":
        return Finding("Data", "shapes need no files")
    try:
        names, targets, *_ = open_images(dataset)
    except (CourseError, OSError) as error:
        return Finding("Data", str(error), "set COURSE_DATASET=shapes until that is fixed")
    return Finding("Data", f"{dataset}: {len(targets):,} images of {len(names)} classes")


def _check_photos() -> Finding:
    """Every sheet is there and has its checksum; only who trains on `photos` needs them."""
    from course_utils.data.photos import describe_photos, read_sheet

    required = _read_dataset() == "photos"
    try:
        about = describe_photos()
        for name in about["sheets"]:
            read_sheet(name, about)
    except CourseError as error:
        problem, _, fix = str(error).rpartition(": ")
        return Finding("Photographs", problem, fix, required)
    counts = [
        f"{count * len(about['classes']):,} {split}" for split, count in about["tiles"].items()
    ]
    return Finding("Photographs", f"checksums verified, {' and '.join(counts)}", required=required)


def _check_backbone() -> Finding:
    from course_utils.models.backbone import FIX, WEIGHTS, describe_backbone, read_backbone

    try:
        read_backbone()
    except CourseError as error:
        problem, _, fix = str(error).rpartition(": ")
        return Finding("Backbone", problem, fix)
    accuracy = describe_backbone().get("val_accuracy")
    if not isinstance(accuracy, float):
        return Finding("Backbone", f"no val_accuracy in the JSON in {WEIGHTS}", FIX)
    return Finding("Backbone", f"checksum verified, {accuracy:.1%} on its validation images")


def check_environment(folder: Path = ROOT) -> Iterator[Finding]:
    """Check everything the course needs, in the order in which it would be missed.

    A check that fails itself, on a damaged file for instance, is a finding too.
    """
    checks: dict[str, Callable[[], Finding]] = {
        "Python": _check_python,
        "Settings": _check_settings,
        "Packages": _check_packages,
        "Compiler": _check_compiler,
        "GPU": _check_gpu,
        "DALI": _check_dali,
        "Memory": _check_memory,
        "Threads": _check_threads,
        "Disk": lambda: _check_disk(folder),
        "Home": _check_home,
        "Write access": lambda: _check_write_access(folder),
        "Data": _check_data,
        "Photographs": _check_photos,
        "Backbone": _check_backbone,
    }
    for name, check in checks.items():
        try:
            yield check()
        except Exception as error:
            problem = " ".join(f"{type(error).__name__}: {error}".split())
            yield Finding(name, problem, UNEXPECTED)
