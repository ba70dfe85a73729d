"""Networks in int8, by the tools that come with PyTorch; and what a file of weights takes.

PyTorch marks `torch.ao.quantization` as deprecated: its successor is ``torchao``, which is a
package of its own. Both do the same arithmetic, see `study_extras.py`.
"""

import copy
import io
import warnings
from collections.abc import Iterable, Sequence

import torch
import torch.ao.quantization as aoq
from torch import Tensor, nn
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

__all__ = [
    "count_file_bytes",
    "find_missing_engine",
    "quantize_convolutions",
    "quantize_linear",
    "round_weights",
]

ENGINES = ("x86", "qnnpack")  # kernels for int8: of Intel and AMD, of ARM
QUANTIZED = (nn.Conv2d, nn.Linear)


def find_missing_engine() -> str:
    """Why this machine cannot compute in int8, in one line; empty: it can."""
    if set(ENGINES) & set(torch.backends.quantized.supported_engines):
        return ""
    return f"PyTorch has none of the int8 kernels {', '.join(ENGINES)} on this machine"


def _choose_engine() -> str:
    """Tell PyTorch to use the first of `ENGINES` that this machine has; returns its name."""
    supported = torch.backends.quantized.supported_engines
    engine = next(name for name in ENGINES if name in supported)
    torch.backends.quantized.engine = engine
    return engine


def quantize_convolutions(
    model: nn.Module, batches: Iterable[Tensor], per_channel: bool = True
) -> nn.Module:
    """A copy of a network of convolutions whose weights and activations are int8.

    Convolution, BatchNorm and ReLU become one layer where they follow one another. The range of
    each activation is that of the histogram which the calibration batches leave.

    Args:
        model: maps images ``(N, 3, H, W)`` to logits ``(N, C)``; it is traced by `torch.fx`.
        batches: calibration inputs, preprocessed as in validation; labels are not needed.
        per_channel: a scale for each output channel of a weight; False: one for the whole weight.
    """
    batches = list(batches)
    usual = aoq.get_default_qconfig(_choose_engine())
    weight = usual.weight if per_channel else aoq.default_weight_observer
    mapping = aoq.QConfigMapping().set_global(aoq.QConfig(usual.activation, weight))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # deprecated, and a notice about reduced ranges
        watched = prepare_fx(copy.deepcopy(model).eval(), mapping, (batches[0],))
        for batch in batches:
            watched(batch)
        return convert_fx(watched)


def quantize_linear(model: nn.Module, embeddings: Sequence[str] = ()) -> nn.Module:
    """A copy whose linear layers have int8 weights, and round their inputs when they run.

    No calibration is needed, because each batch brings its own range.

    Args:
        model: any network; only its `torch.nn.Linear` layers change.
        embeddings: names of `torch.nn.Embedding` layers whose rows are stored in 8 bits, too. The
            network may only call them, and not read their weight.
    """
    _choose_engine()
    model = copy.deepcopy(model).eval()
    changed: dict[type | str, aoq.QConfig] = {nn.Linear: aoq.default_dynamic_qconfig}
    changed |= dict.fromkeys(embeddings, aoq.float_qparams_weight_only_qconfig)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated
        return aoq.quantize_dynamic(model, changed)


def round_weights(model: nn.Module, bits: int, per_channel: bool = True) -> nn.Module:
    """A copy whose weights are those that ``bits`` bits can hold; they are computed with in fp32.

    Weights of convolutions, linear layers and embeddings are divided by a scale, rounded to whole
    numbers of at most ``2 ** (bits - 1) - 1``, and multiplied by the scale again.

    Args:
        bits: 2 or more.
        per_channel: one scale for each row of a weight; False: one for the whole weight.
    """
    largest = 2 ** (bits - 1) - 1
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, (*QUANTIZED, nn.Embedding)):
            weight = module.weight.data
            sizes = weight.abs().flatten(1).amax(dim=1) if per_channel else weight.abs().max()
            scale = (sizes / largest).clamp(min=1e-12).reshape(-1, *[1] * (weight.ndim - 1))
            weight.copy_((weight / scale).round() * scale)
    return model


def count_file_bytes(model: nn.Module) -> int:
    """Bytes of the file that `torch.save` writes of its ``state_dict``."""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return file.getbuffer().nbytes
