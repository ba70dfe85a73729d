"""Play the schedules of all ranks: times, bytes in memory, bytes sent, and what is wrong.

No number of the network is computed here. A gradient is the list of how often each batch is in it,
and a weight is the list of its shards that are updated. So a mistake can be named.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from course_utils.gantt import Bar
from lesson_code.sharding.schedules import (
    Instruction,
    Schedule,
    ScheduleError,
    Thing,
    activation,
    activation_gradient,
    gradient,
    list_instructions,
    shard,
    weight,
)

__all__ = ["Simulation", "Task", "simulate"]

COLLECTIVES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}  # sweeps round the ring
LABELS = {"forward": "F", "backward": "B", "update": "U"}
SHORT = {
    "all_reduce": "AR",
    "all_gather": "AG",
    "reduce_scatter": "RS",
    "recv": "",
}


@dataclass(frozen=True)
class Task:
    """A row of square layers, trained for one step on ``ranks`` ranks, and what things cost.

    With the defaults weights, gradient and each activation of a layer have 1,024 bytes, and the
    optimizer state has 2,048. Times are in units of one forward pass through one layer.

    Args:
        width: of a layer; its weights are ``(width, width)`` numbers of 4 bytes.
        rows: of a batch.
        backward_time: of a layer and batch.
        update_time: of a whole layer; a shard takes its share.
        bytes_per_time: that a rank can send in one unit of time.

    Raises:
        ValueError: the weights of a layer cannot be cut into ``ranks`` equal shards.
    """

    layers: int = 4
    ranks: int = 4
    batches: int = 4
    width: int = 16
    rows: int = 16
    forward_time: float = 1.0
    backward_time: float = 2.0
    update_time: float = 0.5
    bytes_per_time: float = 4096.0

    def __post_init__(self) -> None:
        if self.width**2 % self.ranks:
            raise ValueError(f"{self.width}² weights make no {self.ranks} equal shards")

    def count_bytes(self, thing: Thing) -> int:
        """Bytes of a thing in memory, in float32."""
        if thing.batch is not None:
            return 4 * self.rows * self.width
        numbers = self.width**2 * (2 if thing.kind == "state" else 1)
        return 4 * numbers // (1 if thing.shard is None else self.ranks)

    def count_sent(self, instruction: Instruction) -> int:
        """Bytes that one rank sends in a collective, by a ring, or in a send."""
        whole = self.count_bytes(instruction.thing)
        if instruction.name == "send":
            return whole
        return COLLECTIVES[instruction.name] * whole * (self.ranks - 1) // self.ranks


@dataclass(repr=False)
class Simulation:
    """What happened, up to the end or up to the first mistake."""

    task: Task
    problem: str | None = None  # what is wrong, in one sentence
    bars: list[Bar] = field(default_factory=list)
    sent_bytes: list[int] = field(default_factory=list)  # by rank
    peak_bytes: list[int] = field(default_factory=list)  # by rank, the inputs beside the outputs
    peak_at: list[str] = field(default_factory=list)  # by rank, the instruction with the peak
    peak_of: list[str] = field(default_factory=list)  # by rank, the bytes of each kind of thing
    held_bytes: list[list[int]] = field(default_factory=list)  # by rank, after each instruction
    # by rank, (time, bytes): the most in an instruction at its start, what is left at its end
    curves: list[list[tuple[float, int]]] = field(default_factory=list)
    programs: list[list[Instruction]] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<simulation of {self.task.ranks} ranks>"  # a notebook prints it after the figure

    @property
    def time(self) -> float:
        """When the last rank has ended, in units of one forward pass through one layer."""
        return max((bar.end for bar in self.bars), default=0.0)


class _Rank:
    """One rank while it is played: its clock, its memory, and where its program stands."""

    def __init__(self, number: int, program: Sequence[Instruction], task: Task) -> None:
        self.number, self.program, self.task = number, program, task
        self.position = 0
        self.clock = 0.0
        self.memory: dict[Thing, Any] = {}
        self.bars: list[Bar] = []
        self.sent_bytes = self.peak_bytes = self.most_bytes = 0  # most: of this instruction
        self.peak_at, self.peak_of = "the start", ""
        self.held_bytes: list[int] = []
        self.curves: list[tuple[float, int]] = []

    @property
    def next(self) -> Instruction | None:
        return self.program[self.position] if self.position < len(self.program) else None

    def fail(self, sentence: str) -> NoReturn:
        raise ScheduleError(f"Rank {self.number}, {self.next}: {sentence}.")

    def need(self, thing: Thing, hint: str) -> Any:
        if thing not in self.memory:
            self.fail(f"{thing} is not there: {hint}")
        return self.memory[thing]

    def make(self, thing: Thing, value: Any) -> None:
        """Put a thing into memory, beside all that is there."""
        self.memory[thing] = value
        held = self.count_held()
        self.most_bytes = max(self.most_bytes, held)
        if held > self.peak_bytes:
            self.peak_bytes, self.peak_at = held, str(self.next)
            self.peak_of = self.describe_held()

    def count_held(self) -> int:
        return sum(map(self.task.count_bytes, self.memory))

    def describe_held(self) -> str:
        sizes: Counter[str] = Counter()
        for thing in self.memory:
            sizes[thing.kind] += self.task.count_bytes(thing)
        return ", ".join(f"{kind} {size:,}" for kind, size in sizes.items())

    def end(self, duration: float, kind: str = "", label: str = "", start: float = -1.0) -> None:
        """The instruction is done: move the clock and the program on."""
        start = self.clock if start < 0 else start
        if start > self.clock:
            self.bars.append(Bar(f"rank {self.number}", "wait", self.clock, start))
        self.clock = start + duration
        if kind and duration:
            self.bars.append(Bar(f"rank {self.number}", kind, start, self.clock, label))
        held = self.count_held()
        self.held_bytes.append(held)
        self.curves += [(start, max(self.most_bytes, held)), (self.clock, held)]
        self.most_bytes = 0
        self.position += 1


# ---- What each instruction does on one rank. A weight is a list of truths, one for each shard.


def _need_old_weight(rank: _Rank, layer: int) -> None:
    is_new = rank.need(weight(layer), "store or gather it")
    if any(is_new):
        rank.fail("the weights of this step are needed, and these are updated already")


def _find_place(rank: _Rank, instruction: Instruction) -> tuple[int, int]:
    """Layer and batch of a forward or a backward pass."""
    _, layer, batch, _ = instruction.thing
    if layer == rank.task.layers or batch is None:
        rank.fail("there is no such layer")
    return layer, batch


def _forward(rank: _Rank, instruction: Instruction) -> None:
    layer, batch = _find_place(rank, instruction)
    task = rank.task
    _need_old_weight(rank, layer)
    if layer == 0:
        rank.make(instruction.thing, None)  # it comes with the batch
    rank.need(instruction.thing, "run the layer before it first, or receive it")
    is_last = layer == task.layers - 1
    rank.make((activation_gradient if is_last else activation)(layer + 1, batch), None)
    rank.end(task.forward_time, "forward", f"F{batch}")


def _backward(rank: _Rank, instruction: Instruction) -> None:
    layer, batch = _find_place(rank, instruction)
    task = rank.task
    _need_old_weight(rank, layer)
    rank.need(instruction.thing, "run the forward pass here first")
    behind = activation_gradient(layer + 1, batch)
    rank.need(behind, "run the backward pass of the layer behind it first, or receive it")
    counts = list(rank.memory.get(gradient(layer), [0] * task.batches))
    counts[batch] += 1
    rank.make(gradient(layer), counts)
    if layer > 0:
        rank.make(activation_gradient(layer, batch), None)
    del rank.memory[instruction.thing], rank.memory[behind]
    rank.end(task.backward_time, "backward", f"B{batch}")


def _list_batches(numbers: Sequence[int]) -> str:
    words = [str(number) for number in numbers]
    if len(words) == 1:
        return f"batch {words[0]} is"
    return f"batches {', '.join(words[:-1])} and {words[-1]} are"


def _require_all_batches(rank: _Rank, counts: Sequence[int]) -> None:
    missing = [batch for batch, count in enumerate(counts) if count == 0]
    often = [batch for batch, count in enumerate(counts) if count > 1]
    if missing:
        rank.fail(
            f"{_list_batches(missing)} not in the gradient: run every backward pass before the "
            "update, on this rank or on one whose gradient is added to it"
        )
    if often:
        rank.fail(f"{_list_batches(often)} more than once in the gradient")


def _find_own(rank: _Rank, layer: int) -> Thing:
    """The gradient with which a layer is updated: a shard of it, or the whole."""
    own = [thing for thing in rank.memory if thing[:2] == ("gradient", layer)]
    if not own:
        rank.fail("there is no gradient of this layer")
    return max(own, key=lambda thing: thing.shard is not None)


def _update(rank: _Rank, instruction: Instruction) -> None:
    layer = instruction.thing.layer
    grad = _find_own(rank, layer)
    _require_all_batches(rank, rank.memory[grad])
    held = [thing.shard for thing in rank.memory if thing[:2] == ("state", layer)]
    if not held:
        rank.fail("there is no optimizer state of this layer: store it")
    number = held[0] if grad.shard is None else grad.shard
    if number is not None and number not in held and None not in held:
        rank.fail(f"the optimizer state is shard {held[0]}, and the gradient is shard {number}")
    _mark_updated(rank, layer, number)
    del rank.memory[grad]
    share = 1 if number is None else 1 / rank.task.ranks
    rank.end(rank.task.update_time * share, "update", "U" if number is None else "")


def _mark_updated(rank: _Rank, layer: int, number: int | None) -> None:
    """The whole weight, shard ``number`` of the whole, or the shard that is stored."""
    own = shard(weight(layer), number) if number is not None else weight(layer)
    is_alone = number is not None and own in rank.memory
    target = own if is_alone else weight(layer)
    is_new = list(rank.need(target, "store it, or this rank's shard of it, and do not free that"))
    chosen = range(len(is_new)) if number is None or is_alone else [number]
    if any(is_new[place] for place in chosen):
        rank.fail("it is updated already")
    for place in chosen:
        is_new[place] = True
    rank.memory[target] = is_new


def _store(rank: _Rank, instruction: Instruction) -> None:
    if any(earlier.name != "store" for earlier in rank.program[: rank.position]):
        rank.fail("store comes first, because it is what a rank has at the start")
    thing = instruction.thing
    shards = rank.task.ranks if thing.shard is None else 1
    rank.make(thing, [False] * shards if thing.kind == "weight" else None)
    rank.end(0)


def _free(rank: _Rank, instruction: Instruction) -> None:
    rank.need(instruction.thing, "nothing to free")
    del rank.memory[instruction.thing]
    rank.end(0)


LOCAL: dict[str, Callable[[_Rank, Instruction], None]] = {
    "forward": _forward,
    "backward": _backward,
    "update": _update,
    "store": _store,
    "free": _free,
}


# ---- What several ranks do together.


def _all_reduce(ranks: Sequence[_Rank], thing: Thing) -> None:
    lists = [rank.need(thing, "run the backward pass first") for rank in ranks]
    total = [sum(counts) for counts in zip(*lists, strict=True)]
    for rank in ranks:
        rank.make(thing, total)


def _reduce_scatter(ranks: Sequence[_Rank], thing: Thing) -> None:
    lists = [rank.need(thing, "run the backward pass first") for rank in ranks]
    total = [sum(counts) for counts in zip(*lists, strict=True)]
    for rank in ranks:
        rank.make(shard(thing, rank.number), total)
        del rank.memory[thing]


def _require_own_updates(ranks: Sequence[_Rank], thing: Thing, own: Sequence[list[bool]]) -> None:
    """No rank gives its part as it was before an update that another rank has made of it."""
    for rank, (is_new,) in zip(ranks, own, strict=True):
        wholes = [other.memory[thing] for other in ranks if thing in other.memory]
        if not is_new and any(whole[rank.number] for whole in wholes):
            rank.fail(
                f"rank {rank.number} gives its part as it was before the update, which another "
                f"rank has made: update shard {rank.number} here"
            )


def _all_gather(ranks: Sequence[_Rank], thing: Thing) -> None:
    own = []
    for rank in ranks:
        part = shard(thing, rank.number)
        if part in rank.memory:
            own.append(rank.memory[part])
        elif thing.kind == "weight" and thing in rank.memory:
            own.append(rank.memory[thing][rank.number : rank.number + 1])
        else:
            rank.fail(f"{part} is not there: this rank gives it, so it has to keep it")
    if thing.kind == "weight":
        _require_own_updates(ranks, thing, own)
    for rank in ranks:
        whole = [part[0] for part in own] if thing.kind == "weight" else own[rank.number]
        rank.make(thing, whole)


TOGETHER = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
}


class _Links:
    """Messages from rank to rank: each pair has a link, which carries one after the other."""

    def __init__(self) -> None:
        self.on_their_way: dict[tuple[int, int], deque] = defaultdict(deque)
        self.free_at: dict[tuple[int, int], float] = defaultdict(float)

    def send(self, rank: _Rank, instruction: Instruction) -> None:
        thing, to = instruction.thing, instruction.peer
        rank.need(thing, "nothing to send")
        pair = (rank.number, int(to if to is not None else -1))
        sent = rank.task.count_sent(instruction)
        arrival = max(self.free_at[pair], rank.clock) + sent / rank.task.bytes_per_time
        self.free_at[pair] = arrival
        self.on_their_way[pair].append((thing, arrival))
        rank.sent_bytes += sent
        del rank.memory[thing]
        rank.end(0)

    def receive(self, rank: _Rank, instruction: Instruction) -> bool:
        """Whether something has been sent; the rank waits until it is there."""
        thing, source = instruction.thing, instruction.peer
        waiting = self.on_their_way[(int(source if source is not None else -1), rank.number)]
        if not waiting:
            return False
        sent, arrival = waiting.popleft()
        if sent != thing:
            rank.fail(f"what arrives next from rank {source} is {sent}")
        rank.make(thing, None)
        rank.end(0, start=max(rank.clock, arrival))
        return True

    def require_empty(self) -> None:
        for (source, to), waiting in self.on_their_way.items():
            if waiting:
                raise ScheduleError(f"Rank {to} never receives {waiting[0][0]} from rank {source}.")


def _advance(rank: _Rank, links: _Links) -> bool:
    """Play one rank's next instruction, if it needs no other rank now."""
    instruction = rank.next
    if instruction is None or instruction.name in COLLECTIVES:
        return False
    if instruction.name == "recv":
        return links.receive(rank, instruction)
    if instruction.name == "send":
        links.send(rank, instruction)
    else:
        LOCAL[instruction.name](rank, instruction)
    return True


