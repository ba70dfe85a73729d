"""Checks of lesson 90, faults in what the data bring: who sees which point, who draws what."""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, permutations, product
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from course_utils.exercises.checking import checks_exercise, require
from course_utils.exercises.find_the_bug.replay import read_losses, require_losses
from course_utils.exercises.oracles import flatten_parameters, is_close, train_copy

__all__ = ["check_repair_shards", "check_repair_worker"]

Shifts = list[tuple[int, int]]  # (down, right) of each image

LR = 0.1
EPOCHS = 4
OTHER_STEPS = "The weights are not those of SGD, one step on each batch of the rank's points."
BEFORE_STEP = "the loss of its batch before the step"
NOT_REPEATED = (
    "The same seed gives another order the second time: let it follow from seed and epoch."
)
SEED_IGNORED = "Another seed gives the same order."
SAME_SHARE = "Rank {} sees the same points in every epoch: shuffle before sharing out."

WORKERS = ((3, 3), (2, 2))  # their number, and epochs
SIZE = (11, 13)  # height and width of an image, whose only bright pixel is in the middle
MIDDLE = (SIZE[0] // 2, SIZE[1] // 2)
REACH = 4  # the largest shift, in pixels, in each of four directions
NO_SHIFT = "Image {} comes back as something else than itself, shifted by −4 to 4 pixels."
ONE_SHIFT = "All images of a worker get the same shift: draw one for each image."
NO_PAIRS = "It has to yield pairs of a number and an image, as the script does."
AS_FAR = "Each image is shifted as far down as right: draw the two apart."
UNEVEN = "The shifts are not spread evenly over −4 to 4, down and right each by itself."
NOT_SEEDED = "The same seed gives other shifts the second time: draw from a seeded generator."


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


def _start_workers(number: int, epochs: int, images: np.ndarray) -> Iterator[SimpleNamespace]:
    """As a DataLoader does: in every epoch each worker gets a copy, and a seed of its own.

    The attributes are those of `torch.utils.data.get_worker_info`.
    """
    dataset = SimpleNamespace(images=images, rng=np.random.default_rng(0))
    for epoch in range(epochs):
        # Whoever keeps only the last digits of a seed, or its last 16 bits, gets the same in
        # every epoch: the least common multiple of 2**16 and 10**6 lies between them.
        base_seed = 2**45 + 8_675_309 + epoch * math.lcm(2**16, 10**6)
        for worker in range(number):
            yield SimpleNamespace(
                id=worker,
                num_workers=number,
                seed=base_seed + worker,
                dataset=copy.deepcopy(dataset),
            )


def _read_shifts(answer: Callable, worker: SimpleNamespace) -> Shifts:
    """The shift (down, right) of each image of a worker's share.

    The bright pixel of image ``number`` has the value ``number + 1``.
    """
    images = worker.dataset.images.copy()
    due = list(range(worker.id, len(images), worker.num_workers))
    own = f"Worker {worker.id} of {worker.num_workers} yields other images than its own, in order."
    yielded = list(answer(worker))
    require(all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in yielded), NO_PAIRS)
    found = [(int(number), np.asarray(image)) for number, image in yielded]
    require([number for number, _ in found] == due, own)
    shifts = []
    for number, image in found:
        require(image.shape == SIZE, f"Images of {SIZE} come back as {image.shape}.")
        down, right = (
            int(place) - middle
            for place, middle in zip(np.unravel_index(image.argmax(), SIZE), MIDDLE, strict=True)
        )
        one_pixel = (image > 0).sum() == 1 and image.max() == number + 1
        in_reach = max(abs(down), abs(right)) <= REACH
        require(one_pixel and in_reach, NO_SHIFT.format(number))
        shifts.append((down, right))
    unchanged = np.array_equal(images, worker.dataset.images)
    require(unchanged, "It changes the data set's images.")
    return shifts


def _compare_workers(shifts: dict[tuple[int, int], Shifts]) -> None:
    """No two draw the same; ``shifts`` of each (epoch, worker)."""
    require(all(len(set(drawn)) > 1 for drawn in shifts.values()), ONE_SHIFT)
    for one, other in combinations(shifts, 2):
        names = " and ".join(f"worker {worker} in epoch {epoch}" for epoch, worker in (one, other))
        same = _is_shared(shifts[one], shifts[other])
        require(not same, f"The same shifts are drawn by {names}.")
        # Seeds that lie one apart, counted up image by image, meet after an image or two.
        late = any(
            _is_shared(first[images:], second)
            for images in (1, 2, 3)
            for first, second in permutations((shifts[one], shifts[other]))
        )
        require(not late, f"The same shifts are drawn by {names}, an image or more apart.")


def _is_shared(one: Shifts, other: Shifts) -> bool:
    """Whether the shorter of both begins the longer one."""
    return all(first == second for first, second in zip(one, other, strict=False))


def _run_workers(
    answer: Callable, images: np.ndarray, number: int, epochs: int
) -> dict[tuple[int, int], Shifts]:
    """The shifts of each (epoch, worker)."""
    workers = _start_workers(number, epochs, images)
    places = product(range(epochs), range(number))
    return {
        place: _read_shifts(answer, worker) for place, worker in zip(places, workers, strict=True)
    }


@checks_exercise()
def check_repair_worker(answer: Callable) -> None:
    """``answer(worker)`` yields ``(number, image)``: called as a DataLoader's workers would be."""
    images = np.zeros((120, *SIZE), dtype=np.int64)  # (N, H, W)
    images[:, MIDDLE[0], MIDDLE[1]] = np.arange(120) + 1
    for number, epochs in WORKERS:
        runs = []
        for global_seed in (0, 1):  # it must not matter
            np.random.seed(global_seed)
            torch.manual_seed(global_seed)
            runs.append(_run_workers(answer, images, number, epochs))
        _compare_workers(runs[0])
        require(runs[0] == runs[1], NOT_SEEDED)
        _compare_spread(np.concatenate(list(runs[0].values())))


def _compare_spread(drawn: np.ndarray) -> None:
    """``drawn`` (images of all epochs, 2): how far down and right; each value is as likely."""
    down, right = drawn.T
    for name, values in (("down", down), ("right", right)):
        missing = sorted(set(range(-REACH, REACH + 1)) - set(values.tolist()))
        never = ", ".join(str(value).replace("-", "−") for value in missing)
        none_missing = f"Of {len(drawn)} images none is shifted {name} by {never}: −4 to 4 are due."
        require(not missing, none_missing)
    require((down != right).any(), AS_FAR)
    # The sum shows whether down and right are drawn apart: equal ones give even sums only.
    for values, least in ((down, 9), (right, 9), (down + right, 13)):
        different, counts = np.unique(values, return_counts=True)
        even = len(different) >= least and counts.max() < 0.2 * len(values)
        require(even, UNEVEN)
