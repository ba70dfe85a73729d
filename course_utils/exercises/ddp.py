"""Checks of the exercises of lesson 09: no processes, a fake group plays the other ranks."""

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from threading import Barrier, BrokenBarrierError
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch.utils.data import DistributedSampler, TensorDataset

from course_utils.exercises.checking import checks_exercise, fail, require
from course_utils.exercises.oracles import compare_with_faults

__all__ = ["check_average_gradients", "check_shard_indices", "check_train_rank"]

TOLERANCE = 1e-6  # relative; everything here is float64

# images, ranks, epoch, seed: with and without padding, and more padding than a rank has images
SHARDS = ((21, 4, 3, 0), (21, 4, 3, 7), (12, 3, 0, 2), (3, 8, 2, 1))

# The ranks train on 45 images: batches of 6 leave a shorter last one on 2 and on 3 ranks,
# and on 2 ranks the sampler repeats an image.
EPOCHS = 3
BATCH_SIZE = 6
IMAGES = 45
DATA = TensorDataset(
    torch.arange(6 * IMAGES).double().sin().view(-1, 6),  # (N, 6), all different
    torch.arange(IMAGES) % 3,  # (N,)
)

# The faults of a training that `_simulate` can repeat; each name is the sentence that explains it.
OWN_START = "each rank starts from its own: broadcast rank 0's at the start."
OWN_BUFFERS = "each rank keeps its own buffers: broadcast them too."
SAME_EPOCH = "every epoch has the same order: tell the sampler the epoch."
EPOCHS_FROM_ONE = "the sampler is told epochs 1, 2, … and not 0, 1, …"
SAME_SHARD = "all ranks follow rank 0's images alone."
OWN_GRADIENT = "each rank steps with its own gradient: sum them between backward and step."
NO_ZERO_GRAD = "gradients of earlier steps still count: zero_grad is missing."
SUMMED = "gradients are summed, not averaged: divide by size."
FAULTS = (
    OWN_START,
    OWN_BUFFERS,
    SAME_EPOCH,
    EPOCHS_FROM_ONE,
    SAME_SHARD,
    OWN_GRADIENT,
    NO_ZERO_GRAD,
    SUMMED,
)


def _compare(who: str, found, wanted, faults, otherwise: str) -> None:
    """`compare_with_faults` of numbers or lists; each sentence begins with ``who``."""
    compare_with_faults(
        torch.as_tensor(found).double(),
        torch.as_tensor(wanted).double(),
        ((f"{who} {why}", torch.as_tensor(faulty).double()) for why, faulty in faults),
        f"{who} {otherwise}",
        tolerance=TOLERANCE,
        fault_tolerance=TOLERANCE,
    )


def _shard(length: int, rank: int, size: int, epoch: int, seed: int = 0) -> list[int]:
    """The oracle: the rank's indices as PyTorch's sampler gives them."""
    dataset = TensorDataset(torch.zeros(length))  # the sampler reads only its length
    sampler: DistributedSampler = DistributedSampler(
        dataset, num_replicas=size, rank=rank, seed=seed
    )
    sampler.set_epoch(epoch)
    return list(sampler)


@checks_exercise
def check_shard_indices(answer: Callable) -> None:
    """``answer(length, rank, size, epoch, seed) -> indices``, as from DistributedSampler."""
    for length, size, epoch, seed in SHARDS:
        for rank in range(size):
            _check_one_shard(answer, length, rank, size, epoch, seed)


