"""What the checks of lesson 90 share: toy models and batches, and what a training returns.

The oracles that train copies of these models are in `course_utils.exercises.oracles`.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from course_utils.exercises.checking import fail, require
from course_utils.exercises.oracles import Batches

__all__ = ["draw_batches", "make_network", "read_losses", "record_learning_rates"]


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
    return torch.tensor([float(loss) for loss in found], dtype=torch.float64)


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
