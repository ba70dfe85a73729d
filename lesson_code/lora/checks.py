"""Checks of the exercises of lesson 03."""

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from course_utils.checking.checking import checks_exercise, require
from course_utils.checking.outputs import Output, is_near
from course_utils.checking.reports import compare_planted
from course_utils.models.create import create_model

__all__ = ["check_adapter", "check_lora_experiment", "check_lora_forward", "check_make_control"]

ROUNDING = 1e-4
# networks with the layers that get adapters, as a pattern of their full names
CONTROLS = (("text_small", r"layer\d\.(q|v)"), ("convnet_small", r"layer[34]\.0\.conv\d?"))


def _describe_training(options: Mapping) -> tuple[str, dict]:
    """What is trained of the text network: all of it, LoRA's adapters, too many, or a part."""
    model = create_model("text_small", num_classes=7)
    whole = sum(p.numel() for p in model.parameters())
    model = (options.get("model_transform") or nn.Identity())(model)
    trained = {name: p.numel() for name, p in model.named_parameters() if p.requires_grad}
    count = sum(trained.values())
    if any(".lora_" in name for name in trained):
        return ("lora" if count <= 0.5 * whole else "much"), {}
    return ("full" if count == whole else "part"), {}


def _require_kinds(kinds: set[str]) -> None:
    whole = "full" in kinds
    require(whole, "No training changes all parameters: full fine-tuning has no model_transform.")
    has_lora = kinds & {"lora", "much"}
    require(has_lora, "No training has LoRA's adapters: give train a model_transform.")
    require("lora" in kinds, "The LoRA variant trains more than half of the parameters.")


@checks_exercise()
def check_lora_experiment(answer: Callable) -> Iterator[Output]:
    """``answer(train) -> dict``: paired accuracies, their interval in points, the verdict."""
    yield from compare_planted(answer, _describe_training, ("full", "lora"), _require_kinds)


@checks_exercise()
def check_lora_forward(answer: Callable) -> Iterator[Output]:
    """``answer(x, weight, A, B, alpha) -> (N, d)``: x Wᵀ + (α / r) x Aᵀ Bᵀ."""
    # batch size, outputs, inputs, rank, alpha
    for n, d, k, rank, alpha in ((3, 5, 7, 2, 9.0), (4, 6, 6, 3, 1.0), (2, 4, 9, 1, 5.0)):
        x, weight, a, b = [torch.randn(size) for size in ((n, k), (d, k), (rank, k), (d, rank))]
        given = [tensor.clone() for tensor in (x, weight, a, b)]
        found = answer(*given, alpha)
        untouched = all(map(torch.equal, given, (x, weight, a, b)))
        require(untouched, "It changes the tensors that it is given: compute new ones.")
        require(isinstance(found, Tensor), "Return a tensor: is there a return?")
        size = tuple(found.shape)
        require(size == (n, d), f"The output is (N, d) = {(n, d)}, not {size}.")
        yield Output(
            found,
            _describe_scale(found - x @ weight.T, x @ a.T @ b.T, alpha / rank)
            or "The values differ from x @ weight.T + alpha / r · x @ A.T @ B.T.",
        )


def _describe_scale(found: Tensor, update: Tensor, right: float) -> str:
    """The factor of the update that gives ``found``, in a sentence, if there is one."""
    scale = ((found * update).sum() / update.square().sum()).item()
    if not is_near(found, scale * update, ROUNDING):
        return ""
    return f"The update is scaled by {scale:.3g}; here alpha / r is {right:.3g}."


@checks_exercise()
def check_adapter(answer: Callable) -> None:
    """``answer(base, rank, alpha)``: starts as ``base``, trains two matrices, merges once."""
    for rank, alpha in ((2, 8.0), (3, 4.5)):
        base, x = nn.Linear(6, 5), torch.randn(4, 6)
        original, scale = copy.deepcopy(base), alpha / rank
        adapter = answer(base, rank, alpha)
        kept = isinstance(getattr(adapter, "base", None), nn.Linear)
        require(kept, "Keep the layer as self.base.")
        start = original(x).detach()  # (N, out)
        same = is_near(adapter(x), start, 1e-6)
        require(same, "It does not start as base: at the start B A must be 0.")
        a, b = _find_matrices(adapter, rank)
        nn.init.normal_(a)
        nn.init.normal_(b)
        update = (x @ a.T @ b.T).detach()  # (N, in) -> (N, r) -> (N, out)
        output = adapter(x)
        require(output.requires_grad, "No gradient reaches A and B: a detach() or no_grad()?")
        found = output.detach() - start
        by_alpha = is_near(found, alpha * update, ROUNDING)
        require(not by_alpha, "The update is scaled by alpha: divide by the rank.")
        otherwise = _describe_scale(found, update, scale) or "forward is not base + α/r · B A x."
        require(is_near(found, scale * update, ROUNDING), otherwise)
        _check_merge(adapter, x, original, (b @ a).detach(), scale)