def _check_one_shard(
    answer: Callable, length: int, rank: int, size: int, epoch: int, seed: int
) -> None:
    optional = (seed,) if seed else ()  # 0 is the default, which the answer must have too
    state = torch.get_rng_state()
    found = list(answer(length, rank, size, epoch, *optional))
    again = list(answer(length, rank, size, epoch, *optional))
    require(state.equal(torch.get_rng_state()), "Draw from a torch.Generator of your own.")
    whole = all(type(index) is int for index in found)
    require(whole, "Return a list of ints: a tensor has .tolist().")
    require(found == again, "Two calls give different indices: is the generator seeded?")

    case = f"{length} images, rank {rank} of {size}, epoch {epoch}, seed {seed}:"
    wanted = _shard(length, rank, size, epoch, seed)
    require(len(found) == len(wanted), f"{case} pad to {len(wanted)}, not to {len(found)}.")

    permutation = _shard(length, 0, 1, epoch, seed)  # that of all images
    rank_permutation = _shard(length, 0, 1, epoch, seed + rank)
    faults = {
        "the epoch is not in the seed.": _shard(length, rank, size, 0, seed),
        "the argument seed is ignored.": _shard(length, rank, size, epoch),
        "the rank is in the seed, ranks must draw the same permutation.": (
            rank_permutation[rank::size]
        ),
        "nothing is shuffled.": sorted(found),
        "a rank takes a block: take every size-th index.": permutation[rank * len(wanted) :],
        "all ranks get the same images: begin at rank.": permutation[::size],
        "it is only shuffled within the rank.": [n for n in found if n % size == rank],
    }
    # Padding is checked last, so only the indices before it are compared here.
    unpadded = length // size
    beginnings = [(why, indices[:unpadded]) for why, indices in faults.items()]
    other = f"it must begin with {wanted[:2]}."
    _compare(case, found[:unpadded], wanted[:unpadded], beginnings, other)
    require(found == wanted, f"{case} pad with the beginning, here {wanted[-1]}.")


# Shapes of the parameters that get a gradient: together 29 numbers.
GRADIENT_SHAPES = ((3, 4), (4,), (), (2, 3, 2))
NO_GRADIENT_SHAPES = ((5,), (2, 2))
WEIGHT = 9.0  # every weight, so that a weight is not mistaken for a gradient
# The fake all_reduce adds 3.7 times this rank's gradients, as if the other ranks had sent them.
TOTAL_FACTOR = 4.7


@checks_exercise
def check_average_gradients(answer: Callable) -> None:
    """``answer(parameters, all_reduce, size)``: the mean in each ``.grad``, by one exchange."""
    for size, once in itertools.product((3, 2), (False, True)):
        _check_one_average(answer, size, once)


def _check_one_average(answer: Callable, size: int, once: bool) -> None:
    """``once``: the parameters come as an iterator, as ``model.parameters()`` gives them."""
    shapes = NO_GRADIENT_SHAPES + GRADIENT_SHAPES
    parameters = [nn.Parameter(torch.full(shape, WEIGHT).double()) for shape in shapes]
    used = parameters[len(NO_GRADIENT_SHAPES) :]
    own = torch.arange(1, 30).double().sqrt()  # (29,), this rank's gradients, all different
    parts = own.split([p.numel() for p in used])
    for parameter, part in zip(used, parts, strict=True):
        parameter.grad = part.clone().view_as(parameter)
    calls: list[int] = []  # the number of elements of each

    def all_reduce(tensor: Tensor) -> None:
        require(isinstance(tensor, Tensor), "all_reduce takes one tensor: join the gradients.")
        is_weight = (tensor == WEIGHT).any()
        require(not is_weight, "all_reduce gets the weights, not the gradients.")
        calls.append(tensor.numel())
        tensor.data *= TOTAL_FACTOR

    answer(iter(parameters) if once else parameters, all_reduce, size)
    mean = TOTAL_FACTOR * own / size
    lost = " (parameters can be read only once)" if once else ""
    require(len(calls) == 1, f"all_reduce is called {len(calls)} times{lost}: make one bucket.")
    require(calls[0] == 29, f"The bucket has {calls[0]} elements, the gradients have 29.")
    unchanged = all((p == WEIGHT).all() for p in parameters)
    require(unchanged, "The weights change: the mean is for .grad.")
    still_none = all(p.grad is None for p in parameters[: len(NO_GRADIENT_SHAPES)])
    require(still_none, "A .grad that is None must stay None.")
    # it is None after an answer that takes it away, and the error says so
    kept = [p.grad.expand_as(p) for p in used]  # type: ignore[union-attr]  # see above
    found = torch.cat([gradient.flatten() for gradient in kept])  # (29,)
    # The nearest right value for each found one: where it is, and how far away.
    gaps, places = (found[:, None] - mean).abs().min(dim=1)  # (29, 29) -> (29,), (29,)
    faults = {
        f"still this rank's own{lost}: copy the bucket back.": own,
        "this rank's own, divided: the sum is never copied back.": own / size,
        "summed, not averaged: divide by size.": mean * size,
        "divided by size twice: before the exchange or after it is right.": mean / size,
        "added to this rank's own: replace those.": own + mean,
        "at the wrong places: move on through the bucket.": mean[places],
    }
    _compare("The gradients are", found, mean, faults.items(), "not the mean over the ranks.")
    require(gaps.max() < 1e-12, "Digits are lost: the bucket has another dtype.")


