"""Checks of the exercises of lesson 24."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from course_utils.checking.checking import checks_exercise, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import is_pair
from course_utils.checking.outputs import Output

__all__ = [
    "check_answer_photographs",
    "check_fold_batchnorm",
    "check_preprocessing_experiment",
    "check_quantize_per_channel",
]


@checks_exercise()
def check_preprocessing_experiment(answer: Callable) -> None:
    """``answer(config, data) -> (right, wrong, low, high)``, over the same seeds."""
    judge_experiment(run_experiment(answer))


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers that depend on nothing but the seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def require_tensor(found: Any, shape: tuple[int, ...], what: str) -> None:
    """Fail unless it is a tensor of this shape that needs no gradient."""
    require(isinstance(found, Tensor), f"{what} is {type(found).__name__}: return a tensor.")
    require(found.shape == shape, f"{what} has the shape {tuple(found.shape)}, and needs {shape}.")
    require(not found.requires_grad, f"{what} needs a gradient: detach it.")


# ---- ★ Fold a BatchNorm.

CONVOLUTIONS = ((4, 3, 3), (4, 4, 1), (2, 5, 3))  # outputs, inputs, side of the kernel


def make_norm(channels: int, seed: int) -> nn.BatchNorm2d:
    """A norm with statistics of its own and an ε that counts, in eval mode."""
    norm = nn.BatchNorm2d(channels, eps=0.01).eval()
    with torch.no_grad():
        norm.weight.copy_(draw(channels, seed=seed))  # negative ones, too
        norm.bias.copy_(draw(channels, seed=seed + 1))
        assert norm.running_mean is not None
        assert norm.running_var is not None
        norm.running_mean.copy_(draw(channels, seed=seed + 2))
        norm.running_var.copy_(draw(channels, seed=seed + 3).square())
    return norm


@checks_exercise()
def check_fold_batchnorm(answer: Callable) -> Iterator[Output]:
    """``answer(weight, bias, norm) -> (weight, bias)`` of one convolution."""
    for number, (outputs, inputs, side) in enumerate(CONVOLUTIONS):
        weight = draw(outputs, inputs, side, side, seed=10 * number)
        for bias in (None, draw(outputs, seed=10 * number + 1)):
            norm = make_norm(outputs, 10 * number + 2)
            before = {name: x.clone() for name, x in norm.state_dict().items()}
            given = weight.clone()
            found = answer(given, None if bias is None else bias.clone(), norm)
            require(is_pair(found), "Return two things: the weight and the bias.")
            require_tensor(found[0], tuple(weight.shape), "The weight")
            require_tensor(found[1], (outputs,), "The bias")
            same = all(torch.equal(x, before[name]) for name, x in norm.state_dict().items())
            require(
                same and torch.equal(given, weight),
                "The convolution or the norm has changed: they may still be in use.",
            )
            case = "Without a bias:" if bias is None else "With a bias:"
            yield Output(found[0], "The weight is not that of both layers.", case)
            yield Output(found[1], "The bias is not that of both layers.", case)


# ---- ★★ A scale for each channel.


def list_weights() -> list[tuple[str, Tensor]]:
    """Weights by a name that a sentence can begin with."""
    sizes = torch.tensor([0.01, 1.0, 30.0, 0.2])
    small = draw(4, 6, seed=1) * sizes[:, None]
    small[3] = 0
    small[1, 2] = -5.0  # the largest of its row
    return [
        ("A linear weight (4, 6):", small),
        ("A convolution (4, 4, 3, 3):", draw(4, 4, 3, 3, seed=2) * sizes.view(-1, 1, 1, 1)),
    ]


@checks_exercise()
def check_quantize_per_channel(answer: Callable) -> Iterator[Output]:
    """``answer(weight) -> (numbers, scales)``."""
    for case, weight in list_weights():
        found = answer(weight.clone())
        require(is_pair(found), "Return two things: the whole numbers and the scales.")
        numbers, scales = found
        require_tensor(scales, (len(weight),), "The tensor of scales")
        require_tensor(numbers, tuple(weight.shape), "The tensor of whole numbers")
        require(
            numbers.dtype == torch.int8,
            f"The whole numbers have the type {numbers.dtype}: make them torch.int8.",
        )
        require(
            bool(scales.isfinite().all()) and bool((scales > 0).all()),
            "A scale is not a positive number: a channel of zeros gets the scale 1.",
        )
        yield Output(scales, "The scales are not the largest absolute values over 127.", case)
        yield Output(numbers, "The whole numbers are not weight / scale, rounded.", case)


# ---- ★★★ A service whose answers differ.

MEAN, STD = torch.tensor([0.2, 0.5, 0.7]), torch.tensor([0.1, 0.25, 0.3])
CLASSES, SIDE = 4, 6


def make_model(training: bool) -> nn.Module:
    """A small network with BatchNorm and dropout, whose statistics are not those of a batch."""
    norm = nn.BatchNorm2d(5)
    model = nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1),
        norm,
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(5, CLASSES),
    )
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(0.5 * draw(*parameter.shape, seed=number))
        assert norm.running_mean is not None
        assert norm.running_var is not None
        norm.running_mean.copy_(draw(5, seed=20))
        norm.running_var.copy_(1 + draw(5, seed=21).square())
    return model.train(training)


def draw_photographs(count: int) -> list[np.ndarray]:
    """Photographs whose channels differ, so that their order counts."""
    rng = np.random.default_rng(count)
    values = rng.uniform(0, 1, (count, SIDE, SIDE, 3)) * [255, 120, 40]
    return list(values.astype(np.uint8))


@checks_exercise()
def check_answer_photographs(answer: Callable) -> Iterator[Output]:
    """``answer(model, photographs, mean, std) -> probabilities``."""
    for training, count in ((False, 3), (True, 3), (True, 1)):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = make_model(training)
            photographs = draw_photographs(count)
            found = answer(model, photographs, MEAN.clone(), STD.clone())
        require_tensor(found, (count, CLASSES), "The answer")
        mode = "train" if training else "eval"
        several = "one photograph" if count == 1 else f"{count} photographs"
        yield Output(
            found,
            "The probabilities are not those of the validation.",
            f"A model in {mode} mode, {several}:",
        )
