"""Checks of the exercises of lesson 09: no processes, a fake group plays the other ranks."""

import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from threading import Barrier, BrokenBarrierError
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch.utils.data import DistributedSampler, TensorDataset

from course_utils.exercises.checking import checks_exercise, require

__all__ = ["check_average_gradients", "check_shard_indices", "check_train_rank"]

SHARDS = ((21, 4, 3, 0), (21, 4, 3, 7), (12, 3, 0, 2), (3, 8, 2, 1))  # images, ranks, epoch, seed
EPOCHS, BATCH, IMAGES = 3, 6, 45
DATA = TensorDataset(torch.arange(6 * IMAGES).double().sin().view(-1, 6), torch.arange(IMAGES) % 3)
FAULTS = (START, BUFFERS, SAME, NEXT, SHARED, OWN, KEPT, SUM) = (
    "each rank starts from its own: broadcast rank 0's at the start.",
    "each rank keeps its own buffers: broadcast them too.",
    "every epoch has the same order: tell the sampler the epoch.",
    "the sampler is told epochs 1, 2, … and not 0, 1, …",
    "all ranks follow rank 0's images alone.",
    "each rank steps with its own gradient: sum them between backward and step.",
    "gradients of earlier steps still count: zero_grad is missing.",
    "gradients are summed, not averaged: divide by size.",
)


def _compare(who: str, found, wanted, faults: Iterable[tuple], otherwise: str) -> None:
    """Fail with the sentence of the fault that gives what was found, or ``otherwise``."""
    found = torch.as_tensor(found).double()
    for why, vector in itertools.chain([("", wanted)], faults, [(otherwise, found)]):  # noqa: B007
        vector = torch.as_tensor(vector).double()
        if vector.shape == found.shape and (found - vector).norm() <= 1e-6 * vector.norm():
            break
    require(not why, f"{who} {why}")


def _deal(length: int, rank: int, size: int, epoch: int, seed: int = 0) -> list[int]:
    sampler = DistributedSampler(range(length), num_replicas=size, rank=rank, seed=seed)
    sampler.set_epoch(epoch)
    return list(sampler)


@checks_exercise
def check_shard_indices(answer: Callable) -> None:
    """``answer(length, rank, size, epoch, seed) -> indices``, as from DistributedSampler."""
    cases = [(length, rank, *rest) for length, *rest in SHARDS for rank in range(rest[0])]
    for length, rank, size, epoch, seed in cases:
        state, optional = torch.get_rng_state(), (seed,) if seed else ()
        found, again = (list(answer(length, rank, size, epoch, *optional)) for _ in range(2))
        require(state.equal(torch.get_rng_state()), "Draw from a torch.Generator of your own.")
        require({*map(type, found)} <= {int}, "Return a list of ints: a tensor has .tolist().")
        require(found == again, "Two calls give different indices: is the generator seeded?")
        case = f"{length} images, rank {rank} of {size}, epoch {epoch}, seed {seed}:"
        wanted, rounds = _deal(length, rank, size, epoch, seed), length // size
        require(len(found) == len(wanted), f"{case} pad to {len(wanted)}, not to {len(found)}.")
        full, own = (_deal(length, 0, 1, epoch, seed + shift) for shift in (0, rank))
        faults = {
            "the epoch is not in the seed.": _deal(length, rank, size, 0, seed),
            "the argument seed is ignored.": _deal(length, rank, size, epoch),
            "the rank is in the seed, ranks must draw the same permutation.": own[rank::size],
            "nothing is shuffled.": sorted(found),
            "a rank takes a block: take every size-th index.": full[rank * len(wanted) :],
            "all ranks get the same images: begin at rank.": full[::size],
            "it is only shuffled within the rank.": [n for n in found if n % size == rank],
        }
        pairs = ((why, indices[:rounds]) for why, indices in faults.items())  # before the padding
        _compare(case, found[:rounds], wanted[:rounds], pairs, f"it must begin with {wanted[:2]}.")
        require(found == wanted, f"{case} pad with the beginning, here {wanted[-1]}.")


@checks_exercise
def check_average_gradients(answer: Callable) -> None:
    """``answer(parameters, all_reduce, size)``: the mean in each ``.grad``, by one exchange."""
    shapes, own = ((5,), (2, 2), (3, 4), (4,), (), (2, 3, 2)), torch.arange(1, 30).double().sqrt()
    for size, once in itertools.product((3, 2), (False, True)):
        every = [nn.Parameter(torch.full(shape, 9.0).double()) for shape in shapes]
        used, calls = every[2:], []  # the first two have no gradient
        for p, part in zip(used, own.split([12, 4, 1, 12]), strict=True):
            p.grad = part.clone().view_as(p)

        def all_reduce(tensor: Tensor, calls: list = calls) -> None:
            require(isinstance(tensor, Tensor), "all_reduce takes one tensor: join the gradients.")
            require(not (tensor == 9).any(), "all_reduce gets the weights, not the gradients.")
            calls.append(tensor.numel())
            tensor.data *= 4.7  # the other ranks have 3.7 times this rank's gradients

        answer(iter(every) if once else every, all_reduce, size)
        mean, lost = 4.7 * own / size, " (parameters can be read only once)" if once else ""
        require(len(calls) == 1, f"all_reduce is called {len(calls)} times{lost}: make one bucket.")
        require(calls[0] == 29, f"The bucket has {calls[0]} elements, the gradients have 29.")
        require(all((p == 9).all() for p in every), "The weights change: the mean is for .grad.")
        require(every[0].grad is every[1].grad is None, "A .grad that is None must stay None.")
        found = torch.cat([p.grad.expand_as(p).flatten() for p in used])
        gaps, places = (found[:, None] - mean).abs().min(dim=1)
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


