"""Checks of the exercises of lesson 17."""

import copy
import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from course_utils.checking.checking import Faults, checks_exercise, diagnose, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.oracles import Batches, flatten_parameters

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


def _keep(
    logits: Tensor,
    targets: Tensor,
    share: float,
    count: Callable[[float], int] = math.ceil,
    largest: bool = True,
    divides_by: str = "chosen",
    hardens: bool = False,
) -> Tensor:
    """A right answer, unless an argument plants a fault."""
    if hardens and targets.ndim > 1:
        targets = targets.argmax(dim=1)
    losses = F.cross_entropy(logits, targets, reduction="none")
    kept = losses.topk(max(0, count(share * len(losses))), largest=largest).values
    return kept.sum() / (len(kept) if divides_by == "chosen" else len(losses))


def _keep_all(logits: Tensor, targets: Tensor, share: float) -> Tensor:
    return F.cross_entropy(logits, targets)


def _scale_all(logits: Tensor, targets: Tensor, share: float) -> Tensor:
    return share * F.cross_entropy(logits, targets)


def _keep_of_mean(logits: Tensor, targets: Tensor, share: float) -> Tensor:
    losses = F.cross_entropy(logits, targets, reduction="none")
    return losses[: math.ceil(share * len(losses))].mean()


KEEP_FAULTS: Faults = (
    ("All losses count: keep the highest ones.", _keep_all),
    ("All losses count, made smaller: keep the highest ones.", _scale_all),
    ("The lowest losses are kept.", partial(_keep, largest=False)),
    ("The first examples are kept, not the ones with the highest losses.", _keep_of_mean),
    ("The number of examples is not rounded up.", partial(_keep, count=math.floor)),
    ("The number of examples is not rounded up.", partial(_keep, count=round)),
    ("The sum is divided by all examples: take the mean of those that are kept.",
     partial(_keep, divides_by="all")),
    ("Soft targets become hard ones: cross_entropy takes them as they are.",
     partial(_keep, hardens=True)),
)  # fmt: skip


