"""Run the instructions of a schedule in real processes, with tensors and counted messages.

This is a second interpreter of the language, beside `simulator`: here a layer is
``tanh(x @ W)``, the loss is half the sum of the squared errors over all batches, and the optimizer
is Adam in the middle of a training, without a correction of its bias. Every byte that a rank sends
goes through `Messages.send`, which counts it, so the collectives are rings of messages.
"""

import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lesson_code.sharding.schedules import Instruction, Thing, gradient, shard, state, weight
from lesson_code.sharding.simulator import Simulation, Task

__all__ = ["Messages", "measure", "train_alone", "write_programs"]

PROGRAMS = Path("programs.json")
LR, BETA1, BETA2, EPS = 0.05, 0.9, 0.99, 1e-8
RING, DIRECT = 1, 2  # tags, so that no message is taken for one of another kind


# ---- The numbers that all ranks agree on, each from a seed of its own.


def make_weight(layer: int, task: Task) -> Tensor:
    """The first weights of a layer, ``(D, D)``."""
    generator = torch.Generator().manual_seed(layer)
    return torch.randn(task.width, task.width, generator=generator) / task.width**0.5


def make_state(layer: int, task: Task) -> Tensor:
    """Adam's averages of the gradient and of its square, ``(2, D * D)``."""
    generator = torch.Generator().manual_seed(1000 + layer)
    averages = torch.rand(2, task.width**2, generator=generator)
    return torch.stack([averages[0] - 0.5, averages[1] + 0.5])


def make_batch(batch: int, task: Task) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a batch, each ``(rows, D)``."""
    generator = torch.Generator().manual_seed(2000 + batch)
    x, y = torch.randn(2, task.rows, task.width, generator=generator)
    return x, y


def step_adam(weights: Tensor, grad: Tensor, averages: Tensor) -> None:
    """One step in place: all of them flat, ``averages`` ``(2, numbers)``."""
    averages[0].mul_(BETA1).add_(grad, alpha=1 - BETA1)
    averages[1].mul_(BETA2).addcmul_(grad, grad, value=1 - BETA2)
    weights -= LR * averages[0] / (averages[1].sqrt() + EPS)


def train_alone(task: Task) -> list[Tensor]:
    """The weights after the same step in one process that has everything, by autograd."""
    weights = [make_weight(layer, task).requires_grad_() for layer in range(task.layers)]
    loss = torch.zeros(())
    for batch in range(task.batches):
        x, y = make_batch(batch, task)
        for matrix in weights:
            x = torch.tanh(x @ matrix)
        loss = loss + (x - y).square().sum() / 2
    loss.backward()
    for layer, matrix in enumerate(weights):
        assert matrix.grad is not None
        averages = make_state(layer, task)
        step_adam(matrix.detach().view(-1), matrix.grad.flatten(), averages)
    return [matrix.detach() for matrix in weights]


# ---- Messages, and collectives that are rings of them.


class Messages:
    """What a rank sends and receives; ``sent_bytes`` counts every message that leaves it."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.sent_bytes = 0
        self.leaving: list[tuple[Any, Tensor]] = []  # a tensor must live until it has left

    def send(self, tensor: Tensor, to: int, tag: int) -> None:
        """Send without waiting."""
        self.sent_bytes += tensor.nbytes
        tensor = tensor.contiguous()
        self.leaving.append((dist.isend(tensor, to, tag=tag), tensor))

    def receive(self, tensor: Tensor, source: int, tag: int) -> Tensor:
        """Wait for a message, and put it into ``tensor``."""
        dist.recv(tensor, source, tag=tag)
        return tensor

    def finish(self) -> None:
        """Wait until all messages have left."""
        for work, _ in self.leaving:
            work.wait()
        self.leaving.clear()

    def pass_on(self, parts: list[Tensor], first: int, add: bool) -> None:
        """Once round the ring: each rank sends part ``rank - first``, then the one before it."""
        right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        for step in range(self.size - 1):
            mine = (self.rank - first - step) % self.size
            self.send(parts[mine], right, RING)
            arrived = torch.empty_like(parts[mine])
            self.receive(arrived, left, RING)
            self.finish()  # before the part that left is written to
            other = parts[(mine - 1) % self.size]
            other.add_(arrived) if add else other.copy_(arrived)

    def reduce_scatter(self, flat: Tensor) -> Tensor:
        """Part ``rank`` of the sum over all ranks of a flat tensor."""
        parts = list(flat.clone().chunk(self.size))
        self.pass_on(parts, first=1, add=True)
        return parts[self.rank]

    def all_gather(self, part: Tensor) -> Tensor:
        """The parts of all ranks, one after the other."""
        parts = [part.clone() for _ in range(self.size)]
        self.pass_on(parts, first=0, add=False)
        return torch.cat(parts)

    def all_reduce(self, flat: Tensor) -> Tensor:
        """The sum over all ranks, on every rank."""
        return self.all_gather(self.reduce_scatter(flat))


