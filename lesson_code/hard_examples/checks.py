"""Checks of the exercises of lesson 17."""

import copy
import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

from course_utils.checking.checking import checks_exercise, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import flatten_parameters
from course_utils.checking.outputs import Output

__all__ = [
    "check_keep_hardest",
    "check_measure_hard",
    "check_rank_suspects",
    "check_train_selective",
]


@checks_exercise()
def check_measure_hard(answer: Callable) -> None:
    """``answer(config, data) -> (mean, other, low, high)``: two losses, the same wrong labels."""
    judge_experiment(run_experiment(answer))


# ---- ★ Top-k for mixed targets.


@checks_exercise()
def check_keep_hardest(answer: Callable) -> Iterator[Output]:
    """``answer(logits, targets, share) -> loss``."""
    logits = 2 * torch.randn(12, 4)
    classes = torch.randint(4, (12,))
    mixed = 0.6 * F.one_hot(classes, 4) + 0.4 * F.one_hot((classes + 1) % 4, 4)
    cases = [(classes, share) for share in (0.24, 0.1, 0.25, 1)] + [(mixed, 0.6)]
    for targets, share in cases:
        needed = logits.clone().requires_grad_(True)
        try:
            found = answer(needed, targets.clone(), share)
        except ValueError as error:
            fail(f"A share of {share:g} is allowed, and it raises a ValueError: {error}")
        require(
            torch.is_tensor(found) and found.ndim == 0,
            "Return the loss as a tensor without dimensions.",
        )
        yield Output(
            found,
            f"Not the mean of the {math.ceil(share * 12)} highest of 12 losses.",
            case=f"With a share of {share:g}:",
        )
        require(
            found.requires_grad,
            "The loss has no gradient: compute it without no_grad, detach and item.",
        )
        (gradient,) = torch.autograd.grad(found, needed, allow_unused=True)
        yield Output(
            torch.zeros_like(needed) if gradient is None else gradient,
            "The value is right, but not the gradient: compute the loss from the logits, without "
            "detach, item and a new tensor.",
        )
    for share in (0.0, -0.5, 1.5):
        try:
            answer(logits, classes, share)
        except ValueError:
            continue
        except Exception as error:
            fail(f"A share of {share:g} raises {type(error).__name__}: raise a ValueError.")
        fail(f"A share of {share:g} raises nothing: raise a ValueError.")


# ---- ★★ Rank the suspects.


class _Centres(nn.Module):
    """Logits are minus the distances to the classes' centres; in train mode they are noisy."""

    def __init__(self, centres: Tensor) -> None:
        super().__init__()
        self.centres = nn.Parameter(centres)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            inputs = inputs + 5.0
        return -torch.cdist(inputs, self.centres)


def _train_centres(inputs: Tensor, targets: Tensor, classes: int = 3) -> nn.Module:
    """A network that depends on all that it was trained on; in train mode, as it is left."""
    require(
        torch.is_grad_enabled(),
        "train is called under no_grad, where no network can learn: only judge without gradients.",
    )
    return _Centres(torch.stack([inputs[targets == c].mean(dim=0) for c in range(classes)]))


@checks_exercise()
def check_rank_suspects(answer: Callable) -> Iterator[Output]:
    """``answer(train, inputs, targets, folds) -> indices``, the highest loss first."""
    for folds in (3, 2):
        torch.manual_seed(folds)  # the case is the same, whatever an answer has drawn before
        centres = 3 * torch.randn(3, 2)
        targets = torch.arange(25) % 8 % 3
        inputs = centres[targets] + torch.randn(25, 2)
        targets[[4, 11, 18]] = (targets[[4, 11, 18]] + 1) % 3
        found = answer(_train_centres, inputs.clone(), targets.clone(), folds)
        require(torch.is_tensor(found), "Return the indices as a tensor.")
        require(
            found.shape == (25,) and sorted(found.tolist()) == list(range(25)),
            "Return every index once: one place for each of the N examples.",
        )
        require(not found.is_floating_point(), "Return the indices as a tensor of integers.")
        yield Output(
            found,
            "The order is not that of the losses under networks that have not seen the examples.",
        )


# ---- ★★★ Finding the bugs.


@checks_exercise()
def check_train_selective(answer: Callable) -> Iterator[Output]:
    """``answer(model, optimizer, batches, count)``, in place."""
    for momentum, count in ((0.0, 4), (0.9, 3)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
        batches = [(2 * torch.randn(10, 5), torch.randint(3, (10,))) for _ in range(5)]
        optimizer = SGD(model.parameters(), lr=0.2, momentum=momentum)
        model.train()
        answer(model, optimizer, copy.deepcopy(batches), count)
        statistics = [buffer.float().flatten() for buffer in model.buffers()]
        mode = torch.tensor([float(all(module.training for module in model.modules()))])
        yield Output(
            torch.cat([flatten_parameters(model), *statistics, mode]),
            "The weights or BatchNorm's statistics are not those of steps on the hardest examples.",
            tolerance=1e-4,
        )
