"""Checks of the exercises of lesson 09: no processes, a fake group plays the other ranks."""

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from threading import Barrier, BrokenBarrierError
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DistributedSampler, TensorDataset

from course_utils.checking.checking import Faults, checks_exercise, diagnose, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment

__all__ = [
    "check_average_gradients",
    "check_measure_scaling",
    "check_shard_indices",
    "check_train_rank",
]

TOLERANCE = 1e-6  # relative; everything here is float64

# images, ranks, epoch, seed: with and without padding, and more padding than a rank has images
SHARDS = ((21, 4, 3, 0), (21, 4, 3, 7), (12, 3, 0, 2), (3, 8, 2, 1))

# The ranks train on 45 images: batches of 6 leave a shorter last one on 2 and on 3 ranks,
# and on 2 ranks the sampler repeats an image.
EPOCHS = 3
BATCH_SIZE = 6
IMAGES = 45
FEATURES = torch.arange(6 * IMAGES).double().sin().view(-1, 6)  # (N, 6), all different
# Targets (N,) that are learned quickly: the accuracy differs from step to step.
DATA = TensorDataset(FEATURES, FEATURES[:, ::2].argmax(dim=1))


@checks_exercise()
def check_measure_scaling(answer: Callable) -> None:
    """``answer(config, data) -> (one, four, low, high)``: two global batches, the same seeds."""
    judge_experiment(run_experiment(answer))


def _shard(length: int, rank: int, size: int, epoch: int, seed: int = 0) -> list[int]:
    """The oracle: the rank's indices as PyTorch's sampler gives them."""
    dataset = TensorDataset(torch.zeros(length))  # the sampler reads only its length
    sampler: DistributedSampler = DistributedSampler(
        dataset, num_replicas=size, rank=rank, seed=seed
    )
    sampler.set_epoch(epoch)
    return list(sampler)


def _permute(length: int, epoch: int, seed: int) -> list[int]:
    """The order of all images in an epoch, which all ranks share."""
    return _shard(length, 0, 1, epoch, seed)


def _take_block(length: int, rank: int, size: int, epoch: int, seed: int = 0) -> list[int]:
    count = math.ceil(length / size)
    return _permute(length, epoch, seed)[rank * count :][:count]


# fmt: off
SHARD_FAULTS: Faults = (
    ("the epoch is not in the seed.",
     lambda length, rank, size, epoch, seed=0: _shard(length, rank, size, 0, seed)),
    ("the argument seed is ignored.",
     lambda length, rank, size, epoch, seed=0: _shard(length, rank, size, epoch)),
    ("the rank is in the seed, ranks must draw the same permutation.",
     lambda length, rank, size, epoch, seed=0: _shard(length, rank, size, epoch, seed + rank)),
    ("a rank takes a block: take every size-th index.",
     _take_block),
    ("all ranks get the same images: begin at rank.",
     lambda length, rank, size, epoch, seed=0: _shard(length, 0, size, epoch, seed)),
)
# fmt: on


@checks_exercise(faults=SHARD_FAULTS)
def check_shard_indices(answer: Callable) -> None:
    """``answer(length, rank, size, epoch, seed) -> indices``, as from DistributedSampler."""
    for length, size, epoch, seed in SHARDS:
        for rank in range(size):
            _check_one_shard(answer, length, rank, size, epoch, seed)


def _check_one_shard(
    answer: Callable, length: int, rank: int, size: int, epoch: int, seed: int
) -> None:
    # 0 is the default, which the answer must have too.
    arguments = (length, rank, size, epoch, seed) if seed else (length, rank, size, epoch)
    state = torch.get_rng_state()
    found = list(answer(*arguments))
    again = list(answer(*arguments))
    require(state.equal(torch.get_rng_state()), "Draw from a torch.Generator of your own.")
    whole = all(type(index) is int for index in found)
    require(whole, "Return a list of ints: a tensor has .tolist().")
    require(found == again, "Two calls give different indices: is the generator seeded?")

    case = f"{length} images, rank {rank} of {size}, epoch {epoch}, seed {seed}:"
    wanted = _shard(*arguments)
    require(len(found) == len(wanted), f"{case} pad to {len(wanted)}, not to {len(found)}.")

    # Padding is checked last, so only the indices before it are compared here.
    unpadded = length // size
    if found[:unpadded] != wanted[:unpadded]:
        require(found != sorted(found), f"{case} nothing is shuffled.")
        of_other_ranks = [index for index in found if index % size != rank]
        require(of_other_ranks, f"{case} it is only shuffled within the rank.")
    diagnose(
        found[:unpadded],
        lambda other: other(*arguments)[:unpadded],
        _shard,
        SHARD_FAULTS,
        _explain_order(
            found[:unpadded], wanted[:unpadded], rank, size, _permute(length, epoch, seed)
        ),
        case=case,
        tolerance=TOLERANCE,
    )
    require(found == wanted, f"{case} pad with the beginning, here {wanted[-1]}.")