# ---- One rank.


class Rank:
    """The memory of a rank, and what each instruction does there with tensors."""

    def __init__(self, task: Task, messages: Messages) -> None:
        self.task, self.messages = task, messages
        self.memory: dict[Thing, Tensor] = {}
        self.held_bytes: list[int] = []

    def run(self, instruction: Instruction) -> None:
        getattr(self, f"_{instruction.name}")(instruction)
        self.held_bytes.append(sum(tensor.nbytes for tensor in self.memory.values()))

    def _cut(self, whole: Tensor, number: int | None) -> Tensor:
        """A shard of weights or of a gradient ``(D * D,)``, or of a state ``(2, D * D)``."""
        return whole if number is None else whole.chunk(self.task.ranks, dim=-1)[number]

    def _store(self, instruction: Instruction) -> None:
        thing = instruction.thing
        make = make_weight if thing.kind == "weight" else make_state
        whole = make(thing.layer, self.task)
        flat = whole.flatten() if thing.kind == "weight" else whole
        self.memory[thing] = self._cut(flat, thing.shard).clone()

    def _free(self, instruction: Instruction) -> None:
        del self.memory[instruction.thing]

    def _forward(self, instruction: Instruction) -> None:
        kind, layer, batch, _ = instruction.thing
        assert batch is not None
        x, y = make_batch(batch, self.task)
        if layer == 0:
            self.memory[instruction.thing] = x
        x = self.memory[instruction.thing]
        out = torch.tanh(x @ self._read_matrix(layer))
        is_last = layer == self.task.layers - 1
        behind = Thing("activation gradient" if is_last else kind, layer + 1, batch)
        self.memory[behind] = out - y if is_last else out

    def _backward(self, instruction: Instruction) -> None:
        _, layer, batch, _ = instruction.thing
        matrix = self._read_matrix(layer)
        x = self.memory.pop(instruction.thing)
        error = self.memory.pop(Thing("activation gradient", layer + 1, batch))
        inner = error * (1 - torch.tanh(x @ matrix).square())  # (rows, D)
        total = self.memory.get(gradient(layer), torch.zeros(self.task.width**2))
        self.memory[gradient(layer)] = total + (x.T @ inner).flatten()
        if layer > 0:
            self.memory[Thing("activation gradient", layer, batch)] = inner @ matrix.T

    def _read_matrix(self, layer: int) -> Tensor:
        return self.memory[weight(layer)].view(self.task.width, self.task.width)

    def _update(self, instruction: Instruction) -> None:
        layer = instruction.thing.layer
        own = [thing for thing in self.memory if thing[:2] == ("gradient", layer)]
        grad_thing = max(own, key=lambda thing: thing.shard is not None)
        grad = self.memory.pop(grad_thing)
        held = [thing for thing in self.memory if thing[:2] == ("state", layer)]
        number = held[0].shard if grad_thing.shard is None else grad_thing.shard
        if grad_thing.shard is None:
            grad = self._cut(grad, number)
        exact = shard(state(layer), number) if number is not None else state(layer)
        averages = self.memory[exact] if exact in held else self._cut(self.memory[held[0]], number)
        own_weight = shard(weight(layer), number) if number is not None else weight(layer)
        if own_weight in self.memory:
            step_adam(self.memory[own_weight], grad, averages)
        else:
            step_adam(self._cut(self.memory[weight(layer)], number), grad, averages)

    def _all_reduce(self, instruction: Instruction) -> None:
        flat = self.memory[instruction.thing]
        self.memory[instruction.thing] = self.messages.all_reduce(flat)

    def _reduce_scatter(self, instruction: Instruction) -> None:
        flat = self.memory.pop(instruction.thing)
        part = self.messages.reduce_scatter(flat)
        self.memory[shard(instruction.thing, self.messages.rank)] = part.clone()

    def _all_gather(self, instruction: Instruction) -> None:
        part = self.memory.get(shard(instruction.thing, self.messages.rank))
        if part is None:
            part = self._cut(self.memory[instruction.thing], self.messages.rank)
        self.memory[instruction.thing] = self.messages.all_gather(part)

    def _send(self, instruction: Instruction) -> None:
        assert instruction.peer is not None
        self.messages.send(self.memory.pop(instruction.thing), instruction.peer, DIRECT)

    def _recv(self, instruction: Instruction) -> None:
        assert instruction.peer is not None
        tensor = torch.empty(self.task.rows, self.task.width)
        self.memory[instruction.thing] = self.messages.receive(tensor, instruction.peer, DIRECT)

    def find_gap(self, expected: list[Tensor]) -> float:
        """The largest difference of a weight that this rank holds at the end."""
        gaps = [
            (tensor - self._cut(expected[thing.layer].flatten(), thing.shard)).abs().max()
            for thing, tensor in self.memory.items()
            if thing.kind == "weight"
        ]
        return float(max(gaps, default=torch.zeros(())))