def _run_ranks(answer: Callable, models: list[nn.Module], *lr: float) -> list:
    """What each rank, a thread, returns; none waits for one that has ended."""
    size, slots = len(models), [("has ended", None)] * len(models)

    def exchange() -> None:  # by the rank that comes last, for all
        says = ", ".join(f"rank {rank} {call}" for rank, (call, _) in enumerate(slots))
        require(len(dict(slots)) == 1, f"{says.capitalize()}: every rank must make the same calls.")
        tensors = [tensor for _, tensor in slots if tensor is not None]
        total = sum(t.clone() for t in (tensors if "all_reduce" in says else tensors[:1]))
        for tensor in tensors:
            tensor.copy_(total)

    def call(rank: int, name: str, tensor: Tensor) -> None:
        slots[rank] = f"waits in {name} of shape {tuple(tensor.shape)}", tensor.detach()
        barrier.wait()

    def work(rank: int) -> object:
        group = SimpleNamespace(**{n: partial(call, rank, n) for n in ("all_reduce", "broadcast")})
        try:
            found = answer(models[rank], DATA, rank, size, EPOCHS, BATCH, group, *lr)
            slots[rank] = ("has ended", None)
            barrier.wait()
            return found
        except BrokenBarrierError:  # what broke it is raised in another thread
            return None
        except Exception:
            barrier.abort()
            raise

    barrier = Barrier(size, exchange, timeout=60)
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(work, range(size)))


def _build(*seeds: int) -> nn.Module:
    """A network whose first weight is a buffer; seeds of the parameters and of this buffer."""
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    model[0].register_buffer("weight", model[0]._parameters.pop("weight").detach())
    for name, tensor in model.state_dict().items():
        tensor.normal_(generator=torch.Generator().manual_seed(seeds[name == "0.weight"]))
    return model


@cache
def _simulate(size: int, lr: float, *faults: str) -> tuple[Tensor, Tensor]:
    """All ranks in one process: their states, and (right, images) by epoch, batch and rank."""
    seen, models = [], [_build(r * (START in faults), r * (BUFFERS in faults)) for r in range(size)]
    for epoch in [0] * EPOCHS if SAME in faults else range(n := NEXT in faults, EPOCHS + n):
        shards = [_deal(IMAGES, rank * (SHARED not in faults), size, epoch) for rank in range(size)]
        for batch in zip(*(torch.tensor(shard).split(BATCH) for shard in shards), strict=True):
            for model, (x, y) in zip(models, (DATA[ids] for ids in batch), strict=True):
                logits = model(x)
                seen.append([(logits.argmax(1) == y).sum(), len(y)])
                model.zero_grad() if KEPT not in faults else None
                F.cross_entropy(logits, y).backward()
            for parts in zip(*(model.parameters() for model in models), strict=True):
                total = sum(p.grad for p in parts) / (1 if SUM in faults else size)
                for p in parts:
                    p.grad = p.grad if OWN in faults else total.clone()
                    p.data -= lr * p.grad
    states = torch.stack([parameters_to_vector(m.state_dict().values()) for m in models])
    return states, torch.tensor(seen).view(EPOCHS, -1, size, 2)


@checks_exercise
def check_train_rank(answer: Callable) -> None:
    """``answer(model, dataset, rank, size, epochs, batch_size, group, lr) -> accuracy``."""
    for size, *lr in ((2,), (3, 0.2)):
        models, rate = [_build(rank, rank) for rank in range(size)], (*lr, 0.1)[0]
        values, (wanted, counts) = _run_ranks(answer, models, *lr), _simulate(size, rate)
        sets = itertools.chain(*(itertools.combinations(FAULTS, n) for n in (1, 2, 3, 4)))
        pairs = ((faults[0], _simulate(size, rate, *faults)[0]) for faults in sets)
        found = torch.stack([parameters_to_vector(m.state_dict().values()) for m in models])
        _compare("Weights:", found, wanted, pairs, "not those of one process: images, steps, rate?")
        hits, seen = counts[-1].unbind(-1)  # of the last epoch
        accuracy = hits.sum() / seen.sum()
        for rank, value in enumerate(values):
            require(isinstance(value, float), f"Rank {rank} returns no float: all ranks do.")
            faults = {
                "the mean of the batches' accuracies: add the counts.": (hits / seen).mean(),
                "the accuracy of its own images.": hits[:, rank].sum() / seen[:, rank].sum(),
                "the accuracy of all epochs.": counts[..., 0].sum() / counts[..., 1].sum(),
                "hits / images of the data set, but the sampler pads.": hits.sum() / IMAGES,
            }
            case = f"Rank {rank} returns {value:.4f},"
            _compare(case, value, accuracy, faults.items(), f"not {accuracy:.4f}.")
