"""Checks of the exercises of lesson 03."""

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from course_utils.checking.checking import checks_exercise, require
from course_utils.checking.outputs import Output, is_near
from course_utils.measure.paired import paired_difference
from course_utils.models.create import create_model

__all__ = ["check_adapter", "check_lora_experiment", "check_lora_forward", "check_make_control"]

# mean difference and spread of LoRA minus full fine-tuning, in points, for each verdict
PLANTED = ((6.0, 1.0), (-6.0, 1.0), (0.0, 0.1), (1.0, 4.0))
ROUNDING = 1e-4
REASONS = {
    "helps": "LoRA helps where its interval lies above 0",
    "hurts": "LoRA hurts where its interval lies below 0",
    "equivalent": "an interval within ±1 point is equivalent",
    "inconclusive": "equivalent needs the whole interval within ±1 point, and this one contains 0",
}
# networks with the layers that get adapters, as a pattern of their full names
CONTROLS = (("text_small", r"layer\d\.(q|v)"), ("convnet_small", r"layer[34]\.0\.conv\d?"))


class _PlantedTrainings:
    """In place of trainings, ``train(options, seeds)``: accuracies that are known."""

    def __init__(self, mean: float, spread: float) -> None:
        self.mean, self.spread = mean, spread
        self.calls: list[tuple[str, tuple, np.ndarray]] = []  # what is trained, seeds, accuracies

    def __call__(self, options: Mapping, seeds: Sequence[int]) -> np.ndarray:
        model = create_model("text_small", num_classes=7)
        whole = sum(p.numel() for p in model.parameters())
        model = (options.get("model_transform") or nn.Identity())(model)
        trained = {name: p.numel() for name, p in model.named_parameters() if p.requires_grad}
        count = sum(trained.values())
        points = np.random.default_rng(17).normal(60, 5, len(seeds))
        kind = "full" if count == whole else "part"
        if any(".lora_" in name for name in trained):
            kind = "lora" if count <= 0.5 * whole else "much"
            points += self.mean + self.spread * (-1.0) ** np.arange(len(seeds))
        self.calls.append((kind, tuple(seeds), points / 100))
        return points / 100


@checks_exercise()
def check_lora_experiment(answer: Callable) -> Iterator[Output]:
    """``answer(train) -> dict``: paired accuracies, their interval in points, the verdict."""
    for mean, spread in PLANTED:
        train = _PlantedTrainings(mean, spread)
        found = answer(train)
        require(isinstance(found, dict), "Return a dictionary: is there a return?")
        missing = sorted({"full", "lora", "low", "high", "verdict"} - found.keys())
        require(not missing, f"The dictionary lacks {', '.join(missing)}.")
        _check_trainings(train, found)
        right = paired_difference(found["full"], found["lora"])
        interval, verdict = f"{right.format_interval(100)} points", right.verdict()
        half = 50 * (right.high - right.low)
        yield Output(
            # from -1 to 1, whatever the accuracies are
            [(found[edge] - 100 * right.mean) / half for edge in ("low", "high")],
            "low and high are not the 95 % interval of the accuracies that you return: that is "
            f"{interval}.",
            fault_tolerance=1e-4,
        )
        told, reason = found["verdict"], REASONS[verdict]
        require(told == verdict, f"The interval {interval} is {verdict}, not {told}: {reason}.")


def _check_trainings(train: _PlantedTrainings, found: Mapping) -> None:
    """Both variants were trained, over the same seeds, and ``found`` has their accuracies."""
    kinds = {kind for kind, _, _ in train.calls}
    require(kinds, "Nothing was trained: call train(options, seeds) for both variants.")
    whole = "full" in kinds
    require(whole, "No training changes all parameters: full fine-tuning has no model_transform.")
    has_lora = kinds & {"lora", "much"}
    require(has_lora, "No training has LoRA's adapters: give train a model_transform.")
    require("lora" in kinds, "The LoRA variant trains more than half of the parameters.")
    full, lora = (_find_seeds(train, name, found[name]) for name in ("full", "lora"))
    both = [seeds for seeds in full if seeds in lora]
    require(both, f"full has the seeds {full[0]}, lora {lora[0]}: pair them.")
    once = len(set(both[0])) == len(both[0])
    require(once, "A seed is there twice: its accuracy counts twice.")
    require(len(both[0]) >= 3, "An interval needs three seeds or more.")


def _find_seeds(train: _PlantedTrainings, name: str, values: object) -> list[tuple]:
    """The seeds of the trainings that gave these accuracies."""
    trainings = [(seeds, right) for kind, seeds, right in train.calls if kind == name]
    same = [seeds for seeds, right in trainings if is_near(values, right, 1e-9)]
    require(same, f"{name} does not hold the accuracies of its training, one per seed in [0, 1].")
    return same


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