def write_programs(simulations: dict[str, Simulation], folder: Path = Path()) -> None:
    """Write the instructions of schedules that `simulate` found right, for `measure`.

    Raises:
        ValueError: one of them is wrong, and its processes would wait for each other for ever.
    """
    for name, found in simulations.items():
        if found.problem:
            raise ValueError(f"{name}: {found.problem}")
    content = {
        name: {"task": vars(found.task), "programs": found.programs}
        for name, found in simulations.items()
    }
    (folder / PROGRAMS).write_text(json.dumps(content))


def _read(line: list) -> Instruction:
    name, thing, peer = line
    return Instruction(name, Thing(*thing), peer)


def measure(rank: int, size: int, **others: Any) -> dict[str, Any]:
    """Run all programs of the file in these ranks; rank 0 has what every rank found.

    Args:
        others: arguments of other modules of the same start.

    Returns:
        By name of the schedule, a list with an entry for each rank: ``gap``, the largest
        difference from the weights of one process, ``sent_bytes``, and ``held_bytes`` after each
        instruction.
    """
    found: dict[str, Any] = {}
    for name, content in json.loads(PROGRAMS.read_text()).items():
        task = Task(**content["task"])
        if task.ranks != size:
            raise ValueError(f"{name} is for {task.ranks} ranks, and {size} are here")
        messages = Messages()
        own = Rank(task, messages)
        for line in content["programs"][rank]:
            own.run(_read(line))
        messages.finish()
        dist.barrier()
        result = {
            "gap": own.find_gap(train_alone(task)),
            "sent_bytes": messages.sent_bytes,
            "held_bytes": own.held_bytes,
        }
        every: list[Any] = [None] * size
        dist.all_gather_object(every, result)
        found[name] = every
    return found
