"""Checks of lesson 90, faults in the data: what is trained on, under which label, and by whom.

An answer may draw its order as it likes. The model notes what it is given, and the same steps are
taken once more.
"""

import copy
import math
from collections.abc import Callable, Sequence
from itertools import combinations, groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from course_utils.checking.checking import checks_exercise, diagnose, fail, require
from course_utils.checking.oracles import (
    flatten_parameters,
    is_close,
    is_pair,
    train_copy,
    train_copy_without_zero_grad,
)

__all__ = [
    "OTHER_LOSSES",
    "check_repair_folder",
    "check_repair_sessions",
    "check_repair_shards",
    "read_losses",
]

LR = 0.1
EPOCHS, BATCH_SIZE = 4, 4  # of a rank
OTHER_LOSSES = "A returned loss is not the loss of its batch before the step."
OTHER_STEPS = "The weights are not those of SGD on each image with its own label."
NO_ZERO_GRAD = "Gradients of earlier steps still count: zero_grad is missing."
NOT_REPEATED = (
    "The same seed gives another order the second time: let it follow from seed and epoch."
)
BY_NAME = 'Images are in the order of their names: "10.png" comes before "2.png", as text.'
IN_FOLDER_ORDER = "Images are in the order in which the folder lists them: read their numbers."
NO_LISTS = "Return two things: the list of losses, and the accuracy after each session."
LEAKED = "images that were trained on before: make one split for all sessions."
UNSHUFFLED = "The validation images are the first ones or the last ones: choose them at random."


def read_losses(found: object, number: int) -> Tensor:
    """The returned losses as a tensor (number,); one sentence if it is not ``number`` losses."""
    if not isinstance(found, list | tuple):
        fail("Return the losses as a list.")
    due = f"{number} losses are due, one for each batch that is trained on, not {len(found)}."
    require(len(found) == number, due)
    with_history = any(isinstance(loss, Tensor) and loss.requires_grad for loss in found)
    require(not with_history, "A loss still carries its history of gradients: return numbers.")
    return torch.tensor([float(loss) for loss in found], dtype=torch.float64)


class _Pass(NamedTuple):
    """A forward pass: whether it trains, the numbers of its images, and how many were right."""

    trains: bool
    numbers: list[int]
    hits: int


def _join(passes: Sequence[_Pass]) -> list[int]:
    """The numbers of all their images, in order."""
    return [number for seen in passes for number in seen.numbers]


class _Photos:
    """Images (N, 3, 2, 3) that can be told apart, targets (N,) of four classes, and a model."""

    def __init__(self, count: int) -> None:
        self.images = torch.randn(count, 3, 2, 3, dtype=torch.float64)
        self.targets = torch.randint(4, (count,))
        self.start = nn.Sequential(nn.Flatten(), nn.Linear(18, 4)).double()

    def watch(self, global_seed: int) -> tuple[nn.Module, list[_Pass]]:
        """A copy of the model, and a list that gets its passes. The global seed must not matter."""
        model = copy.deepcopy(self.start)
        passes: list[_Pass] = []

        def note(_: nn.Module, inputs: tuple[Tensor], logits: Tensor) -> None:
            same = (inputs[0][:, None] == self.images).flatten(2).all(dim=2)  # (batch, N)
            require(same.any(dim=1).all(), "The model gets an image that is in no file.")
            numbers = same.int().argmax(dim=1)
            hits = int((logits.argmax(dim=1) == self.targets[numbers]).sum())
            passes.append(_Pass(logits.requires_grad, numbers.tolist(), hits))

        model.register_forward_hook(note)
        torch.manual_seed(global_seed)
        return model, passes

    def compare(
        self, model: nn.Module, passes: Sequence[_Pass], losses: object, wrong: dict[str, Tensor]
    ) -> None:
        """Fail unless ``model`` and ``losses`` are those of SGD with a step for each pass.

        ``wrong``: labels (N,) by the sentence that names them.
        """

        def run(other: tuple[Callable, Tensor]) -> tuple[nn.Module, Tensor]:
            train, labels = other
            batches = [(self.images[seen.numbers], labels[seen.numbers]) for seen in passes]
            return train(self.start, batches, [LR] * len(passes))

        right = (train_copy, self.targets)
        faults: list = [(sentence, (train_copy, labels)) for sentence, labels in wrong.items()]
        faults.append((NO_ZERO_GRAD, (train_copy_without_zero_grad, self.targets)))
        weights = flatten_parameters(model)
        diagnose(weights, lambda it: flatten_parameters(run(it)[0]), right, faults, OTHER_STEPS)
        require(is_close(read_losses(losses, len(passes)), run(right)[1]), OTHER_LOSSES)


