"""What lesson 20 need not show: units as flat vectors, and what its ranks measure of each way."""

from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW, Optimizer

from course_utils.measure.memory import count_saved_bytes
from course_utils.models.text_small import TextSmall
from lesson_code.sharding.library import make_redundancy, make_sharded
from lesson_code.sharding.memory import pad
from lesson_code.sharding.sent import CountSent

__all__ = [
    "NAMES",
    "Moment",
    "Unit",
    "Way",
    "compute_loss",
    "count_activations",
    "count_held",
    "list_unit_sizes",
    "make_batch",
    "make_model",
    "make_way",
    "measure",
    "read_weights",
    "split",
    "take_shard",
]

CLASSES, LONGEST = 10, 64
LR = 1e-3  # of AdamW, everywhere in this lesson
STEPS = 3
OURS = {"ZeRO 1": "Zero1", "ZeRO 2": "Zero2", "ZeRO 3": "Zero3"}  # files that the notebook writes
LIBRARY = {"ZeroRedundancyOptimizer": make_redundancy, "fully_shard": make_sharded}
NAMES = ("DDP", *OURS, *LIBRARY)
Batch = tuple[Tensor, Tensor]


def make_model(depth: int = 8, dtype: torch.dtype = torch.float32, seed: int = 0) -> TextSmall:
    """The lesson's transformer: tokens (N, T) to logits (N, 10)."""
    torch.manual_seed(seed)
    return TextSmall(CLASSES, vocabulary=1024, depth=depth, longest=LONGEST).to(dtype)


def make_batch(texts: int = 8, length: int = LONGEST, seed: int = 0) -> Batch:
    """Random tokens (N, T) and targets (N,), the same on all ranks."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, 1024, (texts, length), generator=generator)
    return tokens, torch.randint(CLASSES, (texts,), generator=generator)


class Moment:
    """Bytes of whole vectors that live for a moment only: now, and the most there were."""

    def __init__(self) -> None:
        self.now, self.most = 0, 0

    def add(self, nbytes: int) -> None:
        self.now += nbytes
        self.most = max(self.most, self.now)


class Unit:
    """Some parameters of a network as one vector, cut into one part for each of n ranks.

    ``weights`` ``(P,)`` holds all of them, padded with zeros so that n divides P; each parameter
    is a view of it. ``own`` ``(P / n,)`` is this rank's part, a parameter that an optimizer can
    step. All ranks start with rank 0's weights.

    Args:
        module: whose forward pass needs the parameters.
        parameters: every one has to get a gradient in every backward pass.
        moment: that counts whole vectors of this and other units.
    """

    def __init__(self, module: nn.Module, parameters: Iterable[nn.Parameter], moment: Moment):
        self.module, self.parameters, self.moment = module, list(parameters), moment
        sizes = [parameter.numel() for parameter in self.parameters]
        ranks = dist.get_world_size()
        self.length = pad(sum(sizes), ranks)
        self.weights = self.parameters[0].new_zeros(self.length)  # (P,)
        self.gradients: Tensor | None = None  # (P,), where there are any
        ends = torch.tensor(sizes).cumsum(0).tolist()
        self.places = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        for parameter, place in zip(self.parameters, self.places, strict=True):
            self.weights[place] = parameter.detach().flatten()
            parameter.data = self.weights[place].view_as(parameter)
        dist.broadcast(self.weights, src=0)
        self.own = nn.Parameter(self.find_own(self.weights))

    @property
    def nbytes(self) -> int:
        """Of the whole vector."""
        return self.length * self.weights.element_size()

    def find_own(self, vector: Tensor) -> Tensor:
        """This rank's part of a vector ``(P,)``: a view ``(P / n,)``."""
        return vector.chunk(dist.get_world_size())[dist.get_rank()]

    def _make_vector(self) -> Tensor:
        return torch.zeros(self.length, dtype=self.weights.dtype)

    def keep_gradients(self) -> None:
        """Let every gradient be a view of ``gradients`` ``(P,)`` from now on."""
        self.gradients = self._make_vector()
        for parameter, place in zip(self.parameters, self.places, strict=True):
            parameter.grad = self.gradients[place].view_as(parameter)

    def when_complete(self, reduce: Callable[["Unit", Tensor], object]) -> None:
        """Call ``reduce(unit, gradients)`` in each backward pass when all gradients are there.

        ``gradients`` ``(P,)`` is this rank's own, and is freed after the call.
        """
        missing = set(range(len(self.parameters)))

        def collect(number: int, parameter: nn.Parameter) -> None:
            assert parameter.grad is not None
            if self.gradients is None:
                self.gradients = self._make_vector()
                self.moment.add(self.nbytes)
            self.gradients[self.places[number]] = parameter.grad.flatten()
            parameter.grad = None
            missing.discard(number)
            if not missing:
                reduce(self, self.gradients)
                self.gradients = None
                self.moment.add(-self.nbytes)
                missing.update(range(len(self.parameters)))

        for number, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(partial(collect, number))

    def shard(self) -> None:
        """Keep this rank's part alone, and free the whole vector."""
        self.own.data = self.own.detach().clone()  # the parameter that the optimizer has
        self.weights.untyped_storage().resize_(0)

    def allocate(self) -> Tensor:
        """The whole vector, to be filled: the parameters are views of it again."""
        if not self.weights.untyped_storage().nbytes():
            self.weights.untyped_storage().resize_(self.nbytes)
            self.moment.add(self.nbytes)
        return self.weights

    def free(self) -> None:
        """Free the whole vector; the parameters have no values until the next `allocate`."""
        if self.weights.untyped_storage().nbytes():
            self.weights.untyped_storage().resize_(0)
            self.moment.add(-self.nbytes)


