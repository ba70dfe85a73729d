"""Which number formats really run, and how many bytes a step saves in them."""

import copy
import warnings
from functools import partial

import torch
import torch.nn.functional as F
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from course_utils.data.image_data import ImageData
from course_utils.measure.memory import count_saved_bytes
from course_utils.models.create import create_model
from course_utils.training.fit import quiet_trainer
from course_utils.training.lit_classifier import LitClassifier

__all__ = ["FormatRecorder", "save_bytes", "witness_precision"]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class FormatRecorder(TorchDispatchMode):
    """Context: note each operation in it that returns floating-point numbers.

    ``formats`` has its name (``"convolution"``) to the names of the formats that it returned.
    """

    def __init__(self):
        super().__init__()
        self.formats: dict[str, set[str]] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        first = result[0] if isinstance(result, tuple | list) and result else result
        if isinstance(first, torch.Tensor) and first.is_floating_point():
            operation = function.overloadpacket.__name__.strip("_")
            self.formats.setdefault(operation, set()).add(_name(first.dtype))
        return result


def save_bytes(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, variant: str) -> int:
    """Bytes that a forward pass saves for its backward pass.

    Args:
        variant: ``"fp32"``, ``"mixed bf16"`` or ``"pure bf16"``.
    """
    model = copy.deepcopy(model).train()
    if variant == "pure bf16":
        model.bfloat16()
        inputs = inputs.bfloat16() if inputs.is_floating_point() else inputs
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=variant == "mixed bf16")
    with autocast, count_saved_bytes(model) as saved:
        F.cross_entropy(model(inputs.clone()), targets)
    return saved.total


class _Witness(LitClassifier):
    """Note the formats of a training step in ``seen``."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits = super().forward(images)
        self.seen = {"weights": _name(next(self.model.parameters()).dtype)}
        self.seen["logits"] = _name(logits.dtype)
        return logits

    def training_step(self, batch, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        self.seen["loss"] = _name(loss.dtype)
        return loss


def witness_precision(
    precision: str, data: ImageData, accelerator: str = "cpu"
) -> dict[str, object]:
    """Train ``convnet_small`` on one batch with Lightning's ``precision`` and say what ran.

    Returns:
        ``runs as`` (the precision that Lightning took, or why it refused) and, if it ran, the
        formats of ``weights``, ``logits`` and ``loss``, whether there was a ``loss scale``, and
        ``saved (MB)`` for the backward pass.
    """
    optimizer = partial(torch.optim.SGD, lr=0.1)
    network = create_model("convnet_small", data.num_classes)
    lit = _Witness(network, data.num_classes, make_optimizer=optimizer)
    options = {"precision": precision, "accelerator": accelerator, "max_steps": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it says is what is shown here
        try:
            trainer = quiet_trainer(**options, limit_val_batches=0)
        except (ImportError, MisconfigurationException, RuntimeError, ValueError) as error:
            return {"runs as": f"refused: {type(error).__name__}"}
        trainer.fit(lit, data.train_loader(seed=0))
    assert lit.saved_bytes is not None  # for the type checker: the training step has set it
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    return {
        "runs as": trainer.precision,
        **lit.seen,
        "loss scale": "yes" if scaler else "no",
        "saved (MB)": round(lit.saved_bytes / 1e6, 1),
    }