def _sum(tensors: list[Tensor]) -> Tensor:
    """A new tensor; a loop, as these are few and small and `torch.stack` would take longer."""
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        total += tensor
    return total


class _Ranks:
    """Runs an answer on all ranks, a thread each; a fake group carries their tensors.

    A barrier makes all ranks wait for each other in every call, and at their end, so that a rank
    that makes another call than the others is found and none waits for one that has ended.
    """

    ENDED = "has ended"

    def __init__(self, size: int) -> None:
        # What each rank does now, in words, and the tensor that it has brought.
        self.doing = [self.ENDED] * size
        self.tensors: list[Tensor | None] = [None] * size
        self.barrier = Barrier(size, self._communicate, timeout=60)

    def _communicate(self) -> None:
        """Carry out the call that all ranks wait in; the rank that comes last does it for all."""
        said = ", ".join(f"rank {rank} {doing}" for rank, doing in enumerate(self.doing))
        alike = len(set(self.doing)) == 1
        require(alike, f"{said.capitalize()}: every rank must make the same calls.")
        tensors = [tensor for tensor in self.tensors if tensor is not None]
        if not tensors:  # all have ended
            return
        sources = tensors if "all_reduce" in said else tensors[:1]  # else rank 0 broadcasts
        total = _sum(sources)
        for tensor in tensors:
            tensor.copy_(total)

    def _call(self, rank: int, name: str, tensor: Tensor) -> None:
        """``group.all_reduce(tensor)`` or ``group.broadcast(tensor)`` of one rank."""
        self.doing[rank] = f"waits in {name} of shape {tuple(tensor.shape)}"
        self.tensors[rank] = tensor.detach()
        self.barrier.wait()

    def run(self, rank: int, answer: Callable, model: nn.Module, optional: tuple) -> object:
        """What the answer returns on this rank."""
        size = len(self.doing)
        group = SimpleNamespace(
            all_reduce=partial(self._call, rank, "all_reduce"),
            broadcast=partial(self._call, rank, "broadcast"),
        )
        try:
            found = answer(model, DATA, rank, size, EPOCHS, BATCH_SIZE, group, *optional)
            self.doing[rank] = self.ENDED
            self.tensors[rank] = None
            self.barrier.wait()
            return found
        except BrokenBarrierError:  # what broke it is raised in another thread
            return None
        except Exception:
            self.barrier.abort()
            raise


def _run_ranks(answer: Callable, models: list[nn.Module], optional: tuple) -> list:
    """What each rank returns, in the order of the ranks."""
    size = len(models)
    ranks = _Ranks(size)
    with ThreadPoolExecutor(size) as pool:
        running = [
            pool.submit(ranks.run, rank, answer, model, optional)
            for rank, model in enumerate(models)
        ]
        return [future.result() for future in running]


def _build(weight_seed: int, buffer_seed: int) -> nn.Module:
    """A network whose first weight is a buffer, so that a forgotten buffer changes the outputs."""
    first = nn.Linear(6, 5)
    weight = first.weight.detach()
    del first.weight
    first.register_buffer("weight", weight)
    model = nn.Sequential(first, nn.Tanh(), nn.Linear(5, 3)).double()
    for name, tensor in model.state_dict().items():
        seed = buffer_seed if name == "0.weight" else weight_seed
        tensor.normal_(generator=torch.Generator().manual_seed(seed))
    return model


def _flatten_states(models: list[nn.Module]) -> Tensor:
    """Parameters and buffers of each model as a row: (ranks, P)."""
    return torch.stack([parameters_to_vector(model.state_dict().values()) for model in models])