def _explain_order(
    found: list[int], wanted: list[int], rank: int, size: int, permutation: list[int]
) -> str:
    """The sentence for indices that are not ``wanted``, where no known fault gives them."""
    if found and found[0] in permutation:
        first = permutation.index(found[0])
        twice = permutation * 2
        if found == twice[first::size][: len(found)]:
            return f"its first index is that of position {first} in the permutation, not {rank}."
    return (
        f"it must begin with {wanted[:2]}, not with {found[:2]}: "
        "is the permutation that of torch.randperm, seeded with seed + epoch?"
    )


# Shapes of the parameters that get a gradient: together 29 numbers.
GRADIENT_SHAPES = ((3, 4), (4,), (), (2, 3, 2))
NO_GRADIENT_SHAPES = ((5,), (2, 2))
WEIGHT = 9.0  # every weight, so that a weight is not mistaken for a gradient
# The fake all_reduce adds 3.7 times this rank's gradients, as if the other ranks had sent them.
TOTAL_FACTOR = 4.7


def _average(
    parameters: Iterable[nn.Parameter],
    all_reduce: Callable[[Tensor], None],
    size: int,
    finish: Callable[[Tensor, Tensor, int], Tensor] = lambda own, total, size: total / size,
) -> None:
    """The oracle, unless ``finish(own, total, size)`` makes something else of the gradients."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    own = parameters_to_vector(gradients)
    total = own.clone()
    all_reduce(total)
    vector_to_parameters(finish(own, total, size), gradients)


# fmt: off
AVERAGE_FAULTS: Faults = (
    ("still this rank's own: copy the bucket back.",
     partial(_average, finish=lambda own, total, size: own)),
    ("this rank's own, divided: the sum is never copied back.",
     partial(_average, finish=lambda own, total, size: own / size)),
    ("summed, not averaged: divide by size.",
     partial(_average, finish=lambda own, total, size: total)),
    ("divided by size twice: before the all-reduce or after it is right.",
     partial(_average, finish=lambda own, total, size: total / size**2)),
    ("added to this rank's own: replace those.",
     partial(_average, finish=lambda own, total, size: own + total / size)),
)
# fmt: on


class _AverageCase:
    """Parameters with gradients, and an all_reduce that counts its calls."""

    def __init__(self) -> None:
        shapes = NO_GRADIENT_SHAPES + GRADIENT_SHAPES
        self.parameters = [nn.Parameter(torch.full(shape, WEIGHT).double()) for shape in shapes]
        self.unused = self.parameters[: len(NO_GRADIENT_SHAPES)]
        self.used = self.parameters[len(NO_GRADIENT_SHAPES) :]
        self.own = torch.arange(1, 30).double().sqrt()  # (29,), all different
        parts = self.own.split([p.numel() for p in self.used])
        for parameter, part in zip(self.used, parts, strict=True):
            parameter.grad = part.clone().view_as(parameter)
        self.calls: list[int] = []  # the number of elements of each

    def all_reduce(self, tensor: Tensor) -> None:
        require(isinstance(tensor, Tensor), "all_reduce takes one tensor: join the gradients.")
        is_weight = (tensor == WEIGHT).any()
        require(not is_weight, "all_reduce gets the weights, not the gradients.")
        self.calls.append(tensor.numel())
        tensor.data *= TOTAL_FACTOR

    def read_gradients(self) -> Tensor:
        """(29,); a gradient that is gone or has another shape fails in one sentence."""
        gradients = []
        for parameter in self.used:
            shape = tuple(parameter.shape)
            gradient = parameter.grad
            if gradient is None:
                fail(f"The .grad of a parameter of shape {shape} is None afterwards.")
            other = tuple(gradient.shape)
            same = other == shape
            require(same, f"The .grad of a parameter of shape {shape} has the shape {other}.")
            gradients.append(gradient.flatten())
        return torch.cat(gradients)


@checks_exercise(faults=AVERAGE_FAULTS)
def check_average_gradients(answer: Callable) -> None:
    """``answer(parameters, all_reduce, size)``: the mean in each ``.grad``, by one all-reduce."""
    for size, once in itertools.product((3, 2), (False, True)):
        _check_one_average(answer, size, once)


def _check_one_average(answer: Callable, size: int, once: bool) -> None:
    """``once``: the parameters come as an iterator, as ``model.parameters()`` gives them."""
    case = _AverageCase()
    answer(iter(case.parameters) if once else case.parameters, case.all_reduce, size)
    calls = case.calls
    lost = " (parameters can be read only once)" if once else ""
    require(len(calls) == 1, f"all_reduce is called {len(calls)} times{lost}: make one bucket.")
    require(calls[0] == 29, f"The bucket has {calls[0]} elements, the gradients have 29.")
    unchanged = all((p == WEIGHT).all() for p in case.parameters)
    require(unchanged, "The weights change: the mean is for .grad.")
    still_none = all(p.grad is None for p in case.unused)
    require(still_none, "A .grad that is None must stay None.")

    def run(other: Callable) -> Tensor:
        again = _AverageCase()
        other(again.parameters, again.all_reduce, size)
        return again.read_gradients()

    found = case.read_gradients()
    right = run(_average)
    # The nearest right value for each found one: how far away?
    gaps = (found[:, None] - right).abs().amin(dim=1)  # (29, 29) -> (29,)
    diagnose(
        found,
        run,
        _average,
        AVERAGE_FAULTS,
        _explain_average(found, right, size, misplaced=bool(gaps.max() < 1e-6)),
        case=f"The gradients{lost} are",
        tolerance=TOLERANCE,
    )
    require(gaps.max() < 1e-12, "Digits are lost: the bucket has another dtype.")


def _explain_average(found: Tensor, right: Tensor, size: int, misplaced: bool) -> str:
    """The sentence for gradients that are not ``right``, where no known fault gives them."""
    if misplaced:
        return "at the wrong places: each part of the bucket belongs to the gradient it came from."
    ratios = found / right
    if ratios.max() - ratios.min() < 1e-6:
        return f"{ratios.mean():.3g} times the mean over {size} ranks."
    return "not the mean over the ranks."


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


def _build(seed: int) -> nn.Module:
    """A network whose first weight is a buffer, so that a forgotten buffer changes the outputs.

    Another buffer is an integer, as the number of batches in BatchNorm is.
    """
    first = nn.Linear(6, 5)
    weight = first.weight.detach()
    del first.weight
    first.register_buffer("weight", weight)
    model = nn.Sequential(first, nn.Tanh(), nn.Linear(5, 3)).double()
    for tensor in model.state_dict().values():
        tensor.normal_(generator=torch.Generator().manual_seed(seed))
    first.register_buffer("version", torch.tensor(seed + 1))
    return model


def _flatten_states(models: list[nn.Module]) -> Tensor:
    """Parameters and buffers of each model as a row: (ranks, P)."""
    return torch.stack([parameters_to_vector(model.state_dict().values()) for model in models])


# Faults of a training; each name is the sentence that explains it.
OWN_START = "each rank starts from its own: broadcast rank 0's at the start."
OWN_BUFFERS = "each rank keeps its own buffers: broadcast them too."
SAME_EPOCH = "every epoch has the same order: tell the sampler the epoch."
EPOCHS_FROM_ONE = "the sampler is told epochs 1, 2, … and not 0, 1, …"
SAME_SHARD = "all ranks follow rank 0's images alone."
OWN_GRADIENT = "each rank steps with its own gradient: sum them between backward and step."
NO_ZERO_GRAD = "gradients of earlier steps still count: zero_grad is missing."
SUMMED = (
    "the steps are size times too long: gradients are summed, not averaged, or lr is multiplied."
)
STEP_FAULTS = (
    OWN_START,
    OWN_BUFFERS,
    SAME_EPOCH,
    EPOCHS_FROM_ONE,
    SAME_SHARD,
    OWN_GRADIENT,
    NO_ZERO_GRAD,
    SUMMED,
)
# More of them, which are only known alone.
OWN_INTEGERS = "each rank keeps its own integer buffer: broadcast buffers of every dtype."
NOT_SHUFFLED = "the sampler does not shuffle."
OWN_ORDER = (
    "each rank permutes the images in its own way: seed and epoch are the same on all ranks."
)
LAST_LEFT_OUT = "the last batch of an epoch, which is not full, is left out."
DIVIDED_TWICE = "gradients are divided by size twice."
AVERAGED_WEIGHTS = (
    "the ranks average their weights once an epoch: average the gradients of each step."
)
DEFAULT_LR = "the learning rate is 0.1, whatever the argument lr is."
SINGLE_STEP_FAULTS = (
    OWN_INTEGERS,
    NOT_SHUFFLED,
    OWN_ORDER,
    LAST_LEFT_OUT,
    DIVIDED_TWICE,
    AVERAGED_WEIGHTS,
    DEFAULT_LR,
)
# Faults of the accuracy that is returned.
MEAN_OF_BATCHES = "the mean of the batches' accuracies: add the counts."
OWN_IMAGES = "the accuracy of its own images."
ALL_EPOCHS = "the accuracy of all epochs."
OF_DATA_SET = "hits / images of the data set, but the sampler pads."
AFTER_STEP = "counted with logits from after each step, not with those of the step."
AFTER_TRAINING = "counted with the trained weights, not with the logits of the training steps."
DIVIDED_ACCURACY = "divided by size, but hits and images are summed over the ranks alike."
ACCURACY_FAULTS = (
    MEAN_OF_BATCHES,
    OWN_IMAGES,
    ALL_EPOCHS,
    OF_DATA_SET,
    AFTER_STEP,
    AFTER_TRAINING,
    DIVIDED_ACCURACY,
)


def _train(
    model: nn.Module,
    dataset: TensorDataset,
    rank: int,
    size: int,
    epochs: int,
    batch_size: int,
    group: SimpleNamespace,
    lr: float = 0.1,
    faults: Collection[str] = (),
) -> float:
    """The oracle, or a wrong answer with one or several faults."""
    _start_alike(model, group, faults)
    counts = []  # of each batch: images that are classified right, and all images
    for epoch in range(epochs):
        batches = list(_load(dataset, rank, size, epoch, batch_size, faults))
        for images, targets in batches:
            logits = model(images)
            if NO_ZERO_GRAD not in faults:
                model.zero_grad()
            F.cross_entropy(logits, targets).backward()
            _take_step(model, size, group, lr, faults)
            counts.append(_count(model(images) if AFTER_STEP in faults else logits, targets))
        if AVERAGED_WEIGHTS in faults:
            for parameter in model.parameters():
                group.all_reduce(parameter.data)
                parameter.data /= size
    if AFTER_TRAINING in faults:
        counts[-len(batches) :] = [_count(model(images), targets) for images, targets in batches]
    own = torch.tensor(counts, dtype=torch.float64).view(epochs, -1, 2)  # (epochs, batches, 2)
    return _measure_accuracy(own, len(dataset), size, group, faults)


def _start_alike(model: nn.Module, group: SimpleNamespace, faults: Collection[str]) -> None:
    """Broadcast rank 0's parameters and buffers."""
    with torch.no_grad():
        for parameter in () if OWN_START in faults else model.parameters():
            group.broadcast(parameter)
        for buffer in () if OWN_BUFFERS in faults else model.buffers():
            if buffer.is_floating_point() or OWN_INTEGERS not in faults:
                group.broadcast(buffer)


