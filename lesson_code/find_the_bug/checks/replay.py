"""What the checks of lesson 90 share: toy models and batches, and what a training returns.

The oracles that train copies of these models are in `course_utils.checking.oracles`.
"""

import copy
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from course_utils.checking.checking import fail, require
from course_utils.checking.oracles import Batches, flatten_parameters, is_close

__all__ = [
    "draw_batches",
    "make_network",
    "read_losses",
    "record_learning_rates",
    "require_losses",
    "train_copy_without_zero_grad",
]


def draw_batches(*sizes: int) -> Batches:
    """Batches of points (N, 6), float64, and targets (N,) of four classes, by the global seed."""
    return [(torch.randn(n, 6, dtype=torch.float64), torch.randint(4, (n,))) for n in sizes]


def make_network() -> nn.Module:
    """From points (N, 6) to logits (N, 4), float64, by the global seed."""
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)).double()


def read_losses(found: object, number: int) -> Tensor:
    """The returned losses as a tensor (number,); one sentence if it is not ``number`` losses."""
    if not isinstance(found, list | tuple):
        fail("Return the losses as a list.")
    due = f"{number} losses are due, one for each batch that is trained on, not {len(found)}."
    require(len(found) == number, due)
    with_history = any(isinstance(loss, Tensor) and loss.requires_grad for loss in found)
    require(not with_history, "A loss still carries its history of gradients: return numbers.")
    return torch.tensor([float(loss) for loss in found], dtype=torch.float64)


def require_losses(found: Tensor, right: Tensor, what: str) -> None:
    """Fail with the first of the losses (steps,) that is not right; ``what`` it should be."""
    for number, (loss, due) in enumerate(zip(found, right, strict=True)):
        same = is_close(loss, due)
        require(same, f"Loss {number} is {loss.item():.6g}, and {what} is {due.item():.6g}.")


def train_copy_without_zero_grad(
    model: nn.Module,
    batches: Batches,
    learning_rates: Sequence[float],
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> nn.Module:
    """A wrong training: each step goes against the sum of all gradients so far."""
    model = copy.deepcopy(model)
    parameters = list(model.parameters())
    total = torch.zeros_like(flatten_parameters(model))
    for (inputs, targets), learning_rate in zip(batches, learning_rates, strict=True):
        gradient = torch.autograd.grad(loss(model(inputs), targets), parameters)
        total += parameters_to_vector(gradient)
        vector_to_parameters(flatten_parameters(model) - learning_rate * total, parameters)
    return model


def record_learning_rates(answer: Callable, *arguments: object) -> tuple[object, list[float]]:
    """What the answer returns, and the learning rate of each step that an optimizer takes in it."""
    learning_rates: list[float] = []

    def note(optimizer: Optimizer, *_: object) -> None:
        learning_rates.append(float(optimizer.param_groups[0]["lr"]))

    # For all optimizers: an answer makes its own.
    handle = register_optimizer_step_pre_hook(note)
    try:
        return answer(*arguments), learning_rates
    finally:
        handle.remove()
