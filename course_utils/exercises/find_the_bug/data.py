"""Checks of lesson 90, faults in what the data bring: who sees which point, who draws what."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from course_utils.exercises.checking import checks_exercise, require
from course_utils.exercises.find_the_bug.replay import read_losses
from course_utils.exercises.oracles import flatten_parameters, is_close, train_copy

__all__ = ["check_repair_shards", "check_repair_worker"]

LR = 0.1
EPOCHS = 4
OTHER_STEPS = "The weights are not those of SGD, one step on each batch of the rank's points."
OTHER_LOSS = "A loss is not that of its batch before the step."
NOT_REPEATED = (
    "The same seed gives another order the second time: let it follow from seed and epoch."
)
SEED_IGNORED = "Another seed gives the same order."
SAME_SHARE = "Rank {} sees the same points in every epoch: shuffle before sharing out."

WORKERS = 3
WORKER_EPOCHS = 3
SIZE = (11, 13)  # height and width of an image, whose only bright pixel is in the middle
MIDDLE = (SIZE[0] // 2, SIZE[1] // 2)
REACH = 4  # the largest shift, in pixels, in each of four directions
NO_SHIFT = "Image {} comes back as something else than itself, shifted by −4 to 4 pixels."
ONE_SHIFT = "All images of a worker get the same shift: draw one for each image."
UNEVEN = "The shifts are not spread evenly over −4 to 4, down and right each by itself."
NOT_SEEDED = "The same seed gives other shifts the second time: draw from a seeded generator."


@dataclass(frozen=True)
class _Plan:
    """How the ranks are to train."""

    ranks: int
    batch_size: int
    seed: int  # what the answer is given
    global_seed: int = 0  # of torch around the answer, which must not matter


def _run_rank(answer: Callable, data: TensorDataset, rank: int, plan: _Plan) -> list[int]:
    """The numbers of the points that the rank trains on, in order; its steps are those of SGD.

    No two points of ``data`` have the same first coordinate.
    """
    torch.manual_seed(1)
    model = nn.Linear(2, 4).double()
    start = copy.deepcopy(model)
    inputs: list[Tensor] = []  # of each forward pass: (batch, 2)
    model.register_forward_pre_hook(lambda _, args: inputs.append(args[0].detach().clone()))
    torch.manual_seed(plan.global_seed + rank)  # as in processes that were not seeded alike
    found = answer(model, data, rank, plan.ranks, EPOCHS, plan.batch_size, LR, plan.seed)

    points, targets = data.tensors
    coordinates = points[:, 0].tolist()
    order = [coordinates.index(value) for batch in inputs for value in batch[:, 0].tolist()]
    due = EPOCHS * len(data) // plan.ranks
    share = f"In {EPOCHS} epochs a rank's share of {len(data)} points is {due}, not {len(order)}."
    require(len(order) == due, share)
    longest = max(len(batch) for batch in inputs)
    require(longest == plan.batch_size, f"A batch has {longest} points, not {plan.batch_size}.")

    batch_targets = targets[order].split([len(batch) for batch in inputs])
    batches = list(zip(inputs, batch_targets, strict=True))
    right, losses = train_copy(start, batches, [LR] * len(batches))
    same = is_close(flatten_parameters(model), flatten_parameters(right))
    require(same, OTHER_STEPS)
    require(is_close(read_losses(found, len(batches)), losses), OTHER_LOSS)
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
        require(seen == total, f"{together}: they have to share out the same order.")
    for rank, epochs in enumerate(orders):
        different_shares = {frozenset(share) for share in epochs}
        require(len(different_shares) > 1, SAME_SHARE.format(rank))


@checks_exercise()
@torch.random.fork_rng(devices=[])
@torch.enable_grad()
def check_repair_shards(answer: Callable) -> None:
    """``answer(model, dataset, rank, num_replicas, epochs, batch_size, lr, seed) -> losses``."""
    for total, ranks, seed in ((24, 2, 0), (30, 3, 7)):
        points = torch.stack([torch.arange(total), torch.arange(total) ** 2 % 7], dim=1).double()
        data = TensorDataset(points / total, torch.arange(total) % 4)
        plan = _Plan(ranks, batch_size=4, seed=seed)
        runs = [_run_rank(answer, data, rank, plan) for rank in range(ranks)]
        share = total // ranks
        orders = [[run[i : i + share] for i in range(0, len(run), share)] for run in runs]
        _compare_epochs(orders, total)
        elsewhere = replace(plan, global_seed=5)
        require(_run_rank(answer, data, 0, elsewhere) == runs[0], NOT_REPEATED)
        other_seed = replace(elsewhere, seed=seed + 100)
        require(_run_rank(answer, data, 0, other_seed) != runs[0], SEED_IGNORED)


def _start_workers(number: int, epochs: int, images: np.ndarray) -> Iterator[SimpleNamespace]:
    """As a DataLoader does: in every epoch each worker gets a copy, and a seed of its own.

    The attributes are those of `torch.utils.data.get_worker_info`.
    """
    dataset = SimpleNamespace(images=images, rng=np.random.default_rng(0))
    base_seeds = np.random.default_rng(1).integers(2**40, 2**50, epochs)
    for base_seed in base_seeds.tolist():
        for worker in range(number):
            yield SimpleNamespace(
                id=worker,
                num_workers=number,
                seed=base_seed + worker,
                dataset=copy.deepcopy(dataset),
            )


def _read_shifts(answer: Callable, worker: SimpleNamespace) -> list[tuple[int, int]]:
    """The shift (down, right) of each image of a worker's share.

    The bright pixel of image ``number`` has the value ``number + 1``.
    """
    images = worker.dataset.images.copy()
    due = list(range(worker.id, len(images), worker.num_workers))
    own = f"Worker {worker.id} of {worker.num_workers} yields other images than its own, in order."
    found = [(int(number), np.asarray(image)) for number, image in answer(worker)]
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


def _compare_workers(shifts: dict[tuple[int, int], list[tuple[int, int]]]) -> None:
    """No two draw the same; ``shifts`` of each (epoch, worker)."""
    require(all(len(set(drawn)) > 1 for drawn in shifts.values()), ONE_SHIFT)
    for one, other in combinations(shifts, 2):
        shared = min(len(shifts[one]), len(shifts[other]))
        same = shifts[one][:shared] == shifts[other][:shared]
        names = " and ".join(f"worker {worker} in epoch {epoch}" for epoch, worker in (one, other))
        require(not same, f"The same shifts are drawn by {names}.")


def _run_workers(answer: Callable, images: np.ndarray) -> list[list[tuple[int, int]]]:
    """The shifts of each worker, epoch by epoch."""
    workers = _start_workers(WORKERS, WORKER_EPOCHS, images)
    return [_read_shifts(answer, worker) for worker in workers]


@checks_exercise()
@torch.random.fork_rng(devices=[])
def check_repair_worker(answer: Callable) -> None:
    """``answer(worker)`` yields ``(number, image)``: called as a DataLoader's workers would be."""
    images = np.zeros((120, *SIZE), dtype=np.int64)  # (N, H, W)
    images[:, MIDDLE[0], MIDDLE[1]] = np.arange(120) + 1
    state = np.random.get_state()
    runs = []
    try:
        for global_seed in (0, 1):  # it must not matter
            np.random.seed(global_seed)
            torch.manual_seed(global_seed)
            runs.append(_run_workers(answer, images))
    finally:
        np.random.set_state(state)
    places = [(epoch, worker) for epoch in range(WORKER_EPOCHS) for worker in range(WORKERS)]
    _compare_workers(dict(zip(places, runs[0], strict=True)))
    require(runs[0] == runs[1], NOT_SEEDED)
    drawn = np.concatenate(runs[0])  # (images of all epochs, 2)
    # The sum shows whether down and right are drawn apart: equal ones give even sums only.
    for values, least in ((drawn[:, 0], 9), (drawn[:, 1], 9), (drawn.sum(axis=1), 13)):
        different, counts = np.unique(values, return_counts=True)
        even = len(different) >= least and counts.max() < 0.2 * len(values)
        require(even, UNEVEN)
