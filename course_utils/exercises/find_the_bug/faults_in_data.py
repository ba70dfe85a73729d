"""Checks of lesson 90, faults in what the data bring: who sees which point, who draws what."""

import copy
from collections.abc import Callable, Iterator
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from course_utils.exercises.checking import checks_exercise, require
from course_utils.exercises.find_the_bug.replay import flatten, is_close, read_losses, replay

__all__ = ["check_repair_shards", "check_repair_worker"]

LR = 0.1
OTHER_STEPS = "The weights are not those of SGD, one step on each batch of the rank's points."
NOT_AGAIN = "The same seed gives another order the second time: let it follow from seed and epoch."
SAME_SEED = "Another seed gives the same order."
SAME_SHARE = "Rank {} sees the same points in every epoch: shuffle before sharing out."
SIZE, REACH = (11, 13), 4
NO_SHIFT = "Image {} comes back as something else than itself, shifted by −4 to 4 pixels."
ONE_SHIFT = "All images of a worker get the same shift: draw one for each image."
UNEVEN = "The shifts are not spread evenly over −4 to 4, down and right each by itself."
NOT_SEEDED = "The same seed gives other shifts the second time: draw from a seeded generator."


def _run_rank(answer: Callable, data: TensorDataset, rank: int, plan: SimpleNamespace) -> list[int]:
    """The numbers of the points that the rank trains on, in order; its steps are those of SGD."""
    torch.manual_seed(1)
    model, batches = nn.Linear(2, 4).double(), []
    start, numbers = copy.deepcopy(model), data.tensors[0][:, 0].tolist()
    model.register_forward_pre_hook(lambda _, args: batches.append(args[0].detach().clone()))
    torch.manual_seed(plan.outside + rank)  # as in processes that were not seeded alike
    arguments = data, rank, plan.ranks, plan.epochs, plan.size, LR, plan.seed
    found = answer(model, *arguments)
    order = [numbers.index(value) for batch in batches for value in batch[:, 0].tolist()]
    due = plan.epochs * len(data) // plan.ranks
    seen = (
        f"In {plan.epochs} epochs a rank's share of {len(data)} points is {due}, not {len(order)}."
    )
    require(len(order) == due, seen)
    longest = max(len(batch) for batch in batches)
    require(longest == plan.size, f"A batch has {longest} points, not {plan.size}.")
    targets: list[Tensor] = list(data.tensors[1][order].split([len(b) for b in batches]))
    windows = [[pair] for pair in zip(batches, targets, strict=True)]
    right, losses = replay(start, windows, [LR] * len(windows))
    require(is_close(flatten(model), right), OTHER_STEPS)
    own = is_close(read_losses(found, len(windows)), losses)
    require(own, "A loss is not that of its batch before the step.")
    return order


def _compare_epochs(orders: list[list[list[int]]], total: int) -> None:
    """``orders``: a rank's epochs, each a list of numbers."""
    for first, second in combinations(range(len(orders[0])), 2):
        same = orders[0][first] == orders[0][second]
        require(not same, f"Epochs {first} and {second} have the same order on rank 0.")
    for epoch, shares in enumerate(zip(*orders, strict=True)):
        seen = len({number for share in shares for number in share})
        together = f"In epoch {epoch} all ranks together see {seen} of {total} points"
        require(seen == total, f"{together}: they have to share out the same order.")
    for rank, epochs in enumerate(orders):
        require(len({frozenset(share) for share in epochs}) > 1, SAME_SHARE.format(rank))


@checks_exercise
@torch.random.fork_rng(devices=[])
@torch.enable_grad()
def check_repair_shards(answer: Callable) -> None:
    """``answer(model, dataset, rank, num_replicas, epochs, batch_size, lr, seed) -> losses``."""
    for total, ranks, size, seed in ((24, 2, 4, 0), (30, 3, 4, 7)):
        points = torch.stack([torch.arange(total), torch.arange(total) ** 2 % 7], dim=1).double()
        data = TensorDataset(points / total, torch.arange(total) % 4)
        plan = SimpleNamespace(ranks=ranks, epochs=4, size=size, seed=seed, outside=0)
        flat = [_run_rank(answer, data, rank, plan) for rank in range(ranks)]
        share = total // ranks
        orders = [[f[i : i + share] for i in range(0, len(f), share)] for f in flat]
        _compare_epochs(orders, total)
        plan.outside = 5
        require(_run_rank(answer, data, 0, plan) == flat[0], NOT_AGAIN)
        plan.seed += 100
        require(_run_rank(answer, data, 0, plan) != flat[0], SAME_SEED)


