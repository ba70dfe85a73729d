"""A small language for the schedule of one rank: what it computes, sends, stores and frees.

A schedule is a function ``schedule(rank, ranks, layers, batches)`` that yields instructions, or
returns a list of them. It is data: `simulator` plays it, and `messages` runs it in real processes.

The network is a row of layers. Layer ``l`` turns ``activation(l, b)`` of a batch ``b`` into
``activation(l + 1, b)``. The last layer computes the loss too, so that its forward pass leaves
``activation_gradient(layers, b)``.
"""

import itertools
from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple

__all__ = [
    "Instruction",
    "Schedule",
    "ScheduleError",
    "Thing",
    "activation",
    "activation_gradient",
    "all_gather",
    "all_reduce",
    "backward",
    "forward",
    "free",
    "gradient",
    "list_instructions",
    "recv",
    "reduce_scatter",
    "send",
    "shard",
    "state",
    "store",
    "update",
    "weight",
]

MOST_INSTRUCTIONS = 10_000  # of a rank: more are a loop without an end
STORED = ("weight", "state")
REDUCED = ("gradient",)
GATHERED = ("weight", "gradient")
SENT = ("activation", "activation gradient")


class ScheduleError(Exception):
    """What is wrong with a schedule, in one sentence."""


class Thing(NamedTuple):
    """What a rank can have in its memory: made by `weight`, `gradient`, `state` and so on."""

    kind: str
    layer: int
    batch: int | None = None
    shard: int | None = None

    def __str__(self) -> str:
        part = "" if self.shard is None else f"shard {self.shard} of "
        of_batch = "" if self.batch is None else f" of batch {self.batch}"
        place = "before" if self.batch is not None else "of"
        return f"{part}the {self.kind}{of_batch} {place} layer {self.layer}"


class Instruction(NamedTuple):
    """One line of a schedule: made by `forward`, `backward`, `all_reduce` and so on."""

    name: str
    thing: Thing
    peer: int | None = None  # of send and recv

    def __str__(self) -> str:
        if self.name in ("forward", "backward"):
            return f"{self.name}({self.thing.layer}, {self.thing.batch})"
        return f"{self.name}({self.thing.layer})" if self.name == "update" else self._describe()

    def _describe(self) -> str:
        peer = {"send": f" to rank {self.peer}", "recv": f" from rank {self.peer}"}
        return f"{self.name} of {self.thing}{peer.get(self.name, '')}"


Schedule = Callable[[int, int, int, int], Iterable[Instruction]]


def weight(layer: int) -> Thing:
    """The weights of a layer."""
    return Thing("weight", layer)


def gradient(layer: int) -> Thing:
    """The gradient of a layer's weights: the sum over the batches that it has seen."""
    return Thing("gradient", layer)


def state(layer: int) -> Thing:
    """The optimizer state of a layer: Adam's two averages, twice the bytes of the weights."""
    return Thing("state", layer)


def activation(layer: int, batch: int) -> Thing:
    """What goes into a layer, for one batch."""
    return Thing("activation", layer, batch)


def activation_gradient(layer: int, batch: int) -> Thing:
    """The gradient of the loss by ``activation(layer, batch)``."""
    return Thing("activation gradient", layer, batch)


def shard(thing: Thing, number: int) -> Thing:
    """Part ``number`` of weights, of a gradient or of optimizer state: one of ``ranks`` parts.

    Raises:
        ScheduleError: of something else.
    """
    if not isinstance(thing, Thing):
        raise ScheduleError(f"shard({thing!r}, …): {_say_no_thing(thing)}.")
    return thing._replace(shard=number)


def store(thing: Thing) -> Instruction:
    """Have weights or optimizer state, or a shard of them, from the start: at the beginning."""
    return Instruction("store", thing)


def free(thing: Thing) -> Instruction:
    """Forget a thing."""
    return Instruction("free", thing)


def forward(layer: int, batch: int) -> Instruction:
    """Needs the whole weight and the activation before the layer, which stays for `backward`.

    The activation before layer 0 comes with the batch, on any rank.
    """
    return Instruction("forward", activation(layer, batch))


