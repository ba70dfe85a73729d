"""``course measure``: measure the rows that are missing, keep each one at once, print them."""

import gc
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch

from course_tools.measure.loading_rows import list_loading_rows
from course_tools.measure.row import Impossible, Row
from course_tools.measure.scale import LARGE, SMALL, Scale
from course_tools.measure.training_rows import list_training_rows
from course_utils.errors import CourseError
from course_utils.files import write_atomically
from course_utils.measure.provenance import describe_hardware, read_commit, read_versions
from course_utils.results import read_file

__all__ = ["find_device", "list_rows", "measure", "name_file"]

DRIVER = ("driver_version", "clocks.max.sm", "clocks.max.memory", "power.limit")


def find_device(name: str) -> torch.device:
    """The device of this name; ``"auto"`` is the GPU if there is one.

    Raises:
        CourseError: it is not there, or it is neither a CPU nor a CUDA device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda"):
        raise CourseError(f"--device {name}: measure cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise CourseError("--device cuda: PyTorch finds no GPU: see `course doctor`, or take cpu")
    return torch.device(name)


def list_rows(scale: Scale) -> list[Row]:
    """All rows, in the order in which they are measured."""
    return [*list_loading_rows(scale), *list_training_rows(scale)]


def _ask_driver() -> dict[str, str]:
    """Driver, highest clocks and power limit, as NVIDIA's tool says them; empty without it."""
    program = shutil.which("nvidia-smi")
    if not program:
        return {}
    asked = [program, f"--query-gpu={','.join(DRIVER)}", "--format=csv,noheader"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
    lines = done.stdout.strip().splitlines()
    return dict(zip(DRIVER, lines[0].split(", "), strict=True)) if lines else {}


def _describe(device: torch.device, scale: Scale) -> dict:
    """What has to be the same for two rows of one file."""
    about = {"device": device.type, "scale": scale.name, "batch_size": scale.batch_size}
    about |= {"pixels": scale.pixels, "hardware": describe_hardware(), "versions": read_versions()}
    if device.type == "cuda":
        about["gpu"] = _ask_driver() | {
            "memory_bytes": torch.cuda.get_device_properties(device).total_memory,
            "cuda": torch.version.cuda,
            "cudnn": str(torch.backends.cudnn.version()),
        }
    return json.loads(json.dumps(about))  # as it is read again


def name_file(device: torch.device) -> str:
    """``measured_nvidia_h100_80gb_hbm3`` for a GPU of this name, ``measured_cpu`` for a CPU."""
    hardware = describe_hardware()
    words = str(hardware["gpu"] if device.type == "cuda" else "cpu")
    return "measured_" + re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")


def _measure_row(row: Row, device: torch.device) -> dict:
    """The values of a row, or the problem that stands in their place."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    try:
        values = row.measure(device)
    except Impossible as reason:
        return {"problem": str(reason)}
    except torch.OutOfMemoryError:
        return {"problem": "out of memory"}
    except RuntimeError as error:  # of a compiler or a codec that this machine lacks
        return {"problem": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}
    return {name: float(f"{value:.4g}") for name, value in values.items()}


def _write(path: Path, content: dict) -> None:
    rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in content["rows"])
    about = {name: value for name, value in content.items() if name != "rows"}
    head = json.dumps(about, ensure_ascii=False, indent=1)[:-2]
    write_atomically(path, f'{head},\n "rows": [\n  {rows}\n ]\n}}\n')


def measure(
    device: torch.device,
    folder: Path,
    minutes: float,
    force: bool = False,
    say: Callable[[str], object] = print,
) -> tuple[Path, list[dict], int]:
    """Measure what the file of this device lacks, and keep each row as soon as it is there.

    Args:
        folder: of the file; ``data/results`` in the course.
        minutes: no row is started later than this.
        force: begin anew, whatever the file holds.
        say: gets a line before each row.

    Returns:
        the file; its rows; how many rows are left because the time was up.

    Raises:
        CourseError: the file was measured on another machine, or with other versions.
    """
    scale = SMALL if device.type == "cpu" else LARGE
    about, path = _describe(device, scale), folder / f"{name_file(device)}.json"
    kept = read_file(path) if path.exists() and not force else {"about": about, "rows": []}
    if kept.get("about") != about:
        raise CourseError(
            f"{path} was measured on another machine or with other versions: add --force to "
            "measure all of it anew"
        )
    found = {(row["table"], json.dumps(row["settings"])): row for row in kept["rows"]}
    rows, end = list_rows(scale), time.monotonic() + 60 * minutes
    left = 0
    for number, row in enumerate(rows, 1):
        key = (row.table, json.dumps(row.settings))
        if key in found:
            continue
        if time.monotonic() > end:
            left += 1
            continue
        say(f"{number} of {len(rows)}: {row.table}, {', '.join(map(str, row.settings.values()))}")
        found[key] = {
            "table": row.table,
            "settings": row.settings,
            "commit": read_commit(),
            **_measure_row(row, device),
        }
        _write(path, {"about": about, "rows": list(found.values())})
    return path, list(found.values()), left
