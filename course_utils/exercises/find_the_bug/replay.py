"""What checks of lesson 90 share: toy trainings, and the oracle that takes the same steps."""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch.optim.optimizer import register_optimizer_step_pre_hook

from course_utils.exercises.checking import require

__all__ = [
    *("Batches", "draw_batches", "flatten", "is_close", "make_network", "read_losses"),
    *("record_modes", "record_rates", "replay"),
]

Batches = list[tuple[Tensor, Tensor]]


def draw_batches(*sizes: int) -> Batches:
    """Batches of points (N, 6), float64, and targets (N,) of four classes, by the global seed."""
    return [(torch.randn(n, 6, dtype=torch.float64), torch.randint(4, (n,))) for n in sizes]


def make_network() -> nn.Module:
    """From points (N, 6) to logits (N, 4), float64, by the global seed."""
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)).double()


def flatten(model: nn.Module) -> Tensor:
    """All weights as one vector."""
    return parameters_to_vector(model.parameters()).detach()


def is_close(found: Tensor, expected: Tensor) -> bool:
    """The same shape, and values to five digits; a nan is close to nothing."""
    return found.shape == expected.shape and torch.allclose(found.double(), expected, 1e-5, 1e-7)


def read_losses(found: object, number: int) -> Tensor:
    """The returned losses as a tensor; one sentence if they are not ``number`` of them."""
    require(isinstance(found, list | tuple), "Return the losses as a list.")
    due = f"{number} losses are due, one for each batch that is trained on, not {len(found)}."
    require(len(found) == number, due)
    return torch.tensor([float(loss) for loss in found], dtype=torch.float64)


def record_rates(answer: Callable, *arguments: object) -> tuple[object, list[float]]:
    """What the answer returns, and the learning rate of each step that an optimizer takes in it."""
    rates: list[float] = []
    handle = register_optimizer_step_pre_hook(
        lambda optimizer, *_: rates.append(float(optimizer.param_groups[0]["lr"]))
    )
    try:
        return answer(*arguments), rates
    finally:
        handle.remove()


def record_modes(model: nn.Module) -> list[bool]:
    """A list that gets, with each forward pass of ``model``, whether it is in train mode."""
    modes: list[bool] = []
    model.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    return modes


def replay(
    model: nn.Module,
    windows: list[Batches],
    rates: list[float],
    change: Callable[[Tensor], Tensor] = lambda gradient: gradient,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> tuple[Tensor, Tensor]:
    """Train a copy by hand: its weights, and the loss of each batch, no optimizer involved.

    A step goes against ``change`` of the gradient of a window's mean loss, all weights in a row.
    """
    model, losses = copy.deepcopy(model), []
    parameters = list(model.parameters())
    for window, rate in zip(windows, rates, strict=True):
        parts = [loss(model(inputs), targets) for inputs, targets in window]
        gradient = torch.autograd.grad(sum(parts) / len(parts), parameters)
        weights = flatten(model) - rate * change(parameters_to_vector(gradient))
        nn.utils.vector_to_parameters(weights, parameters)
        losses += [part.item() for part in parts]
    return flatten(model), torch.tensor(losses, dtype=torch.float64)
