"""Checks of the exercises of lesson 03."""

import copy
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from scipy import stats
from torch import Tensor, nn

from course_utils.checking.checking import Faults, checks_exercise, diagnose, fail, require
from course_utils.measure.paired import PairedDifference, paired_difference
from course_utils.models.create import create_model

__all__ = ["check_adapt", "check_adapter", "check_lora_experiment", "check_lora_forward"]

# What the planted trainings give: mean difference and spread of LoRA minus full fine-tuning, in
# points, for each verdict.
CASES = {
    "helps": (6.0, 1.0),
    "hurts": (-6.0, 1.0),
    "equivalent": (0.0, 0.1),
    "inconclusive": (1.0, 4.0),
}
KEYS = {"full", "lora", "low", "high", "verdict"}
# of `convnet_small`, behind its stem
CONVOLUTIONS = (
    "layer1.0.conv",
    "layer2.0.conv",
    "layer3.0.conv",
    "layer4.0.conv1",
    "layer4.0.conv2",
)


class _Training(NamedTuple):
    """What one call of `_PlantedTrainings` was asked for, and what it gave."""

    trained: int  # parameters with gradients
    whole: int  # all parameters before the model seam
    has_lora: bool
    seeds: tuple[int, ...]
    accuracies: np.ndarray  # one per seed, in [0, 1]


class _PlantedTrainings:
    """In place of trainings: accuracies that are known, and a record of what was asked for.

    It is called as ``train(options, seeds)``, and makes the model to see what would be trained.
    """

    def __init__(self, case: str):
        self.mean, self.spread = CASES[case]
        self.calls: list[_Training] = []

    def __call__(self, options: Mapping, seeds: Sequence[int]) -> np.ndarray:
        model = create_model("convnet_small", num_classes=7)
        whole = sum(p.numel() for p in model.parameters())
        model = (options.get("model_transform") or nn.Identity())(model)
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        count = sum(p.numel() for p in trained.values())
        has_lora = any(".lora_" in name for name in trained)
        accuracies = self._draw(seeds, has_lora)
        self.calls.append(_Training(count, whole, has_lora, tuple(seeds), accuracies))
        return accuracies.copy()

    def _draw(self, seeds: Sequence[int], has_lora: bool) -> np.ndarray:
        """The accuracies: seeds differ by what both variants share, LoRA by the planted effect."""
        rng = np.random.default_rng(17)
        points = 60 + rng.normal(0, 5, len(seeds))
        if has_lora:
            own = rng.normal(0, 1, len(seeds))
            own -= own.mean()
            points = points + self.mean + self.spread * own / (float(own.std()) or 1.0)
        return points / 100


Rule = Callable[[np.ndarray, np.ndarray], tuple[float, float]]


def _paired_interval(full: np.ndarray, lora: np.ndarray) -> tuple[float, float]:
    found = paired_difference(full, lora)
    return 100 * found.low, 100 * found.high


def _wrong_interval(
    full: np.ndarray, lora: np.ndarray, factor: float = 0, ddof: int = 1, n: int = 0
) -> tuple[float, float]:
    """The paired interval with one thing changed: its factor, its spread or the number of seeds."""
    difference = 100 * (lora - full)
    factor = factor or stats.t.ppf(0.975, len(difference) - 1)
    half = factor * difference.std(ddof=ddof) / math.sqrt(n or len(difference))
    return difference.mean() - half, difference.mean() + half


def _unpaired_interval(full: np.ndarray, lora: np.ndarray) -> tuple[float, float]:
    found = stats.ttest_ind(lora, full, equal_var=False).confidence_interval(0.95)
    return 100 * found.low, 100 * found.high


def _reversed_interval(full: np.ndarray, lora: np.ndarray) -> tuple[float, float]:
    return _paired_interval(lora, full)


def _interval_in_units(full: np.ndarray, lora: np.ndarray) -> tuple[float, float]:
    low, high = _paired_interval(full, lora)
    return low / 100, high / 100


def _judge(low: float, high: float) -> str:
    """The verdict on an interval in points."""
    return PairedDifference((low + high) / 2, low, high, n=2).verdict(margin=1)