def _count(logits: Tensor, targets: Tensor) -> list[int]:
    """Images of a batch that are classified right, and all of them."""
    return [int(torch.eq(logits.argmax(1), targets).sum()), len(targets)]


def _load(
    dataset: TensorDataset,
    rank: int,
    size: int,
    epoch: int,
    batch_size: int,
    faults: Collection[str],
) -> Iterator[tuple[Tensor, Tensor]]:
    """The rank's batches (images, targets) of an epoch."""
    if SAME_EPOCH in faults:
        epoch = 0
    elif EPOCHS_FROM_ONE in faults:
        epoch += 1
    shard_of = 0 if SAME_SHARD in faults else rank
    seed = rank if OWN_ORDER in faults else 0
    shard = torch.tensor(_shard(len(dataset), shard_of, size, epoch, seed))
    if NOT_SHUFFLED in faults:
        shard = (rank + size * torch.arange(len(shard))) % len(dataset)
    for indices in shard.split(batch_size):
        if len(indices) == batch_size or LAST_LEFT_OUT not in faults:
            yield dataset[indices]


def _take_step(
    model: nn.Module, size: int, group: SimpleNamespace, lr: float, faults: Collection[str]
) -> None:
    """A step of SGD, with the all-reduce of the gradients before it."""
    for parameter in model.parameters():
        gradient = parameter.grad
        assert gradient is not None  # for the type checker: backward has set it
        if OWN_GRADIENT not in faults and AVERAGED_WEIGHTS not in faults:
            group.all_reduce(gradient)
            if SUMMED not in faults:
                gradient /= size
        if DIVIDED_TWICE in faults:
            gradient /= size
        parameter.data -= (0.1 if DEFAULT_LR in faults else lr) * gradient