def _start_workers(number: int, epochs: int, images: np.ndarray) -> Iterator[SimpleNamespace]:
    """As a DataLoader does: in every epoch each worker gets a copy, and a seed of its own."""
    dataset = SimpleNamespace(images=images, rng=np.random.default_rng(0))
    for base_seed in np.random.default_rng(1).integers(2**40, 2**50, epochs).tolist():
        for worker in range(number):
            own, seed = copy.deepcopy(dataset), base_seed + worker
            yield SimpleNamespace(id=worker, num_workers=number, seed=seed, dataset=own)


def _read_shifts(answer: Callable, worker: SimpleNamespace) -> list[tuple[int, int]]:
    """The shift of each image of a worker's share; each image has one bright pixel."""
    images, shifts = worker.dataset.images.copy(), []
    due = list(range(worker.id, len(images), worker.num_workers))
    own = f"Worker {worker.id} of {worker.num_workers} yields other images than its own, in order."
    found = [(int(number), np.asarray(image)) for number, image in answer(worker)]
    require([number for number, _ in found] == due, own)
    for number, image in found:
        require(image.shape == SIZE, f"Images of {SIZE} come back as {image.shape}.")
        places = (np.subtract.outer(np.arange(s), [s // 2])[:, 0] for s in SIZE)
        rows, columns = (np.abs(place) <= REACH for place in places)
        right = (image > 0).sum() == 1 and image.max() == number + 1
        require(right and (image * np.outer(rows, columns)).any(), NO_SHIFT.format(number))
        down, across = np.unravel_index(image.argmax(), SIZE)
        shifts.append((int(down) - SIZE[0] // 2, int(across) - SIZE[1] // 2))
    require(np.array_equal(images, worker.dataset.images), "It changes the data set's images.")
    return shifts


def _compare_workers(shifts: dict[tuple[int, int], list]) -> None:
    """``shifts`` of each (epoch, worker)."""
    require(all(len(set(drawn)) > 1 for drawn in shifts.values()), ONE_SHIFT)
    for one, other in combinations(shifts, 2):
        least = min(len(shifts[one]), len(shifts[other]))
        names = " and ".join(f"worker {worker} in epoch {epoch}" for epoch, worker in (one, other))
        same = shifts[one][:least] == shifts[other][:least]
        require(not same, f"The same shifts are drawn by {names}.")


@checks_exercise
@torch.random.fork_rng(devices=[])
def check_repair_worker(answer: Callable) -> None:
    """``answer(worker)`` yields ``(number, image)``: called as a DataLoader's workers would be."""
    images = np.zeros((120, *SIZE), dtype=np.int64)
    images[:, SIZE[0] // 2, SIZE[1] // 2] = np.arange(120) + 1
    state = np.random.get_state()
    try:
        runs = []
        for outside in (0, 1):
            np.random.seed(outside)
            torch.manual_seed(outside)
            workers = list(_start_workers(3, 3, images))
            runs.append([_read_shifts(answer, worker) for worker in workers])
    finally:
        np.random.set_state(state)
    places = [(epoch, worker) for epoch in range(3) for worker in range(3)]
    _compare_workers(dict(zip(places, runs[0], strict=True)))
    require(runs[0] == runs[1], NOT_SEEDED)
    drawn = np.concatenate(runs[0])
    for way, least in ((drawn[:, 0], 9), (drawn[:, 1], 9), (drawn.sum(axis=1), 13)):
        values, counts = np.unique(way, return_counts=True)
        require(len(values) >= least and counts.max() < 0.2 * len(way), UNEVEN)