def list_parts(model: TextSmall) -> list[tuple[nn.Module, list[nn.Parameter]]]:
    """Each block with its parameters, and the model with what is left."""
    parts: list[tuple[nn.Module, list[nn.Parameter]]] = [
        (block, list(block.parameters())) for block in model.blocks
    ]
    inside = {id(parameter) for _, parameters in parts for parameter in parameters}
    return [*parts, (model, [p for p in model.parameters() if id(p) not in inside])]


def list_unit_sizes(model: TextSmall) -> list[int]:
    """Numbers in each unit, the last one being what belongs to no block."""
    return [sum(p.numel() for p in parameters) for _, parameters in list_parts(model)]


def split(model: TextSmall) -> list[Unit]:
    """A unit for each block, and one for the embeddings, the last norm and the head."""
    moment = Moment()
    return [Unit(module, parameters, moment) for module, parameters in list_parts(model)]


# ---- What a rank holds.


def _localise(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor of `fully_shard`, or the tensor itself."""
    local = getattr(tensor, "to_local", None)
    return local() if local else tensor


def _count_storages(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of the storages behind the tensors, each once."""
    storages = {}
    for tensor in tensors:
        if tensor is not None:
            storage = _localise(tensor.detach()).untyped_storage()
            if storage.nbytes():
                storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def count_held(model: nn.Module, optimizer: Optimizer) -> dict[str, int]:
    """Bytes that this rank holds: weights, gradients, optimizer state.

    A storage counts once, however many tensors view it. AdamW's step counters, one number for
    each tensor, are left out.
    """
    stepped = [p for group in optimizer.param_groups for p in group["params"]]
    parameters = [*model.parameters(), *stepped]
    inner = getattr(optimizer, "optim", optimizer)  # of a `ZeroRedundancyOptimizer`
    state = [x for entry in inner.state.values() for x in entry.values()]
    return {
        "weights": _count_storages(parameters),
        "gradients": _count_storages(p.grad for p in parameters),
        "optimizer state": _count_storages(x for x in state if isinstance(x, Tensor) and x.ndim),
    }


# ---- Ways to train, and what is measured of each.


class Way(NamedTuple):
    """One way to train: its network, its optimizer, a step, and all weights as one vector."""

    model: nn.Module
    optimizer: Optimizer
    step: Callable[[], object]
    read_weights: Callable[[], Tensor]
    units: list[Unit]


def _step_and_clear(optimizer: Optimizer) -> None:
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)