def _measure_accuracy(
    own: Tensor, images: int, size: int, group: SimpleNamespace, faults: Collection[str]
) -> float:
    """Over all ranks, of the last epoch.

    ``own`` (epochs, batches, 2): images that this rank classified right, and all that it saw.
    """
    if MEAN_OF_BATCHES in faults:
        mean = (own[-1, :, 0] / own[-1, :, 1]).mean() / size
        group.all_reduce(mean)
        return mean.item()
    counts = own.clone()
    if OWN_IMAGES not in faults:
        group.all_reduce(counts)
    if ALL_EPOCHS not in faults:
        counts = counts[-1:]
    right, seen = counts.sum(dim=(0, 1)).tolist()
    accuracy = right / (images if OF_DATA_SET in faults else seen)
    return accuracy / size if DIVIDED_ACCURACY in faults else accuracy


def _copy_models(size: int) -> list[nn.Module]:
    """What the ranks are given: no two start alike."""
    return [_build(rank) for rank in range(size)]


@cache
def _train_all(size: int, lr: float, *faults: str) -> tuple[Tensor, list[float]]:
    """States (ranks, P) and accuracies (ranks,) after `_train` on all ranks."""
    models = _copy_models(size)
    accuracies = _run_ranks(partial(_train, faults=faults), models, (lr,))
    return _flatten_states(models), accuracies