def _run_experiment(
    train: Callable,
    rule: Rule = _paired_interval,
    judge: Callable[[float, float], str] = _judge,
    seeds: Sequence[int] = (0, 1, 2, 3),
) -> dict:
    """A right answer, unless the interval or the verdict is found by another rule."""

    def adapt(model: nn.Module) -> nn.Module:
        found = [name for name, _ in model.named_modules() if "conv" in name and "layer" in name]
        return get_peft_model(model, LoraConfig(r=2, target_modules=found, modules_to_save=["fc"]))

    full = train({"pretrained": True}, seeds)
    lora = train({"pretrained": True, "model_transform": adapt}, seeds)
    low, high = rule(full, lora)
    return {"full": full, "lora": lora, "low": low, "high": high, "verdict": judge(low, high)}


INTERVAL_FAULTS: tuple[tuple[str, Rule], ...] = (
    ("The interval has the wrong sign: it is of LoRA minus full fine-tuning.", _reversed_interval),
    ("The interval is unpaired: take the differences seed by seed first.", _unpaired_interval),
    ("The interval uses 1.96; with so few seeds take the t distribution, or paired_difference.",
     partial(_wrong_interval, factor=1.96)),
    ("The interval takes the standard deviation with ddof=0: few seeds need ddof=1.",
     partial(_wrong_interval, ddof=0)),
    ("The interval is not divided by √n: it is about the mean difference, not about one seed.",
     partial(_wrong_interval, n=1)),
    ("The interval is one standard error wide: a 95 % interval is wider.",
     partial(_wrong_interval, factor=1.0)),
    ("The interval is in units of 1, not in points: multiply by 100.",
     _interval_in_units),
)  # fmt: skip
VERDICT_FAULTS: Faults = (
    ("equivalent needs the whole interval within ±1 point",
     partial(_run_experiment, judge=lambda low, high: "equivalent" if low < 0 < high
             else _judge(low, high))),
    ("an interval within ±1 point is equivalent",
     partial(_run_experiment, judge=lambda low, high: "inconclusive" if low < 0 < high
             else _judge(low, high))),
    ("LoRA helps where its interval lies above 0",
     partial(_run_experiment, judge=lambda low, high: {"helps": "hurts", "hurts": "helps"}.get(
         _judge(low, high), _judge(low, high)))),
)  # fmt: skip
EXPERIMENT_FAULTS: Faults = [
    (sentence, partial(_run_experiment, rule=rule)) for sentence, rule in INTERVAL_FAULTS
] + list(VERDICT_FAULTS)


@checks_exercise(faults=EXPERIMENT_FAULTS)
def check_lora_experiment(answer: Callable) -> None:
    """``answer(train) -> dict``: paired accuracies, their interval in points, the verdict.

    The trainings are planted, so that the check takes a second and knows every accuracy.
    """
    for case in CASES:
        train = _PlantedTrainings(case)
        found = answer(train)
        require(isinstance(found, dict), "Return a dictionary: is there a return?")
        missing = sorted(KEYS - found.keys())
        require(not missing, f"The dictionary lacks {', '.join(missing)}.")
        full, lora = _check_trainings(train, found)
        expected = _paired_interval(full, lora)
        diagnose(
            [found["low"], found["high"]],
            lambda rule: rule(full, lora),  # noqa: B023
            _paired_interval,
            INTERVAL_FAULTS,
            "low and high are not the 95 % interval of the accuracies that you return: that is "
            f"{expected[0]:+.2f} to {expected[1]:+.2f} points.",
        )
        _check_verdict(found["verdict"], *expected)


def _check_trainings(train: _PlantedTrainings, found: Mapping) -> tuple[np.ndarray, np.ndarray]:
    """The accuracies ``full`` and ``lora`` as they were trained, over the same seeds."""
    require(train.calls, "Nothing was trained: call train(options, seeds) for both variants.")
    whole = [x for x in train.calls if x.trained == x.whole and not x.has_lora]
    adapters = [x for x in train.calls if x.has_lora]
    require(whole, "No training changes all parameters: full fine-tuning has no model_transform.")
    require(adapters, "No training has LoRA's adapters: give train a model_transform.")
    few = [x for x in adapters if x.trained <= 0.5 * x.whole]
    require(few, "The LoRA variant trains more than half of the parameters.")
    full = _find_training(found["full"], whole, "full")
    lora = _find_training(found["lora"], few, "lora")
    seeds = full.seeds
    require(seeds == lora.seeds, f"full has the seeds {seeds}, lora {lora.seeds}: pair them.")
    require(len(set(seeds)) == len(seeds), "A seed is there twice: its accuracy counts twice.")
    require(len(seeds) >= 3, "An interval needs three seeds or more.")
    return full.accuracies, lora.accuracies