def _communicate(ranks: Sequence[_Rank]) -> bool:
    """Play a collective, if all ranks have come to the same one."""
    (instruction, *others) = [rank.next for rank in ranks]
    if instruction is None or any(other != instruction for other in others):
        return False
    if instruction.name not in COLLECTIVES:  # all ranks wait for a message
        return False
    TOGETHER[instruction.name](ranks, instruction.thing)
    sent = ranks[0].task.count_sent(instruction)
    start = max(rank.clock for rank in ranks)
    for rank in ranks:
        rank.sent_bytes += sent
        duration = sent / rank.task.bytes_per_time
        rank.end(duration, "communication", SHORT[instruction.name], start)
    return True


def _require_the_end(ranks: Sequence[_Rank]) -> None:
    """All ranks have ended, or they wait for each other for ever."""
    stuck = [rank for rank in ranks if rank.next is not None]
    if not stuck:
        return
    for rank in stuck:
        name, thing, peer = rank.next or ("", None, None)
        if name == "recv" and peer is not None and thing in ranks[peer].memory:
            rank.fail(f"rank {peer} has it, and never sends it, so no rank can go on")
    others = [rank for rank in ranks if rank.next != stuck[0].next] or stuck[1:]
    doing = [
        f"rank {rank.number} {'has ended' if rank.next is None else f'waits in {rank.next}'}"
        for rank in (stuck[0], *others[:1])
    ]
    raise ScheduleError(f"{' and '.join(doing).capitalize()}: no rank can go on.")


