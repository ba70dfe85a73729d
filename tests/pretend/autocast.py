"""Autocast on the pretend device: it casts as on CUDA.

The lists are those of PyTorch's ``autocast_mode.h``, without what the course has no use for. Casts
of weights are not kept from one use to the next, which changes memory and not the numbers.
"""

import functools
from collections.abc import Callable

import torch

from tests.pretend.module import NAME, is_on_device

__all__ = ["register_autocast"]

LOWER_PRECISION = """
    _convolution conv1d conv2d conv3d conv_transpose1d conv_transpose2d.input convolution prelu
    conv_transpose3d.input addmm addmv addr matmul einsum mm mv linalg_vecdot linalg_multi_dot
    linear addbmm baddbmm bmm chain_matmul scaled_dot_product_attention
"""
FP32 = """
    exp expm1 log log10 log2 log1p reciprocal rsqrt softplus layer_norm native_layer_norm rms_norm
    group_norm pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar cosine_similarity nll_loss nll_loss2d
    kl_div l1_loss smooth_l1_loss huber_loss mse_loss binary_cross_entropy_with_logits cdist
    logsumexp prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm sum
    sum.dim_IntList norm.Scalar norm.ScalarOpt_dim
"""
WIDEST = "addcdiv addcmul atan2 bilinear dot index_put tensordot scatter_add cat stack"


def _find_lower(tensors: list[torch.Tensor]) -> torch.dtype:
    return torch.get_autocast_dtype(NAME)


def _find_fp32(tensors: list[torch.Tensor]) -> torch.dtype:
    return torch.float32


def _find_widest(tensors: list[torch.Tensor]) -> torch.dtype:
    return functools.reduce(torch.promote_types, [one.dtype for one in tensors])


def register_autocast(every: torch.library.Library, aten: torch.library.Library) -> None:
    """Register what autocast does, in a library of all operations and in one of PyTorch's."""
    every.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for names, find in ((LOWER_PRECISION, _find_lower), (FP32, _find_fp32), (WIDEST, _find_widest)):
        for name in names.split():
            packet, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
            aten.impl(name, functools.partial(_run_cast, find, op), "AutocastPrivateUse1")


def _run_cast(find: Callable[[list[torch.Tensor]], torch.dtype], op, *args, **kwargs):
    """Run an operation with its tensors cast to the type that ``find`` chooses for them."""
    tensors = []

    def note(value) -> None:
        if is_on_device(value) and value.is_floating_point() and value.dtype != torch.float64:
            tensors.append(value)

    def cast(value):
        return value.to(dtype) if any(value is one for one in tensors) else value

    def each(function, value):
        if isinstance(value, list | tuple):
            return type(value)(each(function, inner) for inner in value)
        return function(value)

    autocast = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
    with torch._C._ExcludeDispatchKeyGuard(autocast):
        each(note, [*args, *kwargs.values()])
        if tensors:
            dtype = find(tensors)
            args = each(cast, args)
            kwargs = {name: each(cast, value) for name, value in kwargs.items()}
        return op(*args, **kwargs)