def _find_training(values: object, calls: Sequence[_Training], name: str) -> _Training:
    """The training that gave these accuracies."""
    given = np.asarray(values, dtype=float)
    same = [x for x in calls if given.shape == x.accuracies.shape]
    same = [x for x in same if np.allclose(given, x.accuracies, atol=1e-9)]
    require(same, f"{name} does not hold the accuracies of its training, one per seed in [0, 1].")
    return same[0]


def _check_verdict(verdict: object, low: float, high: float) -> None:
    expected = _judge(low, high)
    interval = f"{low:+.2f} to {high:+.2f} points"
    reasons = {
        "helps": "LoRA helps where its interval lies above 0",
        "hurts": "LoRA hurts where its interval lies below 0",
        "equivalent": "an interval within ±1 point is equivalent",
        "inconclusive": "equivalent needs the whole interval within ±1 point, "
        "and this one contains 0",
    }
    require(
        verdict == expected,
        f"The interval {interval} is {expected}, not {verdict}: {reasons[expected]}.",
    )


def _forward(
    x: Tensor,
    weight: Tensor,
    a: Tensor,
    b: Tensor,
    alpha: float,
    scale: Callable[[float, int, int, int], float] = lambda alpha, r, k, d: alpha / r,
) -> Tensor:
    """The oracle, unless ``scale(alpha, r, k, d)`` is another factor of the update."""
    r, k = a.shape
    update = x @ a.T @ b.T  # (N, k) -> (N, r) -> (N, d)
    return x @ weight.T + scale(alpha, r, k, len(b)) * update