TRAIN_FAULTS: Faults = tuple(
    (fault, partial(_train, faults=(fault,)))
    for fault in STEP_FAULTS + SINGLE_STEP_FAULTS + ACCURACY_FAULTS
)


def _combine_step_faults() -> Iterator[tuple[str, tuple[str, ...]]]:
    """One to four faults at once; the sentence is that of the first of them."""
    for fault in STEP_FAULTS + SINGLE_STEP_FAULTS:
        yield fault, (fault,)
    for number in (2, 3, 4):
        for faults in itertools.combinations(STEP_FAULTS, number):
            yield faults[0], faults


@checks_exercise(faults=TRAIN_FAULTS)
def check_train_rank(answer: Callable) -> None:
    """``answer(model, dataset, rank, size, epochs, batch_size, group, lr) -> accuracy``."""
    for size, lr in ((2, None), (3, 0.5)):
        models = _copy_models(size)
        # Without lr the answer takes its default.
        values = _run_ranks(answer, models, () if lr is None else (lr,))
        learning_rate = 0.1 if lr is None else lr
        diagnose(
            _flatten_states(models),
            lambda faults: _train_all(size, learning_rate, *faults)[0],  # noqa: B023
            (),
            _combine_step_faults(),
            "not those of one process: look at the images, the steps and the learning rate.",
            case="Weights:",
            tolerance=TOLERANCE,
        )
        for rank, value in enumerate(values):
            _check_accuracy(rank, value, size, learning_rate)


def _check_accuracy(rank: int, value: object, size: int, lr: float) -> None:
    if not isinstance(value, float):
        kind = type(value).__name__
        fail(f"Rank {rank} returns no float, but a {kind}: every rank returns a float.")

    def run(faults: tuple[str, ...]) -> float:
        return _train_all(size, lr, *faults)[1][rank]

    diagnose(
        value,
        run,
        (),
        [(fault, (fault,)) for fault in ACCURACY_FAULTS],
        f"not {run(()):.4f}.",
        case=f"Rank {rank} returns {value:.4f},",
        tolerance=TOLERANCE,
    )
