"""The course's own pretrained backbone: a file of weights, and a JSON that says how it was made."""

import hashlib
import json
from pathlib import Path

import torch
from safetensors.torch import load, save

from course_utils.errors import CourseError
from course_utils.files import ROOT, write_atomically

__all__ = ["BACKBONE", "WEIGHTS", "describe_backbone", "read_backbone", "write_backbone"]

WEIGHTS = ROOT / "data" / "weights"
BACKBONE = "resnet_tiny_shapes_source"
CURE = "restore it with `git checkout data/weights`, or make it again with `course pretrain`"


def write_backbone(state: dict[str, torch.Tensor], about: dict, folder: Path) -> None:
    """Write ``state`` as safetensors and, beside it, ``about`` with the file's sha256 as JSON."""
    content = save({name: tensor.contiguous() for name, tensor in state.items()})
    path = folder / f"{BACKBONE}.safetensors"
    about = json.dumps(about | {"sha256": hashlib.sha256(content).hexdigest()}, indent=1)
    write_atomically(path, content)
    write_atomically(path.with_suffix(".json"), about + "\n")


def describe_backbone(folder: Path = WEIGHTS) -> dict:
    """How the backbone was made: command, seed, data, accuracy, versions, hardware, commit, sha256.

    Raises:
        CourseError: no JSON there, or one that cannot be read.
    """
    path = folder / f"{BACKBONE}.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        raise CourseError(f"{path} is missing or damaged: {CURE}") from None


def read_backbone(folder: Path = WEIGHTS) -> dict[str, torch.Tensor]:
    """The weights of `resnet_tiny` without its last layer, name to tensor.

    Raises:
        CourseError: no file there, or one whose sha256 is not the one its JSON names.
    """
    expected = describe_backbone(folder).get("sha256")
    path = folder / f"{BACKBONE}.safetensors"
    try:
        content = path.read_bytes()
    except OSError:
        raise CourseError(f"{path} is missing: {CURE}") from None
    if hashlib.sha256(content).hexdigest() != expected:
        raise CourseError(f"{path} is not the file its JSON describes (sha256 differs): {CURE}")
    return load(content)