def backward(layer: int, batch: int) -> Instruction:
    """Adds to the layer's gradient, and leaves ``activation_gradient(layer, batch)``.

    Needs the whole weight; frees the activation before the layer and the gradient behind it.
    """
    return Instruction("backward", activation(layer, batch))


def update(layer: int) -> Instruction:
    """One step of the optimizer with the gradient that is there, which it frees.

    With a shard of the gradient or of the optimizer state it changes this shard of the weights.
    """
    return Instruction("update", weight(layer))


def all_reduce(thing: Thing) -> Instruction:
    """Every rank gets the sum of the ranks' gradients."""
    return Instruction("all_reduce", thing)


def reduce_scatter(thing: Thing) -> Instruction:
    """Rank r gets shard r of the sum of the ranks' gradients, in place of its whole gradient."""
    return Instruction("reduce_scatter", thing)


def all_gather(thing: Thing) -> Instruction:
    """Every rank gets the whole, of which rank r has shard r; the shard stays beside it."""
    return Instruction("all_gather", thing)


def send(thing: Thing, to: int) -> Instruction:
    """Give an activation, or the gradient of one, to rank ``to``; the sender does not wait."""
    return Instruction("send", thing, to)


def recv(thing: Thing, source: int) -> Instruction:
    """Wait for what rank ``source`` sends."""
    return Instruction("recv", thing, source)


def list_instructions(
    schedule: Schedule, rank: int, ranks: int, layers: int, batches: int
) -> list[Instruction]:
    """All instructions of one rank.

    Raises:
        ScheduleError: something else than instructions, too many of them, or one that names a
            layer, a batch, a shard or a rank that is not there.
    """
    found: Any = schedule(rank, ranks, layers, batches)
    if not isinstance(found, Iterable):
        raise ScheduleError(f"Rank {rank}: the schedule yields no instructions: use yield.")
    instructions = list(itertools.islice(found, MOST_INSTRUCTIONS + 1))
    if len(instructions) > MOST_INSTRUCTIONS:
        raise ScheduleError(f"Rank {rank}: the schedule does not end.")
    for instruction in instructions:
        if problem := _find_problem(instruction, rank, ranks, layers, batches):
            is_one = isinstance(instruction, Instruction)
            words = instruction if is_one else f"a {type(instruction).__name__}"
            raise ScheduleError(f"Rank {rank}, {words}: {problem}.")
    return instructions


def _say_no_thing(value: object) -> str:
    name = getattr(value, "__name__", None)
    return f"call it: {name}(layer)" if name else f"{value} is no thing, as weight(0) is"


def _find_problem(instruction: Any, rank: int, ranks: int, layers: int, batches: int) -> str | None:
    """What is wrong with one instruction, wherever it stands."""
    if isinstance(instruction, Generator):
        return "this is a generator: write yield from in place of yield"
    if not isinstance(instruction, Instruction):
        return "this is no instruction: yield one after the other"
    name, thing, peer = instruction
    if not isinstance(thing, Thing):
        return _say_no_thing(thing)
    if not isinstance(thing.layer, int):
        return f"a layer is a number, and not {thing.layer}"
    limits = {"layer": layers + (thing.kind in SENT), "batch": batches, "shard": ranks}
    for word, limit in limits.items():
        number = getattr(thing, word)
        if number is not None and number not in range(limit):
            return f"there is no {word} {number}"
    if peer is not None and (peer not in range(ranks) or peer == rank):
        return f"rank {peer} is no other rank"
    return _find_wrong_kind(name, thing)


def _find_wrong_kind(name: str, thing: Thing) -> str | None:
    """Whether this instruction takes such a thing."""
    if name in ("all_reduce", "all_gather", "reduce_scatter") and thing.shard is not None:
        return "name the whole: each rank gives or gets its own shard"
    if name in ("all_reduce", "reduce_scatter") and thing.kind not in REDUCED:
        return "only gradients are added up"
    if name == "all_gather" and thing.kind not in GATHERED:
        return "only weights and gradients are gathered"
    if name in ("send", "recv") and thing.kind not in SENT:
        return "only activations and their gradients are sent from rank to rank"
    if name == "store" and thing.kind not in STORED:
        return "only weights and optimizer state are there at the start"
    return None
