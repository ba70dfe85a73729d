"""Checks of lesson 90, faults in the data: what is trained on, under which label, and by whom."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from course_utils.checking.checking import checks_exercise, fail, require
from course_utils.checking.oracles import (
    Batches,
    flatten_parameters,
    is_close,
    is_pair,
    train_copy,
    train_copy_without_zero_grad,
)
from lesson_code.find_the_bug.checks.replay import read_losses, require_losses

__all__ = ["check_repair_folder", "check_repair_sessions", "check_repair_shards"]

LR = 0.1
EPOCHS = 4
OTHER_STEPS = "The weights are not those of SGD, one step on each batch of the rank's points."
BEFORE_STEP = "the loss of its batch before the step"
NOT_REPEATED = (
    "The same seed gives another order the second time: let it follow from seed and epoch."
)
SEED_IGNORED = "Another seed gives the same order."
SAME_SHARE = "Rank {} sees the same points in every epoch: shuffle before sharing out."

NO_ZERO_GRAD = "Gradients of earlier steps still count: zero_grad is missing."
BY_NAME = 'Images are in the order of their names: "10.png" comes before "2.png", as text.'
IN_FOLDER_ORDER = "Images are in the order in which the folder lists them: read their numbers."
OTHER_LABELS = "The weights are not those of SGD on each image with its own label."
NOT_ONCE = "Epoch {} does not train on each of the {} images once."
SAME_ORDER = "Epochs 0 and 1 train in one order: shuffle anew in each epoch."
NOT_ALWAYS = "The same seed gives another training the second time."
NO_IMAGE = "The model gets an image that is in no file."

NO_LISTS = "Return two things: the list of losses, and the accuracy after each session."
LEAKED = (
    "Session {} validates on {} images that were trained on before: make one split for all "
    "sessions."
)
OTHER_VAL = "The validation images of session {} are not those of session 0."
TRAINED_ON = "Session {} trains on {} of {} images: all but the validation images, each once."
NOT_FIFTH = "A fifth of {} images is {}: session {} validates on {}."
SAME_SESSIONS = "Two sessions train in one order: shuffle anew in each session."
FIXED_SPLIT = "Another seed gives the same validation images."
UNSHUFFLED = "The validation images are the first ones or the last ones: choose them at random."
OTHER_SPLIT = "The same seed gives other validation images the second time."
WRONG_SHARE = "Session {} reports an accuracy of {:.4f}: {} of {} validation images are right."
OTHER_SESSIONS = "The weights are not those of SGD on the batches that were trained on."


@dataclass(frozen=True)
class _Plan:
    """How the ranks are to train."""

    ranks: int
    batch_size: int
    seed: int  # what the answer is given
    global_seed: int = 0  # of torch around the answer, which must not matter


def _run_rank(
    answer: Callable, start: nn.Module, data: TensorDataset, rank: int, plan: _Plan
) -> list[int]:
    """The numbers of the points that the rank trains on, in order; its steps are those of SGD.

    No two points of ``data`` have the same first coordinate. ``start`` stays as it is.
    """
    model = copy.deepcopy(start)
    inputs: list[Tensor] = []  # of each forward pass: (batch, 2)
    model.register_forward_pre_hook(lambda _, args: inputs.append(args[0].detach().clone()))
    torch.manual_seed(plan.global_seed + rank)  # as in processes that were not seeded alike
    found = answer(model, data, rank, plan.ranks, EPOCHS, plan.batch_size, LR, plan.seed)

    points, targets = data.tensors
    coordinates = points[:, 0].tolist()
    order = [coordinates.index(value) for batch in inputs for value in batch[:, 0].tolist()]
    # Where the ranks do not divide the points, a share may be padded or one point shorter.
    due = {EPOCHS * (len(data) // plan.ranks), EPOCHS * math.ceil(len(data) / plan.ranks)}
    share = f"In {EPOCHS} epochs, each rank's share of {len(data)} points is {max(due)}"
    require(len(order) in due, f"{share}, not {len(order)}.")
    longest = max(len(batch) for batch in inputs)
    require(longest == plan.batch_size, f"A batch has {longest} points, not {plan.batch_size}.")

    batch_targets = targets[order].split([len(batch) for batch in inputs])
    batches = list(zip(inputs, batch_targets, strict=True))
    right, losses = train_copy(start, batches, [LR] * len(batches))
    same = is_close(flatten_parameters(model), flatten_parameters(right))
    require(same, OTHER_STEPS)
    require_losses(read_losses(found, len(batches)), losses, BEFORE_STEP)
    return order


def _compare_epochs(orders: list[list[list[int]]], total: int) -> None:
    """``orders[rank][epoch]`` holds the numbers of points, of which there are ``total``."""
    epochs_of_first = orders[0]
    for first, second in combinations(range(len(epochs_of_first)), 2):
        same = epochs_of_first[first] == epochs_of_first[second]
        require(not same, f"Epochs {first} and {second} have the same order on rank 0.")
    for epoch, shares in enumerate(zip(*orders, strict=True)):
        seen = len({number for share in shares for number in share})
        together = f"In epoch {epoch} all ranks together see {seen} of {total} points"
        missing = seen < total and seen == sum(len(share) for share in shares)
        require(not missing, f"{together}: none may be dropped.")
        require(seen == total, f"{together}: they have to share out the same order.")
    for rank, epochs in enumerate(orders):
        different_shares = {frozenset(share) for share in epochs}
        require(len(different_shares) > 1, SAME_SHARE.format(rank))


@checks_exercise()
@torch.enable_grad()
def check_repair_shards(answer: Callable) -> None:
    """``answer(model, dataset, rank, num_replicas, epochs, batch_size, lr, seed) -> losses``."""
    start = nn.Linear(2, 4).double()
    for total, ranks, seed in ((24, 2, 0), (31, 3, 7)):
        points = torch.stack([torch.arange(total), torch.arange(total) ** 2 % 7], dim=1).double()
        data = TensorDataset(points / total, torch.arange(total) % 4)
        plan = _Plan(ranks, batch_size=4, seed=seed)
        runs = [_run_rank(answer, start, data, rank, plan) for rank in range(ranks)]
        orders = [np.array(run).reshape(EPOCHS, -1).tolist() for run in runs]
        _compare_epochs(orders, total)
        elsewhere = replace(plan, global_seed=5)
        require(_run_rank(answer, start, data, 0, elsewhere) == runs[0], NOT_REPEATED)
        other_seed = replace(elsewhere, seed=seed + 100)
        require(_run_rank(answer, start, data, 0, other_seed) != runs[0], SEED_IGNORED)


class _Images:
    """Images (N, 3, H, W) that can be told apart, and a watch over which of them a model gets."""

    def __init__(self, count: int) -> None:
        self.images = torch.randn(count, 3, 2, 3, dtype=torch.float64)
        self.targets = torch.randint(4, (count,))
        self.numbers = {image.numpy().tobytes(): n for n, image in enumerate(self.images)}

    def find(self, batch: Tensor) -> list[int]:
        """The number of each image of a batch."""
        found = [self.numbers.get(image.detach().numpy().tobytes()) for image in batch]
        require(None not in found, NO_IMAGE)
        return [number for number in found if number is not None]

    def batches(self, numbers: list[list[int]], targets: Tensor) -> Batches:
        """The batches with these numbers, with ``targets`` (N,)."""
        return [(self.images[part], targets[part]) for part in numbers]


def _make_viewer() -> nn.Module:
    """From images (N, 3, 2, 3) to logits (N, 4), float64, by the global seed."""
    return nn.Sequential(nn.Flatten(), nn.Linear(18, 4)).double()


def _explain_labels(
    model: nn.Module, start: nn.Module, data: _Images, parts: list[list[int]], listed: list[int]
) -> None:
    """Fail with the fault that gives the weights of ``model``; ``listed``: numbers of the files."""
    count = len(data.targets)
    weights = flatten_parameters(model)
    by_name = sorted(range(count), key=lambda number: f"{number}.png")
    for sentence, order in ((BY_NAME, by_name), (IN_FOLDER_ORDER, listed)):
        # the image at place i of this order got the label i
        wrong = torch.empty_like(data.targets)
        wrong[order] = data.targets
        trained, _ = train_copy(start, data.batches(parts, wrong), [LR] * len(parts))
        require(not is_close(weights, flatten_parameters(trained)), sentence)
    right = data.batches(parts, data.targets)
    summed, _ = train_copy_without_zero_grad(start, right, [LR] * len(parts))
    require(not is_close(weights, flatten_parameters(summed)), NO_ZERO_GRAD)
    fail(OTHER_LABELS)


def _run_folder(
    answer: Callable, data: _Images, start: nn.Module, listed: list[int], seed: int
) -> list[list[int]]:
    """The numbers of the images of each step."""
    model = copy.deepcopy(start)
    parts: list[list[int]] = []
    model.register_forward_pre_hook(lambda _, args: parts.append(data.find(args[0])))
    pictures = {f"{number}.png": data.images[number] for number in listed}
    epochs, size = 2, 6
    found = answer(model, pictures, data.targets.tolist(), epochs, size, LR, seed)
    count = len(listed)
    steps = math.ceil(count / size)
    losses = read_losses(found, epochs * steps)
    for epoch in range(epochs):
        seen = [number for part in parts[epoch * steps :][:steps] for number in part]
        require(sorted(seen) == list(range(count)), NOT_ONCE.format(epoch, count))
    batches = data.batches(parts, data.targets)
    right, due = train_copy(start, batches, [LR] * len(batches))
    if not is_close(flatten_parameters(model), flatten_parameters(right)):
        _explain_labels(model, start, data, parts, listed)
    require_losses(losses, due, BEFORE_STEP)
    return parts


@checks_exercise()
@torch.enable_grad()
def check_repair_folder(answer: Callable) -> None:
    """``answer(model, pictures, labels, epochs, batch_size, lr, seed) -> losses``."""
    for count, seed in ((24, 0), (105, 3)):
        data, start = _Images(count), _make_viewer()
        listed = torch.randperm(count).tolist()  # a folder lists its files in any order
        runs = []
        for global_seed in (0, 1):  # it must not matter
            torch.manual_seed(global_seed)
            runs.append(_run_folder(answer, data, start, listed, seed))
        require(runs[0] == runs[1], NOT_ALWAYS)
        half = len(runs[0]) // 2
        require(runs[0][:half] != runs[0][half:], SAME_ORDER)


def _run_sessions(
    answer: Callable, data: _Images, start: nn.Module, sessions: int, seed: int
) -> list[list[int]]:
    """The numbers of the images that each session validates on."""
    model = copy.deepcopy(start)
    seen: list[tuple[bool, list[int]]] = []  # of each forward pass: whether it trains
    outputs: list[Tensor] = []

    def note(_: nn.Module, args: tuple[Tensor], logits: Tensor) -> None:
        seen.append((logits.requires_grad, data.find(args[0])))
        outputs.append(logits.detach())

    model.register_forward_hook(note)
    found = answer(model, data.images, data.targets, sessions, LR, seed)
    require(is_pair(found), NO_LISTS)
    parts = [numbers for trains, numbers in seen if trains]
    batches = data.batches(parts, data.targets)
    right, losses = train_copy(start, batches, [LR] * len(batches))
    same = is_close(flatten_parameters(model), flatten_parameters(right))
    require(same, OTHER_SESSIONS)
    require_losses(read_losses(found[0], len(parts)), losses, BEFORE_STEP)
    trained, validated, hits = _split_sessions(seen, outputs, data, sessions)
    _compare_sessions(trained, validated, len(data.targets))
    reported = [float(value) for value in found[1]]
    require(len(reported) == sessions, NO_LISTS)
    for session, (value, number) in enumerate(zip(reported, hits, strict=True)):
        count = len(validated[session])
        wrong = WRONG_SHARE.format(session, value, number, count)
        require(abs(value - number / count) < 1e-6, wrong)
    return validated


def _split_sessions(
    seen: list[tuple[bool, list[int]]], outputs: list[Tensor], data: _Images, sessions: int
) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """Of each session: the images trained on, those validated on, and how many were right."""
    trained: list[list[int]] = [[]]
    validated: list[list[int]] = [[]]
    hits = [0]
    for (trains, numbers), logits in zip(seen, outputs, strict=True):
        if trains and validated[-1]:  # a session ends with its validation
            trained.append([])
            validated.append([])
            hits.append(0)
        (trained if trains else validated)[-1].extend(numbers)
        if not trains:
            hits[-1] += int((logits.argmax(dim=1) == data.targets[numbers]).sum())
    ran = f"{sessions} sessions are due, each ends with a validation; here are {len(trained)}."
    require(len(trained) == sessions and validated[-1], ran)
    return trained, validated, hits


def _compare_sessions(trained: list[list[int]], validated: list[list[int]], count: int) -> None:
    """Fail unless all sessions share one split and train in orders of their own."""
    before: set[int] = set()
    for session, (train, val) in enumerate(zip(trained, validated, strict=True)):
        before |= set(train)
        fifth = NOT_FIFTH.format(count, count // 5, session, len(val))
        require(len(val) == count // 5 == len(set(val)), fifth)
        shared = len(before & set(val))
        require(not shared, LEAKED.format(session, shared))
        require(set(val) == set(validated[0]), OTHER_VAL.format(session))
        whole = len(train) == len(set(train)) == count - len(val)
        require(whole, TRAINED_ON.format(session, len(set(train)), count))
    require(trained[0] != trained[1], SAME_SESSIONS)
    ends = (set(range(count // 5)), set(range(count - count // 5, count)))
    require(set(validated[0]) not in ends, UNSHUFFLED)


@checks_exercise()
@torch.enable_grad()
def check_repair_sessions(answer: Callable) -> None:
    """``answer(model, images, targets, sessions, lr, seed) -> (losses, accuracies)``."""
    for count, sessions in ((60, 3), (47, 2)):
        data, start = _Images(count), _make_viewer()
        runs = []
        for global_seed, seed in ((0, 0), (1, 0), (1, 50)):  # the global one must not matter
            torch.manual_seed(global_seed)
            runs.append(_run_sessions(answer, data, start, sessions, seed))
        same, other = (set(run[0]) == set(runs[0][0]) for run in runs[1:])
        require(same, OTHER_SPLIT)
        require(not other, FIXED_SPLIT)