def read_weights(model: nn.Module) -> Tensor:
    """All parameters as one vector (P,), gathered where they are sharded."""
    whole = [getattr(p, "full_tensor", lambda p=p: p)() for p in model.parameters()]
    return torch.cat([parameter.detach().flatten() for parameter in whole])


def make_plain(model: TextSmall) -> Way:
    """One process, or DDP where there are more; gradients are views of the buckets."""
    wrapped: nn.Module = model
    if dist.get_world_size() > 1:
        wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = AdamW(model.parameters(), LR)
    return _wrap(model, wrapped, optimizer)


def _wrap(model: nn.Module, wrapped: nn.Module, optimizer: Optimizer) -> Way:
    step, read = partial(_step_and_clear, optimizer), partial(read_weights, model)
    return Way(wrapped, optimizer, step, read, [])


def make_ours(name: str, model: TextSmall) -> Way:
    """One of the notebook's classes, from the file that the notebook has written."""
    ours = getattr(import_module(name.lower()), name)(model, LR)

    def read() -> Tensor:
        for unit in ours.units:
            dist.all_gather_single(unit.allocate(), unit.own.detach())
        return read_weights(model)

    return Way(model, ours.optimizer, ours.step, read, ours.units)


def make_way(name: str, depth: int, dtype: torch.dtype = torch.float32) -> Way:
    """One of `NAMES`, with a network of its own."""
    model = make_model(depth, dtype)
    if name in OURS:
        return make_ours(OURS[name], model)
    if name == "DDP":
        return make_plain(model)
    return _wrap(model, *LIBRARY[name](model, LR))


def compute_loss(model: nn.Module, batch: Batch) -> Tensor:
    tokens, targets = batch
    return F.cross_entropy(model(tokens), targets)


def take_shard(batch: Batch, rank: int, ranks: int) -> Batch:
    """The texts of one rank: (N / n, T) and (N / n,), as tensors of their own."""
    tokens, targets = batch
    return tokens[rank::ranks].clone(), targets[rank::ranks].clone()


def observe(way: Way, batch: Batch, steps: int = STEPS) -> dict[str, Any]:
    """Take some steps; what this rank holds after them, and what it sends in the last one."""
    for _step in range(steps):
        sent = CountSent()
        with sent:
            compute_loss(way.model, batch).backward()
            way.step()
    return {
        "held": count_held(way.model, way.optimizer),
        "for a moment": way.units[0].moment.most if way.units else 0,
        "sent": sent.total,
        "calls": dict(sent.calls),
    }


def count_activations(batch: Batch, depth: int = 8) -> int:
    """Bytes that the forward pass of this rank saves for its backward pass."""
    model = make_model(depth)
    with count_saved_bytes(model) as saved:
        compute_loss(model, batch)
    return saved.total


def find_gaps(batch: Batch, names: Iterable[str]) -> dict[str, float]:
    """Largest difference of each way's weights from DDP's after some steps.

    In double precision: AdamW divides a gradient that is zero but for rounding, such as that of a
    key's bias, by its own size, so that rounding errors would grow to the length of a step.
    """
    weights = {}
    for name in dict.fromkeys(["DDP", *names]):
        way = make_way(name, depth=2, dtype=torch.float64)
        observe(way, batch)
        weights[name] = way.read_weights()
    return {name: (w - weights["DDP"]).abs().max().item() for name, w in weights.items()}


def measure(
    rank: int, size: int, texts: int = 8, depth: int = 8, names: Iterable[str] = ("DDP", *OURS)
) -> dict[str, Any]:
    """What each rank holds and sends by each way, and how far its weights are from DDP's.

    Args:
        texts: in the batch of all ranks together.
        depth: blocks of the network.
        names: of `NAMES`; stages by hand are read from the files that the notebook writes.
    """
    batch = take_shard(make_batch(texts), rank, size)
    found = {name: observe(make_way(name, depth), batch) for name in names}
    for entry in found.values():
        entry["activations"] = count_activations(batch, depth)
    everywhere: list[Any] = [None] * size
    dist.all_gather_object(everywhere, found)
    return {
        "ways": {name: [ranks[name] for ranks in everywhere] for name in found},
        "gaps": find_gaps(batch, names),
    }