@cache
def _simulate(size: int, lr: float, *faults: str) -> tuple[Tensor, Tensor]:
    """All ranks in one process: states (ranks, P) and counts (epochs, batches, ranks, 2).

    Counted are, of each batch of each rank, the images that are classified right, and all images.
    """
    models = []
    for rank in range(size):
        weight_seed = rank if OWN_START in faults else 0
        buffer_seed = rank if OWN_BUFFERS in faults else 0
        models.append(_build(weight_seed, buffer_seed))
    counts = []
    for epoch in range(EPOCHS):
        for batches in _shard_batches(size, epoch, faults):
            for model, (images, targets) in zip(models, batches, strict=True):
                logits = model(images)
                right = torch.eq(logits.argmax(dim=1), targets).sum()
                counts.append([right, targets.numel()])
                if NO_ZERO_GRAD not in faults:
                    model.zero_grad()
                F.cross_entropy(logits, targets).backward()
            _step(models, lr, faults)
    return _flatten_states(models), torch.tensor(counts).view(EPOCHS, -1, size, 2)


def _shard_batches(size: int, epoch: int, faults: tuple[str, ...]) -> Iterator[list]:
    """For each step of an epoch the batch (images, targets) of each rank."""
    if SAME_EPOCH in faults:
        epoch = 0
    elif EPOCHS_FROM_ONE in faults:
        epoch += 1
    ranks = [0] * size if SAME_SHARD in faults else range(size)
    shards = [torch.tensor(_shard(IMAGES, rank, size, epoch)).split(BATCH_SIZE) for rank in ranks]
    for step in zip(*shards, strict=True):
        yield [DATA[indices] for indices in step]


def _step(models: list[nn.Module], lr: float, faults: tuple[str, ...]) -> None:
    """An SGD step of every rank, with the all-reduce of the gradients before it."""
    divisor = 1 if SUMMED in faults else len(models)
    # Of each parameter the copies on all ranks.
    for copies in zip(*(model.parameters() for model in models), strict=True):
        mean = _sum([p.grad for p in copies if p.grad is not None]) / divisor
        for parameter in copies:
            if OWN_GRADIENT not in faults:
                parameter.grad = mean.clone()
            assert parameter.grad is not None  # for the type checker: backward has set it
            parameter.data -= lr * parameter.grad


def _simulate_faults(size: int, lr: float) -> Iterator[tuple[str, Tensor]]:
    """The states of one to four faults at once; the sentence is that of the first of them."""
    for number in (1, 2, 3, 4):
        for faults in itertools.combinations(FAULTS, number):
            states, _ = _simulate(size, lr, *faults)
            yield faults[0], states


@checks_exercise
def check_train_rank(answer: Callable) -> None:
    """``answer(model, dataset, rank, size, epochs, batch_size, group, lr) -> accuracy``."""
    for size, lr in ((2, None), (3, 0.2)):
        models = [_build(rank, rank) for rank in range(size)]
        # Without lr the answer takes its default.
        values = _run_ranks(answer, models, () if lr is None else (lr,))
        learning_rate = 0.1 if lr is None else lr
        wanted, counts = _simulate(size, learning_rate)
        faults = _simulate_faults(size, learning_rate)
        other = "not those of one process: images, steps, rate?"
        _compare("Weights:", _flatten_states(models), wanted, faults, other)
        for rank, value in enumerate(values):
            _check_accuracy(rank, value, counts)


def _check_accuracy(rank: int, value: object, counts: Tensor) -> None:
    """``counts`` (epochs, batches, ranks, 2) as `_simulate` gives them."""
    if not isinstance(value, float):
        fail(f"Rank {rank} returns no float: all ranks do.")
    right, seen = counts[-1].unbind(-1)  # of the last epoch: (batches, ranks) each
    accuracy = right.sum() / seen.sum()
    faults = {
        "the mean of the batches' accuracies: add the counts.": (right / seen).mean(),
        "the accuracy of its own images.": right[:, rank].sum() / seen[:, rank].sum(),
        "the accuracy of all epochs.": counts[..., 0].sum() / counts[..., 1].sum(),
        "hits / images of the data set, but the sampler pads.": right.sum() / IMAGES,
    }
    case = f"Rank {rank} returns {value:.4f},"
    _compare(case, value, accuracy, faults.items(), f"not {accuracy:.4f}.")