def _find_matrices(adapter: nn.Module, rank: int) -> list[nn.Parameter]:
    """A (rank, 6) and B (5, rank), by their shapes: an answer gives them names of its own."""
    trained = {name: p for name, p in adapter.named_parameters() if p.requires_grad}
    of_base = [name for name in trained if name.startswith("base.")]
    require(not of_base, f"{', '.join(of_base)} must be frozen.")
    require(trained, "Nothing is trained: A and B must be parameters, nn.Parameter.")
    matrices = sorted(trained.values(), key=lambda p: p.shape != (rank, 6))
    shapes = [tuple(p.shape) for p in matrices]
    wanted = [(rank, 6), (5, rank)]
    require(shapes == wanted, f"Train A (rank, in) and B (out, rank), {wanted}, not {shapes}.")
    learns = any(p.any() for p in matrices)  # either may start at 0
    require(learns, "A and B are both zero: then both gradients are zero, and it never learns.")
    return matrices


def _check_merge(adapter: Any, x: Tensor, old: nn.Linear, product: Tensor, scale: float) -> None:
    """``merge()`` puts the update, scale · product, into the weight of base, once."""
    expected = adapter(x).detach()
    adapter.merge()
    base, merged = adapter.base, adapter.base.weight.detach().clone()
    added = merged - old.weight.detach()
    require(added.any(), "merge() has not changed the weight of base.")
    factor = (added * product).sum() / product.square().sum()
    along = is_near(added, factor * product, ROUNDING)
    require(along, "What merge() adds to the weight of base is not α/r · B A.")
    otherwise = f"merge() adds {factor:.3g} · B A to the weight of base; here α/r is {scale:.3g}."
    require(is_near(added, scale * product, ROUNDING), otherwise)
    same = base.bias is not None and torch.equal(base.bias, old.bias)
    require(same, "merge() has changed the bias of base, which the update does not concern.")
    twice = is_near(adapter(x), expected + scale * x @ product.T, ROUNDING)
    require(not twice, "After merge() the update counts twice: forward still adds it.")
    require(is_near(adapter(x), expected, ROUNDING), "merge() has changed the output.")
    adapter.merge()
    require(
        is_near(adapter.base.weight, merged, ROUNDING) and is_near(adapter(x), expected, ROUNDING),
        "A second merge() has changed the weight of base or the output: remember the first.",
    )
    require(not adapter.base.weight.requires_grad, "After merge() the weight of base is trainable.")


@checks_exercise()
def check_make_control(answer: Callable) -> None:
    """``answer(model, layers) -> model``: the layers and the head in full, the rest frozen."""
    for name, layers in CONTROLS:
        original = create_model(name, num_classes=7)
        model = answer(copy.deepcopy(original), layers)
        require(isinstance(model, nn.Module), "Return the model.")
        _check_trained_layers(model, original, layers)
        if name == "convnet_small":
            _check_statistics(model)


def _check_trained_layers(model: nn.Module, original: nn.Module, layers: str) -> None:
    """Trained are the weights of the layers, and the head; whether biases are is left open."""
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    adapted = any(".lora_" in name for name, _ in model.named_parameters())
    require(not adapted, "The control has adapters: LoRA is what it must not have.")
    everything = {name for name, _ in original.named_parameters()}
    freezes = bool(everything - trained)
    require(freezes, "Nothing is frozen: that is full fine-tuning, which differs in two things.")
    require(trained, "Nothing is trained: requires_grad_(True) for the layers and the head.")
    names = [name for name, _ in original.named_modules() if re.fullmatch(layers, name)]
    wanted = {f"{name}.weight" for name in names}
    missing = sorted(wanted - trained)
    require(
        not missing,
        f"With the pattern {layers}, {missing[:1]} is frozen: train in full what gets adapters.",
    )
    require({"fc.weight", "fc.bias"} <= trained, "The head is frozen, and the colleague trains it.")
    extra = sorted(trained - wanted - {f"{name}.bias" for name in names} - {"fc.weight", "fc.bias"})
    require(
        not extra,
        f"With the pattern {layers}, {extra[:1]} is trained, and the colleague freezes it.",
    )


def _check_statistics(model: nn.Module) -> None:
    """In training mode BatchNorm normalises with its running statistics and leaves them alone."""
    before = copy.deepcopy(dict(model.named_buffers()))
    images = torch.randn(16, 3, 32, 32)
    model.train()
    with torch.no_grad():
        alone, together = model(images[:8]), model(images)[:8]
    moved = [
        name for name, x in model.named_buffers() if "running" in name and x.ne(before[name]).any()
    ]
    same = torch.allclose(alone, together, atol=1e-3)
    require(
        not moved and same,
        'BatchNorm is not frozen, and the colleague\'s is: freeze_before(model, "fc") does it.',
    )
