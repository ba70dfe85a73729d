"""The pretrained backbone: a file of weights, and a JSON that says how it was made."""

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from course_utils.errors import CourseError
from course_utils.files import ROOT, write_atomically

__all__ = [
    "BACKBONES",
    "WEIGHTS",
    "describe_backbone",
    "load_backbone",
    "read_backbone",
    "write_backbone",
]

WEIGHTS = ROOT / "data" / "weights"
BACKBONES = {  # model: name of its files
    "convnet_small": "convnet_small_tiny_imagenet",
    "text_small": "text_small_wordnet",
}
FIX = "restore it with `git checkout data/weights`"
HEAD = "fc."  # never stored: every lesson brings its own classes


def write_backbone(model: nn.Module, name: str, about: dict, folder: Path = WEIGHTS) -> None:
    """Write the weights of ``model`` below its head in 16 bits, and ``about`` as JSON beside them.

    Args:
        name: of the model, a key of ``BACKBONES``.
        about: how the weights were made; the file's sha256 is added.
    """
    state = {key: tensor for key, tensor in model.state_dict().items() if not key.startswith(HEAD)}
    halved = {
        key: tensor.half().contiguous() if tensor.is_floating_point() else tensor
        for key, tensor in state.items()
    }
    content = save(halved)
    path = folder / f"{BACKBONES[name]}.safetensors"
    about = about | {"sha256": hashlib.sha256(content).hexdigest()}
    write_atomically(path, content)
    write_atomically(path.with_suffix(".json"), json.dumps(about, indent=1) + "\n")


def describe_backbone(name: str = "convnet_small", folder: Path = WEIGHTS) -> dict:
    """How a backbone was made: command, data, accuracy, versions, hardware, commit, sha256.

    Raises:
        CourseError: no JSON there, or one that cannot be read.
    """
    path = folder / f"{BACKBONES[name]}.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        raise CourseError(f"{path} is missing or damaged: {FIX}") from None


def read_backbone(name: str = "convnet_small", folder: Path = WEIGHTS) -> dict[str, torch.Tensor]:
    """The weights of a model below its head, name to tensor, floating-point ones as float32.

    Raises:
        CourseError: no file there, one whose sha256 is not the one its JSON names, or no weights.
    """
    expected = describe_backbone(name, folder).get("sha256")
    path = folder / f"{BACKBONES[name]}.safetensors"
    try:
        content = path.read_bytes()
    except OSError:
        raise CourseError(f"{path} is missing: {FIX}") from None
    if hashlib.sha256(content).hexdigest() != expected:
        raise CourseError(f"{path} is not the file its JSON describes (sha256 differs): {FIX}")
    try:
        state = load(content)
    except SafetensorError as error:
        raise CourseError(f"{path} holds no weights ({error}): {FIX}") from None
    return {
        key: tensor.float() if tensor.is_floating_point() else tensor
        for key, tensor in state.items()
    }


def load_backbone(model: nn.Module, name: str, folder: Path = WEIGHTS) -> None:
    """Load the pretrained weights into ``model`` in place; its head keeps the weights it has."""
    head = {key: tensor for key, tensor in model.state_dict().items() if key.startswith(HEAD)}
    model.load_state_dict(read_backbone(name, folder) | head)