# fmt: off
FORWARD_FAULTS: Faults = (
    ("The update is missing: add the path through A and B.",
     partial(_forward, scale=lambda alpha, r, k, d: 0)),
    ("The update is not scaled: multiply it by alpha / r.",
     partial(_forward, scale=lambda alpha, r, k, d: 1)),
    ("The update is scaled by alpha: divide by the rank, alpha / r.",
     partial(_forward, scale=lambda alpha, r, k, d: alpha)),
    ("The update is scaled by 1 / r: alpha is missing.",
     partial(_forward, scale=lambda alpha, r, k, d: 1 / r)),
    ("That divides by the input's size: the rank is A.shape[0].",
     partial(_forward, scale=lambda alpha, r, k, d: alpha / k)),
    ("That divides by the output's size: the rank is A.shape[0].",
     partial(_forward, scale=lambda alpha, r, k, d: alpha / d)),
    ("The scale is alpha / √r (rank-stabilised LoRA); here it is alpha / r.",
     partial(_forward, scale=lambda alpha, r, k, d: alpha / math.sqrt(r))),
    ("The scale is rounded down to a whole number: divide alpha by r with /.",
     partial(_forward, scale=lambda alpha, r, k, d: alpha // r)),
    ("The update is scaled twice: once by alpha / r is enough.",
     partial(_forward, scale=lambda alpha, r, k, d: (alpha / r) ** 2)),
    ("The frozen layer is scaled too: alpha / r belongs to the update alone.",
     lambda x, weight, a, b, alpha: alpha / len(a) * _forward(
         x, weight, a, b, alpha, scale=lambda *sizes: 1)),
    ("There is an activation between A and B: the update is linear.",
     lambda x, weight, a, b, alpha: x @ weight.T + alpha / len(a) * (x @ a.T).relu() @ b.T),
    ("The frozen layer is missing: its output x @ weight.T stays.",
     lambda x, weight, a, b, alpha: _forward(x, 0 * weight, a, b, alpha)),
)
# fmt: on


@checks_exercise(faults=FORWARD_FAULTS)
def check_lora_forward(answer: Callable) -> None:
    """``answer(x, weight, A, B, alpha) -> (N, d)``: x Wᵀ + (α / r) x Aᵀ Bᵀ."""
    # batch size, outputs, inputs, rank, alpha
    for n, d, k, rank, alpha in ((3, 5, 7, 2, 9.0), (4, 6, 6, 3, 1.0), (2, 4, 9, 1, 5.0)):
        x = torch.randn(n, k)
        weight = torch.randn(d, k)
        a = torch.randn(rank, k)
        b = torch.randn(d, rank)
        arguments = (x, weight, a, b, alpha)
        given = (x.clone(), weight.clone(), a.clone(), b.clone(), alpha)
        found = answer(*given)
        untouched = all(map(torch.equal, given[:4], arguments[:4]))
        require(untouched, "It changes the tensors that it is given: compute new ones.")
        require(isinstance(found, Tensor), "Return a tensor: is there a return?")
        require(
            found.shape == (n, d), f"The output is (N, d) = {(n, d)}, not {tuple(found.shape)}."
        )
        diagnose(
            found,
            lambda other: other(*arguments),  # noqa: B023
            _forward,
            FORWARD_FAULTS,
            _describe_scale(
                found - x @ weight.T,
                x @ a.T @ b.T,
                alpha / rank,
                "The values differ from x @ weight.T + alpha / r · x @ A.T @ B.T.",
            ),
        )


def _describe_scale(found: Tensor, update: Tensor, right: float, otherwise: str) -> str:
    """The factor of the update (N, d) that gives ``found``, in a sentence, if there is one."""
    scale = ((found * update).sum() / update.square().sum()).item()
    if not _close(found, scale * update):
        return otherwise
    return f"The update is scaled by {scale:.3g}; here alpha / r is {right:.3g}."


def _close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, atol=1e-4)


@checks_exercise()
def check_adapter(answer: Callable) -> None:
    """``answer(base, rank, alpha)``: starts as ``base``, trains two matrices, merges once."""
    _check_one_adapter(answer, rank=2, alpha=8.0)
    _check_one_adapter(answer, rank=3, alpha=4.5)


def _check_one_adapter(answer: Callable, rank: int, alpha: float) -> None:
    base = nn.Linear(6, 5)
    x = torch.randn(4, 6)
    original = copy.deepcopy(base)
    adapter = answer(base, rank, alpha)
    require(isinstance(adapter, nn.Module), "Adapter must be an nn.Module.")
    require(isinstance(getattr(adapter, "base", None), nn.Linear), "Keep the layer as self.base.")
    start = original(x).detach()  # (N, out)
    same = torch.allclose(adapter(x), start, atol=1e-6)
    require(same, "It does not start as base: at the start B A must be 0.")
    a, b = _find_matrices(adapter, rank)
    nn.init.normal_(a)
    nn.init.normal_(b)
    update = (x @ a.T @ b.T).detach()  # (N, in) -> (N, r) -> (N, out)
    output = adapter(x)
    require(output.requires_grad, "No gradient reaches A and B: a detach() or no_grad()?")
    found = output.detach() - start
    require(
        not _close(found, alpha * update),
        "The update is scaled by alpha: divide by the rank.",
    )
    scale = alpha / rank
    otherwise = "forward is not base + α/r · B A x."
    require(_close(found, scale * update), _describe_scale(found, update, scale, otherwise))
    _check_merge(adapter, x, original, (b @ a).detach(), scale)


def _find_matrices(adapter: nn.Module, rank: int) -> tuple[nn.Parameter, nn.Parameter]:
    """A (rank, 6) and B (5, rank), by their shapes: an answer gives them names of its own."""
    trained = {name: p for name, p in adapter.named_parameters() if p.requires_grad}
    of_base = [name for name in trained if name.startswith("base.")]
    require(not of_base, f"{', '.join(of_base)} must be frozen.")
    require(trained, "Nothing is trained: A and B must be parameters, nn.Parameter.")
    shapes = sorted(tuple(p.shape) for p in trained.values())
    require(
        shapes == sorted([(rank, 6), (5, rank)]),
        f"Train A (rank, in) and B (out, rank), here {(rank, 6)} and {(5, rank)}, not {shapes}.",
    )
    a, b = sorted(trained.values(), key=lambda p: p.shape != (rank, 6))
    # Either may start at 0, but not both.
    require(
        a.abs().sum() + b.abs().sum() > 0,
        "A and B are both zero: then both gradients are zero, and it never learns.",
    )
    return a, b


def _check_merge(
    adapter: Any, x: Tensor, original: nn.Linear, product: Tensor, scale: float
) -> None:
    """``merge()`` puts the update into the weight of base, once, and the output stays.

    ``original``: a copy of base; ``product``: B A (out, in); ``scale``: α / r.
    """
    expected = adapter(x).detach()
    adapter.merge()
    base = adapter.base
    require(
        not torch.allclose(base.weight, original.weight),
        "merge() has not changed the weight of base.",
    )
    added = base.weight.detach() - original.weight.detach()
    factor = (added * product).sum() / product.square().sum()
    otherwise = "What merge() adds to the weight of base is not α/r · B A."
    if _close(added, factor * product):
        otherwise = (
            f"merge() adds {factor:.3g} · B A to the weight of base; here α/r is {scale:.3g}."
        )
    update = scale * product
    require(_close(added, update), otherwise)
    require(
        base.bias is not None and torch.equal(base.bias, original.bias),
        "merge() has changed the bias of base, which the update does not concern.",
    )
    require(
        not _close(adapter(x), expected + x @ update.T),
        "After merge() the update counts twice: forward still adds it.",
    )
    require(_close(adapter(x), expected), "merge() has changed the output.")
    merged = base.weight.detach().clone()
    adapter.merge()
    require(
        _close(adapter.base.weight, merged) and _close(adapter(x), expected),
        "A second merge() has changed the weight of base or the output: remember the first.",
    )
    require(not adapter.base.weight.requires_grad, "After merge() the weight of base is trainable.")


@checks_exercise()
def check_adapt(answer: Callable) -> None:
    """``answer(model, rank) -> model``: adapters in the layers, a trained head, the rest still."""
    model = create_model("convnet_small", num_classes=7)
    images = torch.randn(16, 3, 32, 32)
    found = answer(model, 2)
    require(isinstance(found, nn.Module), "Return the model.")
    _check_trained_parameters(found, rank=2)
    _check_batch_norm(found, images)


def _check_trained_parameters(model: nn.Module, rank: int) -> None:
    """Trained are the adapters of all convolutions in the four layers, and the head."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    there = any(".lora_A" in name for name, _ in model.named_parameters())
    require(
        not there or any(".lora_A" in name for name in trained),
        "The adapters themselves are frozen: freeze first, adapt then.",
    )
    ranks = {p.shape[0] for name, p in trained.items() if ".lora_A" in name}
    adapted = {name.split(".lora_")[0] for name in trained if ".lora_" in name}
    require(
        not any(re.search(r"(^|\.)stem\.conv$", name) for name in adapted),
        'The stem has an adapter: a list like ["conv"] matches by the end of a name.',
    )
    missing = [name for name in CONVOLUTIONS if not any(a.endswith(name) for a in adapted)]
    require(not missing, f"No adapter on {', '.join(missing)}.")
    # PEFT puts a prefix before the names, and a suffix after that of a module to save. Of that
    # it keeps the original too, which takes no part any more.
    head = [name for name in trained if re.search(r"(^|\.)fc\.", name) and ".lora_" not in name]
    require(
        len([name for name in head if ".original_module." not in name]) == 2,
        "The new head is frozen with its random weights: modules_to_save trains it as a whole.",
    )
    extra = sorted(name for name in adapted if not name.endswith(CONVOLUTIONS))
    require(not extra, f"{', '.join(extra)} should have no adapter.")
    require(ranks == {rank}, f"The rank was to be {rank}, the adapters have {sorted(ranks)}.")
    others = [name for name in trained if ".lora_" not in name and name not in head]
    require(not others, f"{', '.join(others[:2])} should be frozen.")


def _check_batch_norm(model: nn.Module, images: Tensor) -> None:
    """In train mode too, BatchNorm normalises with its running statistics and keeps them."""
    before = {name: x.clone() for name, x in model.named_buffers() if "running" in name}
    model.train()
    with torch.no_grad():
        alone = model(images[:8])
        together = model(images)[:8]
    after = dict(model.named_buffers())
    moved = [name for name, x in before.items() if not torch.equal(after[name], x)]
    if moved:
        fail(
            f"{len(moved)} running statistics of BatchNorm move in training, the first of them "
            f"{moved[0]}: freeze BatchNorm before adapting."
        )
    require(
        torch.allclose(alone, together, atol=1e-3),
        "BatchNorm normalises with the batch's own statistics: what an image becomes depends on "
        "its neighbours.",
    )
