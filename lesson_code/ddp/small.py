"""A small network in double precision, and its batches."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

from course_utils.ranks import DEVICE


def build(norm: Callable[[int], nn.Module] = nn.Identity, seed: int = 0) -> nn.Sequential:
    """Inputs (N, 8) to logits (N, 3)."""
    torch.manual_seed(seed)
    layers = nn.Linear(8, 16), norm(16), nn.ReLU(), nn.Linear(16, 3)
    return nn.Sequential(*layers).to(DEVICE, torch.float64)


def make_batch(count: int = 12, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs (N, 8) and targets (N,), the same on all ranks."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=generator, dtype=torch.float64)
    return x.to(DEVICE), torch.randint(3, (count,), generator=generator).to(DEVICE)


def train(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    steps: int = 3,
    after_step: Callable[[nn.Module], object] = lambda model: None,
    make_optimizer: Callable[..., torch.optim.Optimizer] = SGD,
    lr: float = 0.5,
) -> Tensor:
    """The weights after a few steps, as one vector."""
    optimizer = make_optimizer(model.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        after_step(model)
    return read_weights(model)


def read_weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach()