def _run_rank(
    answer: Callable, photos: _Photos, rank: int, ranks: int, seed: int, global_seed: int = 0
) -> list[int]:
    """The numbers of the points that the rank trains on, in order."""
    model, passes = photos.watch(global_seed + rank)  # as in processes that were not seeded alike
    data = TensorDataset(photos.images, photos.targets)
    losses = answer(model, data, rank, ranks, EPOCHS, BATCH_SIZE, LR, seed)
    order = _join(passes)
    # Where the ranks do not divide the points, a share may be padded or one point shorter.
    due = {EPOCHS * (len(data) // ranks), EPOCHS * math.ceil(len(data) / ranks)}
    share = f"In {EPOCHS} epochs, each rank's share of {len(data)} points is {max(due)}"
    require(len(order) in due, f"{share}, not {len(order)}.")
    longest = max(len(seen.numbers) for seen in passes)
    require(longest == BATCH_SIZE, f"A batch has {longest} points, not {BATCH_SIZE}.")
    photos.compare(model, passes, losses, {})
    return order


@checks_exercise()
def check_repair_shards(answer: Callable) -> None:
    """``answer(model, dataset, rank, num_replicas, epochs, batch_size, lr, seed) -> losses``."""
    for total, ranks, seed in ((24, 2, 0), (31, 3, 7)):
        photos = _Photos(total)
        runs = [_run_rank(answer, photos, rank, ranks, seed) for rank in range(ranks)]
        orders = [np.array(run).reshape(EPOCHS, -1).tolist() for run in runs]
        for one, two in combinations(range(EPOCHS), 2):
            what = f"Epochs {one} and {two} have the same order on rank 0."
            require(orders[0][one] != orders[0][two], what)
        for epoch, shares in enumerate(zip(*orders, strict=True)):
            seen = len(set().union(*shares))
            together = f"In epoch {epoch} all ranks together see {seen} of {total} points"
            missing = seen < total and seen == sum(map(len, shares))
            require(not missing, f"{together}: none may be dropped.")
            require(seen == total, f"{together}: they have to share out the same order.")
        for rank, epochs in enumerate(orders):
            what = f"Rank {rank} sees the same points in every epoch: shuffle before sharing out."
            require(len(set(map(frozenset, epochs))) > 1, what)
        require(_run_rank(answer, photos, 0, ranks, seed, 5) == runs[0], NOT_REPEATED)
        other = _run_rank(answer, photos, 0, ranks, seed + 100, 5)
        require(other != runs[0], "Another seed gives the same order.")


@checks_exercise()
def check_repair_folder(answer: Callable) -> None:
    """``answer(model, pictures, labels, epochs, batch_size, lr, seed) -> losses``."""
    for count, seed in ((24, 0), (105, 3)):
        photos, listed = _Photos(count), torch.randperm(count).tolist()
        pictures = {f"{number}.png": photos.images[number] for number in listed}  # in any order
        orders = {BY_NAME: sorted(range(count), key=str), IN_FOLDER_ORDER: listed}
        # The image at place i of such an order gets the label i.
        wrong = {what: photos.targets[np.argsort(order)] for what, order in orders.items()}
        runs = []
        for global_seed in (0, 1):
            model, passes = photos.watch(global_seed)
            losses = answer(model, pictures, photos.targets.tolist(), 2, 6, LR, seed)
            steps = math.ceil(count / 6)
            epochs = [_join(part) for part in (passes[:steps], passes[steps:])]
            for epoch, numbers in enumerate(epochs):
                due = f"Epoch {epoch} does not train on each of the {count} images once."
                require(sorted(numbers) == list(range(count)), due)
            photos.compare(model, passes, losses, wrong)
            runs.append(epochs)
        require(runs[0] == runs[1], "The same seed gives another training the second time.")
        same = runs[0][0] == runs[0][1]
        require(not same, "Epochs 0 and 1 train in one order: shuffle anew in each epoch.")


def _run_sessions(
    answer: Callable, photos: _Photos, sessions: int, seed: int, global_seed: int
) -> set[int]:
    """The numbers of the images that all sessions validate on."""
    model, passes = photos.watch(global_seed)
    found = answer(model, photos.images, photos.targets, sessions, LR, seed)
    require(is_pair(found), NO_LISTS)
    photos.compare(model, [seen for seen in passes if seen.trains], found[0], {})
    blocks = [list(block) for _, block in groupby(passes, key=lambda seen: seen.trains)]
    due = f"{sessions} sessions are due, each trains and ends with a validation."
    require(len(blocks) == 2 * sessions and blocks[0][0].trains, due)
    require(len(found[1]) == sessions, NO_LISTS)
    trained, validated = ([_join(block) for block in blocks[i::2]] for i in (0, 1))
    hits = [sum(seen.hits for seen in block) for block in blocks[1::2]]
    count, before, first = len(photos.targets), set[int](), set(validated[0])
    fifth = count // 5
    for session, (train, val) in enumerate(zip(trained, validated, strict=True)):
        due = f"A fifth of {count} images is {fifth}: session {session} validates on {len(val)}."
        require(len(val) == fifth == len(set(val)), due)
        before |= set(train)
        leaked = len(before & set(val))
        require(not leaked, f"Session {session} validates on {leaked} {LEAKED}")
        due = f"Session {session} trains on {len(set(train))} of {count} images: all but the "
        whole = len(train) == len(set(train)) == count - fifth
        require(whole, f"{due}validation images, each once.")
        value, right = float(found[1][session]), f"{hits[session]} of {fifth}"
        due = f"Session {session} reports an accuracy of {value:.4f}: {right} validation images"
        require(abs(value - hits[session] / fifth) < 1e-6, f"{due} are right.")
    same = trained[0] == trained[1]
    require(not same, "Two sessions train in one order: shuffle anew in each session.")
    require(first not in (set(range(fifth)), set(range(count - fifth, count))), UNSHUFFLED)
    return first


@checks_exercise()
def check_repair_sessions(answer: Callable) -> None:
    """``answer(model, images, targets, sessions, lr, seed) -> (losses, accuracies)``."""
    for count, sessions in ((60, 3), (47, 2)):
        photos = _Photos(count)
        held_out, again, other = (
            _run_sessions(answer, photos, sessions, seed, global_seed)
            for seed, global_seed in ((0, 0), (0, 1), (50, 1))
        )
        require(held_out == again, "The same seed gives other validation images the second time.")
        require(held_out != other, "Another seed gives the same validation images.")