@checks_exercise(faults=KEEP_FAULTS)
def check_keep_hardest(answer: Callable) -> None:
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
        diagnose(
            found,
            lambda other: other(logits, targets, share),  # noqa: B023
            _keep,
            KEEP_FAULTS,
            f"Not the mean of the {math.ceil(share * 12)} highest of 12 losses.",
            case=f"With a share of {share:g}:",
        )
        require(
            found.requires_grad,
            "The loss has no gradient: compute it without no_grad, detach and item.",
        )
        (gradient,) = torch.autograd.grad(found, needed, allow_unused=True)
        (right,) = torch.autograd.grad(_keep(needed, targets, share), needed)
        require(
            gradient is not None and torch.allclose(gradient, right, atol=1e-6),
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


def _measure_losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Minus the log of the probability of each target (N,), without a history."""
    logs = model(inputs).detach().log_softmax(dim=1)
    return -logs.gather(1, targets[:, None])[:, 0]


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


def _rank(
    train: Callable,
    inputs: Tensor,
    targets: Tensor,
    folds: int,
    trains_on: str = "others",
    descending: bool = True,
    evaluates: bool = True,
    inverts: bool = False,
    per_fold: bool = False,
    blocks: bool = False,
) -> Tensor:
    """A right answer, unless an argument plants a fault."""
    fold_of = torch.arange(len(inputs)) % folds
    if blocks:
        fold_of = torch.arange(len(inputs)) * folds // len(inputs)
    losses, ranked = torch.empty(len(inputs)), []
    for fold in range(folds):
        inside = fold_of == fold
        chosen = {"others": ~inside, "all": torch.ones_like(inside), "own": inside}[trains_on]
        model = train(inputs[chosen], targets[chosen])
        model.train(not evaluates)
        places = inside.nonzero()[:, 0]
        losses[places] = _measure_losses(model, inputs[places], targets[places])
        ranked.append(places[losses[places].argsort(descending=True)])
    if per_fold:
        return torch.cat(ranked)
    order = losses.argsort(descending=descending)
    return order.argsort() if inverts else order


RANK_FAULTS: Faults = (
    ("The networks have seen the examples that they judge: train on the other folds only.",
     partial(_rank, trains_on="all")),
    ("Each network is trained on the fold that it judges, not on the others.",
     partial(_rank, trains_on="own")),
    ("The lowest loss comes first.", partial(_rank, descending=False)),
    ("The network judges in train mode: call eval().", partial(_rank, evaluates=False)),
    ("These are the ranks of the examples, not their indices in the order of the losses.",
     partial(_rank, inverts=True)),
    ("Each fold is sorted by itself: sort all losses together.", partial(_rank, per_fold=True)),
    ("The folds are blocks: example i belongs to fold i mod folds.", partial(_rank, blocks=True)),
)  # fmt: skip


@checks_exercise(faults=RANK_FAULTS)
def check_rank_suspects(answer: Callable) -> None:
    """``answer(train, inputs, targets, folds) -> indices``, the highest loss first."""
    for folds in (3, 2):
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
        diagnose(
            found,
            lambda other: other(_train_centres, inputs, targets, folds),  # noqa: B023
            _rank,
            RANK_FAULTS,
            "The order is not that of the losses under networks that have not seen the examples.",
        )


# ---- ★★★ Finding the bugs.


def _train(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Batches,
    count: int,
    largest: bool = True,
    trains_in: str = "train",
    looks_in: str = "eval",
    zeroes: bool = True,
    divides_by: str = "chosen",
    chooses: bool = True,
    ends_in: str = "train",
    moves_on: bool = True,
) -> None:
    """A right answer, unless an argument plants a fault."""
    for inputs, targets in batches:
        model.train(looks_in == "train")
        losses = _measure_losses(model, inputs, targets)
        model.train(trains_in == "train")
        chosen = losses.topk(count, largest=largest).indices
        if not chooses:
            chosen = torch.arange(len(inputs))
        if zeroes:
            optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs[chosen]), targets[chosen], reduction="sum")
        (loss / (len(chosen) if divides_by == "chosen" else len(inputs))).backward()
        if moves_on:
            optimizer.step()
    model.train(ends_in == "train")


TRAIN_FAULTS: Faults = (
    ("The easiest examples are chosen: take the highest losses.", partial(_train, largest=False)),
    ("The training pass is in eval mode: call train() after the look, and compute the chosen "
     "losses anew.", partial(_train, trains_in="eval", ends_in="eval")),
    ("The training pass is in eval mode: call train() after the look, and compute the chosen "
     "losses anew.", partial(_train, trains_in="eval")),
    ("The look is in train mode, so it moves BatchNorm's statistics: call eval() before it.",
     partial(_train, looks_in="train")),
    ("The gradients of all batches add up: zero_grad before each backward.",
     partial(_train, zeroes=False)),
    ("The loss is divided by the size of the whole batch: take the mean of the chosen ones.",
     partial(_train, divides_by="all")),
    ("All examples are trained on.", partial(_train, chooses=False)),
    ("The optimizer is never stepped.", partial(_train, moves_on=False)),
    ("The network ends in eval mode: it began in train mode.", partial(_train, ends_in="eval")),
)  # fmt: skip


def _run(answer: Callable, momentum: float, count: int) -> Tensor:
    """Weights, running statistics and mode after a training of five batches."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    batches = [(2 * torch.randn(10, 5), torch.randint(3, (10,))) for _ in range(5)]
    optimizer = SGD(model.parameters(), lr=0.2, momentum=momentum)
    model.train()
    answer(model, optimizer, copy.deepcopy(batches), count)
    statistics = [b.float().flatten() for b in model.buffers()]
    mode = torch.tensor([float(all(module.training for module in model.modules()))])
    return torch.cat([flatten_parameters(model), *statistics, mode])


@checks_exercise(faults=TRAIN_FAULTS)
def check_train_selective(answer: Callable) -> None:
    """``answer(model, optimizer, batches, count)``, in place."""
    for momentum, count in ((0.0, 4), (0.9, 3)):
        diagnose(
            _run(answer, momentum, count),
            lambda other: _run(other, momentum, count),  # noqa: B023
            _train,
            TRAIN_FAULTS,
            "The weights or BatchNorm's statistics are not those of steps on the hardest examples.",
            tolerance=1e-4,
        )
