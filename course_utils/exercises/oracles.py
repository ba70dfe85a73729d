"""What several checks compare with: trainings taken by hand, and when two results are the same."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

__all__ = [
    "Batches",
    "ScaledStep",
    "ScaledTraining",
    "clip_norm",
    "flatten_parameters",
    "is_close",
    "is_near",
    "is_pair",
    "record_modes",
    "take_clipped_step",
    "take_step_clipped_while_scaled",
    "take_unclipped_step",
    "train_copy",
    "train_copy_accumulated",
    "train_copy_scaled",
]

Batches = list[tuple[Tensor, Tensor]]  # (inputs, targets) of each batch


def is_pair(found: object) -> TypeGuard[Sequence]:
    """Whether an answer returned two things."""
    return isinstance(found, tuple | list) and len(found) == 2


def is_close(found: Tensor, expected: Tensor, atol: float = 1e-7) -> bool:
    """The same shape, and each value equal to five digits or up to ``atol``.

    A nan is close to nothing. ``found`` may have another dtype than ``expected``.
    """
    if found.shape != expected.shape:
        return False
    return torch.allclose(found.to(expected.dtype), expected, rtol=1e-5, atol=atol)


def is_near(found: Tensor, expected: Tensor, tolerance: float) -> bool:
    """The same shape, and ‖found − expected‖ ≤ tolerance · ‖expected‖; a nan is near nothing."""
    if found.shape != expected.shape:
        return False
    return bool((found - expected).norm() <= tolerance * expected.norm())


def flatten_parameters(model: nn.Module) -> Tensor:
    """All parameters as one vector (P,), without a history."""
    return parameters_to_vector(model.parameters()).detach()


def clip_norm(vector: Tensor, max_norm: float) -> Tensor:
    """``vector``, made shorter to the length ``max_norm`` if it is longer."""
    return vector * (max_norm / vector.norm()).clamp(max=1)


def record_modes(model: nn.Module) -> list[bool]:
    """A list that gets, with each forward pass of ``model``, whether it is in train mode."""
    modes: list[bool] = []
    model.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    return modes


def train_copy(
    model: nn.Module,
    batches: Batches,
    learning_rates: Sequence[float],
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> tuple[nn.Module, Tensor]:
    """Train a copy, in the mode of ``model``, by one step of SGD for each batch.

    The copy after the last step, and the losses (steps,) of the batches, each before its step.
    """
    return train_copy_accumulated(model, [[batch] for batch in batches], learning_rates, loss)


def train_copy_accumulated(
    model: nn.Module,
    steps: Sequence[Batches],
    learning_rates: Sequence[float],
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> tuple[nn.Module, Tensor]:
    """Train a copy, in the mode of ``model``; a step accumulates several micro-batches.

    ``steps`` holds the micro-batches of each step. A step goes against the gradient of the mean
    of their losses. No optimizer is involved, so none of its mistakes can be repeated here.
    The copy after the last step, and the losses (micro-batches,), each before its step.
    """
    model = copy.deepcopy(model)
    parameters = list(model.parameters())
    losses: list[float] = []
    for micro_batches, learning_rate in zip(steps, learning_rates, strict=True):
        parts = [loss(model(inputs), targets) for inputs, targets in micro_batches]
        mean = torch.stack(parts).mean()
        gradient = parameters_to_vector(torch.autograd.grad(mean, parameters))  # (P,)
        vector_to_parameters(flatten_parameters(model) - learning_rate * gradient, parameters)
        losses += [part.item() for part in parts]
    return model, torch.tensor(losses, dtype=torch.float64)


@dataclass(frozen=True)
class ScaledStep:
    """What a step of a training with a gradient scaler may depend on."""

    gradient: Tensor  # (P,), of the loss that is not scaled
    max_norm: float
    scale: float
    before: Tensor  # (P,), the step before; for the first one, what .grad held before the call
    number: int  # how many steps were taken before


def take_clipped_step(step: ScaledStep) -> Tensor:
    """The right one: the unscaled gradient is clipped."""
    return clip_norm(step.gradient, step.max_norm)


def take_unclipped_step(step: ScaledStep) -> Tensor:
    """The fault of a ``max_norm`` that is ignored."""
    return step.gradient


def take_step_clipped_while_scaled(step: ScaledStep) -> Tensor:
    """The fault of clipping before ``unscale_``."""
    return clip_norm(step.gradient * step.scale, step.max_norm) / step.scale


class ScaledTraining(NamedTuple):
    """What a training with a gradient scaler leads to."""

    weights: Tensor  # (P,)
    losses: Tensor  # (batches,), each before its step
    steps: int  # batches with a finite gradient
    scale: float  # after the last batch


def train_copy_scaled(
    model: nn.Module,
    batches: Batches,
    learning_rate: Callable[[int], float],
    max_norm: float,
    scale: float,
    growth_interval: int,
    take_step: Callable[[ScaledStep], Tensor] = take_clipped_step,
    grad_before: float = 0.0,
) -> ScaledTraining:
    """Train a copy as `torch.amp.GradScaler` would make it, with no scaler involved.

    Args:
        learning_rate: of a step, from the number of steps that were taken before.
        scale: at the beginning. It is halved when the scaled gradient overflows, and this batch
            takes no step; it is doubled after ``growth_interval`` steps without an overflow.
        take_step: what is subtracted, times the learning rate, from the weights (P,).
        grad_before: each number in ``.grad`` before the training; `ScaledStep.before` has it.
    """
    model = copy.deepcopy(model)
    parameters = list(model.parameters())
    direction = torch.full_like(flatten_parameters(model), grad_before)
    losses: list[float] = []
    taken = 0
    since_overflow = 0  # steps since the last change of the scale
    for inputs, targets in batches:
        loss = F.cross_entropy(model(inputs), targets)
        losses.append(loss.item())
        gradient = parameters_to_vector(torch.autograd.grad(loss, parameters))  # (P,)
        if not (gradient * scale).isfinite().all():
            scale /= 2
            since_overflow = 0
            continue
        direction = take_step(ScaledStep(gradient, max_norm, scale, direction, taken))
        weights = flatten_parameters(model) - learning_rate(taken) * direction
        vector_to_parameters(weights, parameters)
        taken += 1
        since_overflow += 1
        if since_overflow == growth_interval:
            scale *= 2
            since_overflow = 0
    losses_tensor = torch.tensor(losses, dtype=torch.float64)
    return ScaledTraining(flatten_parameters(model), losses_tensor, taken, scale)
