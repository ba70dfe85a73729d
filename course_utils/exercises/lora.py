"""Checks of the exercises of lesson 03."""

import copy
import math
import re
from collections.abc import Callable

import torch
from torch import nn

from course_utils.exercises.checking import checks_exercise, require
from course_utils.models.create import create_model

__all__ = ["check_adapt", "check_adapter", "check_lora_forward"]


@checks_exercise
def check_lora_forward(answer: Callable) -> None:
    """``answer(x, weight, A, B, alpha) -> (N, d)``: x Wᵀ + (α / r) x Aᵀ Bᵀ."""
    for n, d, k, rank, alpha in ((3, 5, 7, 2, 6.0), (4, 6, 6, 3, 1.0), (2, 4, 9, 1, 5.0)):
        x, weight, a, b = (torch.randn(s) for s in ((n, k), (d, k), (rank, k), (d, rank)))
        found = answer(x, weight, a, b, alpha)
        require(isinstance(found, torch.Tensor), "Return a tensor: is there a return?")
        require(
            found.shape == (n, d), f"The output is (N, d) = {(n, d)}, not {tuple(found.shape)}."
        )
        update = x @ a.T @ b.T
        mistakes = {
            "The update is missing: add the path through A and B.": 0.0,
            "The update is not scaled: multiply it by alpha / r.": 1.0,
            "The update is scaled by alpha: divide by the rank, alpha / r.": alpha,
            "The update is scaled by 1 / r: alpha is missing.": 1 / rank,
            "That divides by the input's size: the rank is A.shape[0].": alpha / k,
            "That divides by the output's size: the rank is A.shape[0].": alpha / d,
            "The scale is alpha / √r (rank-stabilised LoRA); here it is alpha / r.": alpha
            / math.sqrt(rank),
        }
        if torch.allclose(found, x @ weight.T + alpha / rank * update, atol=1e-4):
            continue
        for sentence, scale in mistakes.items():
            close = torch.allclose(found, x @ weight.T + scale * update, atol=1e-4)
            require(not close, sentence)
        require(
            not torch.allclose(found, alpha / rank * update, atol=1e-4),
            "The frozen layer is missing: its output x @ weight.T stays.",
        )
        require(False, "The values differ from x @ weight.T + alpha / r · x @ A.T @ B.T.")


def _check_one_adapter(answer: Callable, rank: int, alpha: float) -> None:
    base, x = nn.Linear(6, 5), torch.randn(4, 6)
    original, scale = copy.deepcopy(base), alpha / rank
    adapter = answer(base, rank, alpha)
    require(isinstance(adapter, nn.Module), "Adapter must be an nn.Module.")
    require(isinstance(getattr(adapter, "base", None), nn.Linear), "Keep the layer as self.base.")
    expected = original(x).detach()
    require(torch.allclose(adapter(x), expected, atol=1e-6), "It does not start as base: B is 0.")
    trained = {name: p for name, p in adapter.named_parameters() if p.requires_grad}
    require(
        not any(name.startswith("base.") for name in trained), "The weights of base must be frozen."
    )
    shapes = sorted(tuple(p.shape) for p in trained.values())
    require(
        shapes == sorted([(rank, 6), (5, rank)]),
        f"Train A (rank, in) and B (out, rank), not {shapes}.",
    )
    a, b = sorted(trained.values(), key=lambda p: p.shape != (rank, 6))
    require(
        a.abs().sum() + b.abs().sum() > 0,
        "A and B are both zero: then both gradients are zero, and it never learns.",
    )
    require(not b.abs().sum(), "A is zero and B random; by convention it is B that starts at 0.")
    nn.init.normal_(b)
    update = (x @ a.T @ b.T).detach()
    require(
        not torch.allclose(adapter(x), expected + alpha * update, atol=1e-4),
        "The update is scaled by alpha: divide by the rank.",
    )
    expected = expected + scale * update
    require(torch.allclose(adapter(x), expected, atol=1e-4), "forward is not base + α/r · B A x.")
    require(adapter(x).requires_grad, "No gradient reaches A and B: a detach() or no_grad()?")
    adapter.merge()
    require(
        not torch.allclose(adapter.base.weight, original.weight),
        "merge() has not changed the weight of base.",
    )
    require(
        not torch.allclose(adapter(x), expected + scale * update, atol=1e-4),
        "After merge() the update counts twice: forward still adds it.",
    )
    require(torch.allclose(adapter(x), expected, atol=1e-4), "merge() has changed the output.")
    adapter.merge()
    require(
        torch.allclose(adapter(x), expected, atol=1e-4),
        "A second merge() has changed the output: remember that it is merged.",
    )
    require(not adapter.base.weight.requires_grad, "After merge() the weight of base is trainable.")


@checks_exercise
def check_adapter(answer: Callable) -> None:
    """``answer(base, rank, alpha)``: starts as ``base``, trains two matrices, merges once."""
    _check_one_adapter(answer, rank=2, alpha=8.0)
    _check_one_adapter(answer, rank=3, alpha=4.5)


@checks_exercise
def check_adapt(answer: Callable) -> None:
    """``answer(model, rank) -> model``: adapters in the stages, a trained head, the rest still."""
    model = create_model("resnet_tiny", num_classes=7)
    images = torch.randn(16, 3, 32, 32)
    found = answer(model, 2)
    require(isinstance(found, nn.Module), "Return the model.")
    trained = {name: p for name, p in found.named_parameters() if p.requires_grad}
    there = any(".lora_A" in name for name, _ in found.named_parameters())
    require(
        not there or any(".lora_A" in name for name in trained),
        "The adapters themselves are frozen: freeze first, adapt then.",
    )
    ranks = {p.shape[0] for name, p in trained.items() if ".lora_A" in name}
    adapted = {name.split(".lora_")[0] for name in trained if ".lora_" in name}
    require(
        not any(re.search(r"(^|model\.)conv1$", name) for name in adapted),
        'The stem has an adapter: a list like ["conv1"] matches by the end of a name.',
    )
    wanted = {f"layer{stage}.0.conv{k}" for stage in (1, 2, 3, 4) for k in (1, 2)}
    missing = sorted(name for name in wanted if not any(a.endswith(name) for a in adapted))
    require(not missing, f"No adapter on {', '.join(missing)}.")
    head = [name for name in trained if re.search(r"(^|\.)fc\.", name) and ".lora_" not in name]
    require(
        len(head) == 2,
        "The new head is frozen with its random weights: modules_to_save trains it as a whole.",
    )
    extra = sorted(name for name in adapted if not name.endswith(tuple(wanted)))
    require(not extra, f"{', '.join(extra)} should have no adapter.")
    require(ranks == {2}, f"The rank was to be 2, the adapters have {sorted(ranks)}.")
    others = [name for name in trained if ".lora_" not in name and name not in head]
    require(not others, f"{', '.join(others[:2])} should be frozen.")
    buffers = {name: x.clone() for name, x in found.named_buffers() if "running" in name}
    found.train()
    with torch.no_grad():
        alone, together = found(images[:8]), found(images)[:8]
    moved = [n for n, x in found.named_buffers() if n in buffers and not torch.equal(x, buffers[n])]
    require(
        not moved,
        "The running statistics of BatchNorm move in training: freeze them before adapting.",
    )
    require(
        torch.allclose(alone, together, atol=1e-3),
        "BatchNorm normalises with the batch's own statistics: what an image becomes depends on "
        "its neighbours.",
    )
