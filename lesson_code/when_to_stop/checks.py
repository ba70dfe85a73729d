"""Checks of the exercises of lesson 18."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from course_utils.checking.checking import checks_exercise, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.outputs import Output

__all__ = [
    "check_assign_groups",
    "check_find_weights",
    "check_measure_epochs",
    "check_predict_held_out",
]


@checks_exercise()
def check_measure_epochs(answer: Callable) -> None:
    """``answer(config, data) -> (long, short, low, high)``: a cosine over two lengths."""
    judge_experiment(run_experiment(answer))


# ---- ★ Which weights to restore.

LOSSES = (  # with the patience, and what is right
    ("One epoch:", (2.0,), 3, (1, 1)),
    ("Losses that fall to the end:", (3.0, 2.0, 1.5, 1.2), 2, (4, 4)),
    ("Losses that rise:", (1.0, 1.2, 1.4, 0.5), 2, (3, 1)),
    ("A long way to the end:", (3.0, 2.0, 2.1, 2.2, 1.9, 1.95, 1.92, 1.91, 1.0), 3, (8, 5)),
    ("The end comes before the patience ends:", (2.0, 1.0, 1.5, 1.4, 1.3, 1.2), 5, (6, 2)),
    ("Losses that fall, with a bad epoch:", (1.0, 0.9, 1.1, 0.8), 2, (4, 4)),
    ("Large losses that fall slowly:", (1000.0015, 1000.001, 1000.0005, 1000.0), 2, (4, 4)),
    ("Losses below 0:", (0.5, -0.5, -1.0, -0.9), 3, (4, 3)),
    ("With equal losses:", (2.0, 1.0, 1.0, 1.5, 0.9), 2, (4, 2)),
    ("Patience 1:", (2.0, 1.0, 1.5, 0.5), 1, (3, 2)),
    ("With a NaN:", (2.0, 1.0, 1.1, math.nan, 0.5), 3, (4, 2)),
    ("With an infinite loss:", (2.0, 1.0, math.inf, 0.5, 0.4), 3, (3, 2)),
    ("With a loss of minus infinity:", (2.0, 1.0, -math.inf, 0.5, 0.4), 3, (3, 2)),
    ("If the first loss is a NaN:", (math.nan, 1.0, 0.5), 2, (1, 0)),
)


def _as_array(found: object) -> np.ndarray:
    """As an array; what makes none is an array of objects."""
    try:
        return np.asarray(found)
    except (ValueError, TypeError, RuntimeError):
        return np.array(None)


@checks_exercise()
def check_find_weights(answer: Callable) -> Iterator[Output]:
    """``answer(losses, patience) -> (stopped, best)``, epochs that count from 1."""
    for case, losses, patience, right in LOSSES:
        given = list(losses)
        found = _as_array(answer(given, patience))
        require(
            found.shape == (2,),
            "Return two numbers: how many epochs were trained, and the epoch to restore.",
        )
        require(np.issubdtype(found.dtype, np.integer), "Return two whole numbers.")
        require(given == list(losses), "The list of losses must stay as it was.")
        yield Output(found, f"It should be {right} and is {tuple(map(int, found))}.", case=case)


# ---- ★★ Folds of groups.


@checks_exercise()
def check_assign_groups(answer: Callable) -> Iterator[Output]:
    """``answer(groups, folds) -> fold of each image (N,)``."""
    sizes = (
        (4, 1, 1, 2, 7, 3, 3, 5), (2, 2, 2, 2, 2, 2), (1, 9, 1, 1, 1, 6, 2, 3, 3), (3, 1, 2),
        (2, 3, 2, 3, 2),  # 7 and 5 images: 6 and 6 would be possible, but not in this order
    )  # fmt: skip
    for case, folds in zip(sizes, (3, 3, 4, 3, 2), strict=True):
        names = np.arange(len(case)) ** 3  # with gaps, and some are numbers of folds, too
        groups = np.random.permutation(np.repeat(names, case))
        given = groups.copy()
        found = _as_array(answer(given, folds))
        require(found.shape == groups.shape, "Return the fold of each image, in one array (N,).")
        require(
            np.issubdtype(found.dtype, np.integer) and set(found) <= set(range(folds)),
            f"The folds are the whole numbers from 0 to {folds - 1}, in an array of integers.",
        )
        require(np.array_equal(given, groups), "The array of groups must stay as it was.")
        for name in names:
            require(
                len(set(found[groups == name])) == 1,
                f"Group {name} is in two folds: a network would be judged on copies of images "
                "that it was trained on.",
            )
        yield Output(
            sorted(np.bincount(found, minlength=folds)),  # folds of one size may change places
            "The folds do not have the sizes that they get if each group, the largest first, goes "
            "into the fold with the fewest images so far.",
        )


# ---- ★★★ Finding the bugs.


class _Centres(nn.Module):
    """Logits are minus the distances to the centres; train mode shifts the inputs."""

    def __init__(self, classes: int, size: int) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.zeros(classes, size))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            inputs = inputs + 1.0
        return -torch.cdist(inputs, self.centres)


def _train_centres(model: _Centres, inputs: Tensor, targets: Tensor) -> None:
    """In place: a second training moves the centres on. Leaves the network in train mode."""
    require(torch.is_grad_enabled(), "Training needs gradients: only judge under no_grad.")
    model.train()
    with torch.no_grad():
        for label in range(len(model.centres)):
            middle = inputs[targets == label].mean(dim=0)
            model.centres[label] += 0.7 * (middle - model.centres[label])


@checks_exercise()
def check_predict_held_out(answer: Callable) -> Iterator[Output]:
    """``answer(make_model, train, inputs, targets, fold_of) -> probabilities (N, C)``."""
    for folds, size, classes in ((4, 3, 3), (3, 2, 4)):
        targets = torch.arange(24) % classes
        centres = torch.tensor([1.0, 5.0, 0.2])[:size] * torch.randn(classes, size)
        inputs = centres[targets] + torch.randn(24, size) + 4.0
        fold_of = torch.randint(folds, (24,))  # of different sizes, with each class in each fold
        for label in range(classes):
            members = torch.nonzero(targets == label)[:folds, 0]
            fold_of[members] = torch.randperm(folds)
        known = inputs, targets, fold_of
        given = [tensor.clone() for tensor in known]
        found = answer(partial(_Centres, classes, size), _train_centres, *given)
        require(
            torch.is_tensor(found) and found.is_floating_point() and found.shape == (24, classes),
            "Return the probabilities as a tensor (N, C).",
        )
        require(all(map(torch.equal, given, known)), "The tensors given must stay as they were.")
        require(not found.requires_grad, "The probabilities hold a graph: judge under no_grad.")
        yield Output(
            found,
            "These are not the probabilities that are asked for, and no fault that the check "
            "knows explains them.",
            tolerance=1e-4,
        )
