"""Checks of the exercises of lesson 18."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from course_utils.checking.checking import Faults, checks_exercise, diagnose, require
from course_utils.checking.experiment import judge_experiment, run_experiment

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


def _find(
    losses: Sequence[float],
    patience: int,
    stops_at_nan: bool = True,
    counts_ties: bool = False,
    rises: bool = False,
    one_late: bool = False,
    counts_from: int = 1,
    counts_bad: bool = False,
    against_last: bool = False,
    returns: str = "both",
) -> tuple[int, int]:
    """A right answer, unless an argument plants a fault."""
    lowest, best, bad = math.inf, 1 - counts_from, 0
    stopped = len(losses)
    for epoch, loss in enumerate(losses, start=1):
        if stops_at_nan and not math.isfinite(loss):
            stopped = epoch
            break
        better = loss > lowest if rises else loss < lowest
        if rises and lowest == math.inf:
            better = True
        if better or (counts_ties and loss == lowest):
            lowest, best = loss, epoch
            bad = bad if counts_bad else 0
        else:
            bad += 1
            lowest = loss if against_last else lowest
        if bad >= patience + one_late:
            stopped = epoch
            break
    shift = 1 - counts_from
    if returns == "swapped":
        return best - shift, stopped - shift
    if returns == "the last":
        return stopped - shift, stopped - shift
    if returns == "of all":
        finite = [loss if math.isfinite(loss) else math.inf for loss in losses]
        return stopped - shift, 1 + int(np.argmin(finite)) - shift
    return stopped - shift, best - shift


FIND_FAULTS: Faults = (
    ("These are swapped: first how many epochs were trained, then the epoch to restore.",
     partial(_find, returns="swapped")),
    ("The weights of the last epoch are restored, not those of the lowest loss.",
     partial(_find, returns="the last")),
    ("Epochs count from 1 here.", partial(_find, counts_from=0)),
    ("A loss is better if it is lower.", partial(_find, rises=True)),
    ("An equal loss is no lower loss: it does not count as better.",
     partial(_find, counts_ties=True)),
    ("Compare with the lowest loss so far, not with the loss of the epoch before.",
     partial(_find, against_last=True)),
    ("It stops an epoch too late: stop at the `patience`-th epoch without a lower loss.",
     partial(_find, one_late=True)),
    ("A loss that is not finite must end the training.", partial(_find, stops_at_nan=False)),
    ("Bad epochs count in a row: a lower loss sets the count to 0 again.",
     partial(_find, counts_bad=True)),
    ("The epoch to restore has not been trained yet when the training stops.",
     partial(_find, returns="of all")),
)  # fmt: skip

LOSSES = (
    ("One epoch:", (2.0,), 3),
    ("Losses that fall to the end:", (3.0, 2.0, 1.5, 1.2), 2),
    ("Losses that rise:", (1.0, 1.2, 1.4, 0.5), 2),
    ("A long way to the end:", (3.0, 2.0, 2.1, 2.2, 1.9, 1.95, 1.92, 1.91, 1.0), 3),
    ("The end comes before the patience ends:", (2.0, 1.0, 1.5, 1.4, 1.3, 1.2), 5),
    ("Losses that fall, with a bad epoch:", (1.0, 0.9, 1.1, 0.8), 2),
    ("Large losses that fall slowly:", (1000.0015, 1000.001, 1000.0005, 1000.0), 2),
    ("Losses below 0:", (0.5, -0.5, -1.0, -0.9), 3),
    ("With equal losses:", (2.0, 1.0, 1.0, 1.5, 0.9), 2),
    ("Patience 1:", (2.0, 1.0, 1.5, 0.5), 1),
    ("With a NaN:", (2.0, 1.0, 1.1, math.nan, 0.5), 3),
    ("With an infinite loss:", (2.0, 1.0, math.inf, 0.5, 0.4), 3),
    ("With a loss of minus infinity:", (2.0, 1.0, -math.inf, 0.5, 0.4), 3),
    ("If the first loss is a NaN:", (math.nan, 1.0, 0.5), 2),
)


def _as_array(found: object) -> np.ndarray:
    """As an array; what makes none is an array of objects."""
    try:
        return np.asarray(found)
    except (ValueError, TypeError, RuntimeError):
        return np.array(None)


@checks_exercise(faults=FIND_FAULTS)
def check_find_weights(answer: Callable) -> None:
    """``answer(losses, patience) -> (stopped, best)``, epochs that count from 1."""
    for case, losses, patience in LOSSES:
        given = list(losses)
        found = _as_array(answer(given, patience))
        require(
            found.shape == (2,),
            "Return two numbers: how many epochs were trained, and the epoch to restore.",
        )
        require(np.issubdtype(found.dtype, np.integer), "Return two whole numbers.")
        require(given == list(losses), "The list of losses must stay as it was.")
        diagnose(
            list(map(float, found)),
            lambda other: list(map(float, other(losses, patience))),  # noqa: B023
            _find,
            FIND_FAULTS,
            f"It should be {_find(losses, patience)} and is {tuple(map(int, found))}.",
            case=case,
        )


# ---- ★★ Folds of groups.


def _assign(
    groups: np.ndarray,
    folds: int,
    first: str = "largest",
    to_smallest: bool = True,
    splits: bool = False,
) -> np.ndarray:
    """A right answer, unless an argument plants a fault."""
    names, of = np.unique(groups, return_inverse=True)
    sizes = np.bincount(of)
    if splits:
        return np.arange(len(groups)) % folds
    keys = {"largest": -sizes, "smallest": sizes, "lowest number": np.arange(len(names))}
    order = np.argsort(keys[first], kind="stable")
    filled, fold_of_group = np.zeros(folds, dtype=int), np.empty(len(names), dtype=int)
    for turn, name in enumerate(order):
        fold = int(filled.argmin()) if to_smallest else turn % folds
        fold_of_group[name] = fold
        filled[fold] += sizes[name]
    return fold_of_group[of]


ASSIGN_FAULTS: Faults = (
    ("is in two folds", partial(_assign, splits=True)),
    ("Take the groups by their size, the largest first.",
     partial(_assign, first="lowest number")),
    ("Each group goes into the fold with the fewest images so far, the largest group first.",
     partial(_assign, to_smallest=False)),
    ("Each group goes into the fold with the fewest images so far, the largest group first.",
     partial(_assign, first="smallest")),
)  # fmt: skip


def _count_sizes(answer: Callable, groups: np.ndarray, folds: int) -> list[float]:
    """The numbers of images of the folds, sorted: groups of one size may change places."""
    return sorted(np.bincount(np.asarray(answer(groups, folds)), minlength=folds).astype(float))


@checks_exercise(faults=ASSIGN_FAULTS)
def check_assign_groups(answer: Callable) -> None:
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
        diagnose(
            _count_sizes(lambda *_: found, groups, folds),  # noqa: B023
            lambda other: _count_sizes(other, groups, folds),  # noqa: B023
            _assign,
            ASSIGN_FAULTS[1:],
            "The folds do not have the sizes that they get if each group, the largest first, goes "
            "into the fold with the fewest images so far.",
        )


# ---- ★★★ Finding the bugs.


class _Centres(nn.Module):
    """Logits are minus the distances to the classes' centres; in train mode inputs are shifted.

    A second training moves the centres on, it does not begin again.
    """

    def __init__(self, classes: int, size: int) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.zeros(classes, size))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            inputs = inputs + 1.0
        return -torch.cdist(inputs, self.centres)


def _train_centres(model: _Centres, inputs: Tensor, targets: Tensor) -> None:
    """In place; the network is in train mode afterwards."""
    require(torch.is_grad_enabled(), "Training needs gradients: only judge under no_grad.")
    model.train()
    with torch.no_grad():
        for label in range(len(model.centres)):
            middle = inputs[targets == label].mean(dim=0)
            model.centres[label] += 0.7 * (middle - model.centres[label])


def _predict(
    make_model: Callable,
    train: Callable,
    inputs: Tensor,
    targets: Tensor,
    fold_of: Tensor,
    scales_by: str = "training",
    scales: str = "both",
    makes_once: bool = False,
    evaluates: bool = True,
    places: bool = True,
    softmax: bool = True,
    trains_on: str = "others",
    correction: int = 1,
    dim: int = 1,
    fits_both: bool = False,
) -> Tensor:
    """A right answer, unless an argument plants a fault."""
    model, found, numbers = make_model(), [], []
    for fold in fold_of.unique():
        inside = fold_of == fold
        chosen = {"others": ~inside, "all": torch.ones_like(inside), "own": inside}[trains_on]
        known = {"training": chosen, "all": torch.ones_like(inside), "own": inside}[scales_by]
        mean, std = inputs[known].mean(dim=0), inputs[known].std(dim=0, correction=correction)
        scaled = (inputs - mean) / std
        if fits_both:
            own = inputs[inside]
            scaled[inside] = (own - own.mean(dim=0)) / own.std(dim=0)
        if not makes_once:
            model = make_model()
        train(model, scaled[chosen] if scales != "judged" else inputs[chosen], targets[chosen])
        model.train(not evaluates)
        with torch.no_grad():
            logits = model((scaled if scales != "trained" else inputs)[inside])
        found.append(logits.softmax(dim=dim) if softmax else logits)
        numbers.append(inside.nonzero()[:, 0])
    together = torch.cat(found)
    return together[torch.cat(numbers).argsort()] if places else together


SINGLE_FAULTS: Faults = (
    ("The mean and the standard deviation are those of all examples: take them from the "
     "training folds.", partial(_predict, scales_by="all")),
    ("The mean and the standard deviation are those of the fold that is judged: take them from "
     "the training folds.", partial(_predict, scales_by="own")),
    ("The examples that are judged are not scaled.", partial(_predict, scales="trained")),
    ("The training examples are not scaled.", partial(_predict, scales="judged")),
    ("One network is trained on for all folds, so from the second fold on it has seen what it "
     "judges: make a new one for each fold.", partial(_predict, makes_once=True)),
    ("The network judges in train mode: call eval().", partial(_predict, evaluates=False)),
    ("The rows are in the order of the folds: put each one at the place of its example.",
     partial(_predict, places=False)),
    ("These are logits: return probabilities.", partial(_predict, softmax=False)),
    ("The network has seen the fold that it judges: train on the other folds.",
     partial(_predict, trains_on="all")),
    ("Each network is trained on its own fold, and not on the others.",
     partial(_predict, trains_on="own")),
    ("The examples that are judged are scaled by their own mean and standard deviation: take those "
     "of the training folds.", partial(_predict, fits_both=True)),
    ("Each example's probabilities must sum to 1: take the softmax over the classes.",
     partial(_predict, dim=0)),
    ("Take the standard deviation that `std(dim=0)` gives: it divides by n - 1.",
     partial(_predict, correction=0)),
)  # fmt: skip


def _combine_faults() -> Iterator[tuple[str, Callable]]:
    """Two or more of the four faults in the exercise's text."""
    four: list[dict[str, Any]] = [
        {"scales_by": "all"},
        {"makes_once": True},
        {"evaluates": False},
        {"places": False},
    ]
    for count, word in ((2, "Two"), (3, "Three"), (4, "All")):
        for some in combinations(four, count):
            options = {name: value for fault in some for name, value in fault.items()}
            yield f"{word} of the four faults are left.", partial(_predict, **options)