def _require_updated(ranks: Sequence[_Rank], task: Task) -> None:
    """Every layer is updated, and no rank keeps an old weight."""
    for layer in range(task.layers):
        updated: set[int] = set()
        for rank in ranks:
            for thing, is_new in rank.memory.items():
                if thing[:2] == ("weight", layer):
                    first = thing.shard or 0
                    updated |= {first + place for place, new in enumerate(is_new) if new}
        if missing := sorted(set(range(task.ranks)) - updated):
            part = "" if len(missing) == task.ranks else f"shard {missing[0]} of "
            raise ScheduleError(f"At the end {part}layer {layer} is updated on no rank.")
    for rank in ranks:
        for thing, is_new in rank.memory.items():
            if thing.kind == "weight" and not all(is_new):
                raise ScheduleError(
                    f"At the end rank {rank.number} has {thing} as it was before the update, "
                    "all of it or a part: update it there, gather it again, or free it."
                )


def simulate(schedule: Schedule, task: Task) -> Simulation:
    """Play the schedules of all ranks of a task.

    A collective begins when the last rank has come to it. Sending a message takes time too, but
    the sender goes on at once. Nothing else overlaps.
    """
    found = Simulation(task)
    try:
        sizes = task.ranks, task.layers, task.batches
        programs = [list_instructions(schedule, rank, *sizes) for rank in range(task.ranks)]
    except ScheduleError as error:
        found.problem = str(error)
        return found
    found.programs = programs
    ranks = [_Rank(number, program, task) for number, program in enumerate(programs)]
    try:
        _play(ranks)
        _require_updated(ranks, task)
    except ScheduleError as error:
        found.problem = str(error)
    found.bars = [bar for rank in ranks for bar in rank.bars]
    for name in ("sent_bytes", "peak_bytes", "peak_at", "peak_of", "held_bytes", "curves"):
        setattr(found, name, [getattr(rank, name) for rank in ranks])
    return found


def _play(ranks: Sequence[_Rank]) -> None:
    links = _Links()
    while True:
        advanced = [_advance(rank, links) for rank in ranks]
        if not any(advanced) and not _communicate(ranks):
            break
    _require_the_end(ranks)
    links.require_empty()
