"""The split into training and validation, in the classes' own proportions."""

from collections.abc import Sequence

import numpy as np

from course_utils.errors import CourseError

__all__ = ["check_classes", "split_stratified"]

SPLIT_SEED = 0  # the split is made once: run seeds change initial weights and order, not the data
MOST_NAMED = 10  # classes in one message


def check_classes(targets: np.ndarray, class_names: Sequence[str], what: str) -> None:
    """Raise a CourseError if no target is of some class; ``what`` names the targets for it."""
    left_out = np.setdiff1d(np.arange(len(class_names)), targets)
    if len(left_out):
        raise CourseError(f"{what} leave out {_list_classes(class_names, left_out)}: take more")


def split_stratified(
    targets: np.ndarray,
    num_train: int | None,
    num_val: int,
    seed: int = SPLIT_SEED,
    class_names: Sequence[str] = (),
    unit: str = "images",
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of a training and a validation split, disjoint, in the classes' own proportions.

    Every example gets its random rank within its class, divided by the class's size. In the order
    of these ranks any stretch holds the classes in proportion: validation is the first stretch,
    training the next one.

    Args:
        targets: ``(N,)`` int, one class index per example.
        num_train: examples to train on; None: all that validation, at most a tenth, leaves.
        num_val: examples to validate on. With fewer than asked for, both parts shrink alike.
        class_names: what an error calls the classes; empty: their numbers.
        unit: what an error calls the examples.

    Raises:
        CourseError: when a class would be missing from either split.
    """
    rng = np.random.default_rng(seed)
    rank = np.empty(len(targets))
    for label in np.unique(targets):
        members = np.flatnonzero(targets == label)
        rank[members] = (rng.permutation(len(members)) + rng.random()) / len(members)
    order = np.argsort(rank, kind="stable")
    if num_train is None:
        num_val = min(num_val, len(targets) // 10)
        num_train = len(targets) - num_val
    asked = num_train + num_val
    if asked > len(targets):
        num_val = num_val * len(targets) // asked
        num_train = len(targets) - num_val
    val, train = order[:num_val], order[num_val : num_val + num_train]
    for part, what in ((train, "training"), (val, "validation")):
        left_out = np.setdiff1d(targets, targets[part])
        if len(left_out):
            raise CourseError(
                f"{len(part):,} {what} {unit} leave out {_list_classes(class_names, left_out)}: "
                + _fix_left_out(len(targets), len(train), len(val), asked, unit)
            )
    return train, val


def _list_classes(class_names: Sequence[str], labels: np.ndarray) -> str:
    """The first ten classes by their names, or by their numbers if they have none."""
    names = [class_names[label] if class_names else str(label) for label in labels[:MOST_NAMED]]
    return ", ".join([*names, "…"] if len(labels) > MOST_NAMED else names)


def _fix_left_out(total: int, num_train: int, num_val: int, asked: int, unit: str) -> str:
    """What helps when a split leaves a class out."""
    smaller = min(num_train, num_val)
    if not smaller:
        return f"add {unit}"
    needed = -(-total // smaller)  # then a stretch of smaller / total holds one for certain
    fix = f"give each class {needed:,} {unit} or more, or leave it out"
    return fix + (f", or take a profile that uses more {unit}" if asked < total else "")