PREDICT_FAULTS: Faults = (*SINGLE_FAULTS, *_combine_faults())


@checks_exercise(faults=PREDICT_FAULTS)
def check_predict_held_out(answer: Callable) -> None:
    """``answer(make_model, train, inputs, targets, fold_of) -> probabilities (N, C)``."""
    for folds, size, classes in ((4, 3, 3), (3, 2, 4)):
        make_model = partial(_Centres, classes, size)
        targets = torch.arange(36) % classes
        centres = torch.tensor([1.0, 5.0, 0.2])[:size] * torch.randn(classes, size)
        inputs = centres[targets] + torch.randn(36, size) + 4.0
        fold_of = torch.randint(folds, (36,))  # of different sizes, with each class in each fold
        for label in range(classes):
            members = torch.nonzero(targets == label)[:folds, 0]
            fold_of[members] = torch.randperm(folds)
        known = inputs, targets, fold_of
        given = [tensor.clone() for tensor in known]
        found = answer(make_model, _train_centres, *given)
        require(
            torch.is_tensor(found) and found.is_floating_point() and found.shape == (36, classes),
            "Return the probabilities as a tensor (N, C).",
        )
        require(all(map(torch.equal, given, known)), "The tensors given must stay as they were.")
        require(not found.requires_grad, "The probabilities hold a graph: judge under no_grad.")
        right = _predict(make_model, _train_centres, *known)
        in_order = torch.allclose(found.sort(dim=0).values.to(right), right.sort(dim=0).values)
        otherwise = (
            "The rows are right, but not at the places of their examples."
            if in_order
            else "These are not the probabilities that are asked for, and no fault that the check "
            "knows explains them."
        )
        diagnose(
            found,
            lambda other: other(make_model, _train_centres, inputs, targets, fold_of),  # noqa: B023
            _predict,
            PREDICT_FAULTS,
            otherwise,
            tolerance=1e-4,
        )
