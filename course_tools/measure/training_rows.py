"""Rows about a training step: number formats, accumulation, checkpointing, optimizers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from course_tools.measure.row import Impossible, Row, Values
from course_tools.measure.scale import Scale
from course_utils.measure.memory import peak_memory_bytes, reset_peak_memory
from course_utils.measure.timing import time_calls

__all__ = ["list_training_rows"]

# A format: the type of autocast, and the precision of fp32 matrix products and convolutions.
FORMATS: dict[str, tuple[torch.dtype | None, str, str]] = {
    "fp32": (None, "ieee", "ieee"),
    "fp32, PyTorch's default": (None, "ieee", "tf32"),
    "tf32": (None, "tf32", "tf32"),
    "bf16": (torch.bfloat16, "ieee", "tf32"),
    "fp16": (torch.float16, "ieee", "tf32"),
}
MATRIX_PRODUCTS = {
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
}


@contextmanager
def _fp32_precision(device: torch.device, products: str, convolutions: str) -> Iterator[None]:
    """How CUDA computes fp32 matrix products and convolutions, while the context lasts."""
    if device.type != "cuda":
        if products == "tf32":
            raise Impossible("only NVIDIA GPUs have TF32")
        yield
        return
    matmul = torch.backends.cuda.matmul
    conv = torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = matmul.fp32_precision, conv.fp32_precision
    if (products, convolutions) != ("ieee", "tf32"):  # which is PyTorch's default
        matmul.fp32_precision, conv.fp32_precision = products, convolutions
    try:
        yield
    finally:
        if (matmul.fp32_precision, conv.fp32_precision) != before:
            matmul.fp32_precision, conv.fp32_precision = before


def _measure_call(call: Callable[[], object], device: torch.device, images: int) -> Values:
    """Time and peak memory of a call that trains on ``images`` images, warmed up before."""
    time_calls(call, device)  # to compile, to choose kernels, to bring the clocks up
    reset_peak_memory(device)
    time_ms = time_calls(call, device)
    values: Values = {"ms": time_ms, "images_per_s": 1000 * images / time_ms}
    peak = peak_memory_bytes(device)
    return values if peak is None else values | {"peak_bytes": peak}


def _make_step(
    network: nn.Module,
    images: Tensor,
    targets: Tensor,
    dtype: torch.dtype | None,
    micro_batch: int | None = None,
) -> Callable[[], None]:
    """One step of AdamW under autocast; fp16 with a scaler; in micro-batches if asked for."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    device = images.device.type
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
    parts = list(
        zip(
            images.split(micro_batch or len(images)),
            targets.split(micro_batch or len(images)),
            strict=True,
        )
    )

    def step() -> None:
        for inputs, classes in parts:
            with torch.autocast(device, dtype, enabled=dtype is not None):
                loss = F.cross_entropy(network(inputs), classes) / len(parts)
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


def _measure_format(
    scale: Scale,
    make_network: Callable[[], nn.Module],
    name: str,
    channels_last: bool,
    compiled: bool,
    device: torch.device,
) -> Values:
    dtype, products, convolutions = FORMATS[name]
    layout = torch.channels_last if channels_last else torch.contiguous_format
    network = make_network().to(device).to(memory_format=layout)
    images, targets = scale.make_batch(device)
    if compiled:
        torch.compiler.reset()
        network.compile()
    with _fp32_precision(device, products, convolutions):
        step = _make_step(network, images.to(memory_format=layout), targets, dtype)

        def call() -> None:
            for _ in range(scale.steps):
                step()

        values = _measure_call(call, device, scale.steps * len(images))
    return values | {"ms": values["ms"] / scale.steps}


def _measure_accumulation(scale: Scale, micro_batch: int, device: torch.device) -> Values:
    network = scale.make_convolutional().to(device).to(memory_format=torch.channels_last)
    images, targets = scale.make_batch(device, scale.accumulated)
    images = images.to(memory_format=torch.channels_last)
    step = _make_step(network, images, targets, torch.bfloat16, micro_batch)
    return _measure_call(step, device, scale.accumulated)


def _save_products(context, operation, *args, **kwargs) -> CheckpointPolicy:
    is_saved = operation in MATRIX_PRODUCTS
    return CheckpointPolicy.MUST_SAVE if is_saved else CheckpointPolicy.PREFER_RECOMPUTE


class _Checkpointed(nn.Module):
    """A block whose activations are recomputed in the backward pass."""

    def __init__(self, block: nn.Module, selective: bool):
        super().__init__()
        self.block = block
        self.selective = selective

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.selective:
            return checkpoint(self.block, inputs, use_reentrant=False)
        contexts = partial(create_selective_checkpoint_contexts, _save_products)
        return checkpoint(self.block, inputs, use_reentrant=False, context_fn=contexts)


def _measure_checkpointing(scale: Scale, what: str, device: torch.device) -> Values:
    network = scale.make_transformer()
    if what != "nothing":
        encoder: Any = network.encoder
        blocks = [_Checkpointed(block, selective=what != "blocks") for block in encoder.layers]
        encoder.layers = nn.Sequential(*blocks)
    images, targets = scale.make_batch(device)
    step = _make_step(network.to(device), images, targets, torch.bfloat16)
    return _measure_call(step, device, len(images))


def _measure_optimizer(
    scale: Scale, optimizer: Callable[..., torch.optim.Optimizer], how: str, device: torch.device
) -> Values:
    network = scale.make_transformer().to(device)
    for parameter in network.parameters():
        parameter.grad = torch.randn_like(parameter)
    options = {"foreach": how == "foreach", "fused": how == "fused"}
    if how == "loop":
        options = {"foreach": False, "fused": False}
    step = optimizer(network.parameters(), lr=1e-4, **options).step
    time_calls(step, device)
    return {"ms": time_calls(step, device)}


def list_training_rows(scale: Scale) -> list[Row]:
    """Every row about a training step, those first that answer most."""
    rows = []
    networks = {
        scale.convolutional: scale.make_convolutional,
        scale.transformer: scale.make_transformer,
    }

    def add_format(network: str, name: str, channels_last: bool = False, compiled: bool = False):
        settings = {
            "network": network,
            "format": name,
            "layout": "channels last" if channels_last else "contiguous",
            "compiled": compiled,
        }
        measure = partial(_measure_format, scale, networks[network], name, channels_last, compiled)
        rows.append(Row("formats", settings, measure))

    for network in networks:
        for name in FORMATS:
            add_format(network, name)
    for name in ("tf32", "bf16", "fp16"):
        add_format(scale.convolutional, name, channels_last=True)
    for micro_batch in scale.micro_batches:
        settings = {"images": scale.accumulated, "micro_batch": micro_batch}
        rows.append(
            Row("accumulation", settings, partial(_measure_accumulation, scale, micro_batch))
        )
    for what in ("nothing", "blocks", "all but matrix products"):
        rows.append(
            Row(
                "checkpointing",
                {"computed_again": what},
                partial(_measure_checkpointing, scale, what),
            )
        )
    optimizers: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "AdamW": torch.optim.AdamW,
        "SGD": partial(torch.optim.SGD, momentum=0.9),
    }
    for name, optimizer in optimizers.items():
        for how in ("loop", "foreach", "fused"):
            rows.append(
                Row(
                    "optimizers",
                    {"optimizer": name, "update": how},
                    partial(_measure_optimizer, scale, optimizer, how),
                )
            )
    for network, name in (
        (scale.transformer, "bf16"),
        (scale.convolutional, "bf16"),
        (scale.convolutional, "tf32"),
    ):
        add_format(network, name, channels_last=network == scale.convolutional, compiled=True)
    return rows
