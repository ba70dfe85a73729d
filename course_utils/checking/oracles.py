"""What several checks compare with: trainings taken by hand, and when two results are the same."""

import copy
from collections.abc import Callable, Sequence
from typing import TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

__all__ = [
    "Batches",
    "flatten_parameters",
    "is_close",
    "is_near",
    "is_pair",
    "record_modes",
    "train_copy",
    "train_copy_accumulated",
    "train_copy_without_zero_grad",
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


def train_copy_without_zero_grad(
    model: nn.Module, batches: Batches, learning_rates: Sequence[float]
) -> tuple[nn.Module, Tensor]:
    """As `train_copy`, but each step goes against the sum of all gradients so far."""
    losses = []
    gradients = torch.zeros_like(flatten_parameters(model))  # (P,)
    for batch, learning_rate in zip(batches, learning_rates, strict=True):
        stepped, loss = train_copy(model, [batch], [1.0])
        weights = flatten_parameters(model)
        gradients = gradients + weights - flatten_parameters(stepped)
        vector_to_parameters(weights - learning_rate * gradients, stepped.parameters())
        losses.append(loss)
        model = stepped
    return model, torch.cat(losses)
