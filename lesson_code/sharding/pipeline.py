"""Schedules of a pipeline: simulated, drawn, and run on real ranks, by hand and by PyTorch.

A pipeline of ``p`` stages computes ``m`` micro-batches. Each stage runs a forward pass "F" and a
backward pass "B" of each. Two orders are here: AFAB, all forward passes and then all backward ones
(Y. Huang et al., GPipe, 2019, https://arxiv.org/abs/1811.06965), and 1F1B, one of each in turn
(D. Narayanan et al., PipeDream, 2019, https://doi.org/10.1145/3341301.3359646).
"""

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from course_utils import plots
from course_utils.gantt import Bar, draw_bars, make_legend
from lesson_code.sharding.stage import run_stage

__all__ = [
    "Work",
    "count_stored",
    "draw_pipelines",
    "find_bubble",
    "list_1f1b",
    "list_afab",
    "make_orders",
    "measure",
    "predict_bubble",
    "simulate_pipeline",
]

COLOURS = {"F": plots.COLOURS[0], "B": plots.COLOURS[1]}
NAMES = {"F": "forward", "B": "backward"}
Order = list[tuple[str, int]]  # of one stage: what it computes, and of which micro-batch


class Work(NamedTuple):
    """One computation of a stage, from ``start`` to ``end``."""

    stage: int
    kind: str  # "F" or "B"
    batch: int
    start: float
    end: float


# ---- Orders and their simulation.


def list_afab(stage: int, stages: int, batches: int) -> Order:
    """All forward passes, then all backward passes.

    >>> list_afab(stage=0, stages=2, batches=2)
    [('F', 0), ('F', 1), ('B', 0), ('B', 1)]
    """
    return [(kind, batch) for kind in "FB" for batch in range(batches)]


def list_1f1b(stage: int, stages: int, batches: int) -> Order:
    """A few forward passes ahead, then one of each in turn, so that few activations are stored.

    Stage ``s`` is ``stages - s - 1`` forward passes ahead, and the last one is not ahead at all.

    >>> list_1f1b(stage=1, stages=2, batches=2)
    [('F', 0), ('B', 0), ('F', 1), ('B', 1)]
    """
    ahead = min(stages - stage - 1, batches)
    order = [("F", batch) for batch in range(ahead)]
    for batch in range(batches):
        if batch + ahead < batches:
            order.append(("F", batch + ahead))
        order.append(("B", batch))
    return order


ORDERS = {"AFAB": list_afab, "1F1B": list_1f1b}


def make_orders(name: str, stages: int, batches: int) -> list[Order]:
    """The order of each stage: ``name`` is "AFAB" or "1F1B"."""
    return [ORDERS[name](stage, stages, batches) for stage in range(stages)]


def simulate_pipeline(
    orders: Sequence[Order], forward: Sequence[float], backward: Sequence[float]
) -> list[Work]:
    """When each computation runs, if sending takes no time.

    A stage begins with the next one of its order as soon as it is free and its input is there:
    the output of the stage before it, or the gradient of the stage behind it.

    Args:
        orders: of each stage.
        forward: time of a forward pass on each stage.
        backward: time of a backward pass on each stage.

    Raises:
        ValueError: the stages wait for each other for ever.
    """
    ends: dict[tuple[int, str, int], float] = {}
    works: list[Work] = []
    clocks = [0.0] * len(orders)
    left = [list(order) for order in orders]
    while any(left):
        ready = [
            stage
            for stage, order in enumerate(left)
            if order and _find_input(stage, *order[0], len(orders)) in {None, *ends}
        ]
        if not ready:
            raise ValueError("the stages wait for each other for ever")
        for stage in ready:
            kind, batch = left[stage].pop(0)
            needed = _find_input(stage, kind, batch, len(orders))
            start = max(clocks[stage], ends[needed] if needed else 0.0)
            clocks[stage] = start + (forward if kind == "F" else backward)[stage]
            ends[stage, kind, batch] = clocks[stage]
            works.append(Work(stage, kind, batch, start, clocks[stage]))
    return works


def _find_input(stage: int, kind: str, batch: int, stages: int) -> tuple[int, str, int] | None:
    """The computation whose result this one needs; None: the data are there."""
    if kind == "F":
        return (stage - 1, "F", batch) if stage else None
    return (stage + 1, "B", batch) if stage < stages - 1 else (stage, "F", batch)


def find_bubble(works: Sequence[Work]) -> float:
    """The share of the time of all stages in which they compute nothing."""
    stages = 1 + max(work.stage for work in works)
    busy = sum(work.end - work.start for work in works)
    length = max(work.end for work in works) - min(work.start for work in works)
    return 1 - busy / (stages * length)


def predict_bubble(stages: int, batches: int) -> float:
    """(p − 1) / (m + p − 1), the bubble of AFAB and 1F1B with equal stages.

    >>> predict_bubble(stages=4, batches=8)
    0.2727272727272727
    """
    return (stages - 1) / (batches + stages - 1)


def count_stored(works: Sequence[Work]) -> list[int]:
    """By stage, of how many micro-batches at most it stores activations at once."""
    most = []
    for stage in range(1 + max(work.stage for work in works)):
        own = sorted((work for work in works if work.stage == stage), key=lambda work: work.start)
        changes = itertools.accumulate(1 if work.kind == "F" else -1 for work in own)
        most.append(max(changes))
    return most


def draw_pipelines(pipelines: Mapping[str, Sequence[Work]], title: str) -> Figure:
    """A panel for each pipeline, whose title has its bubble and its stored activations.

    Args:
        pipelines: by name; their times count forward passes of a micro-batch.
        title: of the figure.
    """
    figure, axes = plt.subplots(
        len(pipelines), 1, figsize=(8.6, 1.6 * len(pipelines)), sharex=True, squeeze=False
    )
    for axis, (name, works) in zip(axes.flat, pipelines.items(), strict=True):
        first = min(work.start for work in works)
        bars = [
            Bar(f"stage {stage}", kind, start - first, end - first, str(batch))
            for stage, kind, batch, start, end in works
        ]
        draw_bars(axis, bars, COLOURS)
        stored = max(count_stored(works))
        bubble = find_bubble(works)
        axis.set_title(f"{name}: bubble {bubble:.0%}, stored micro-batches: at most {stored}")
    handles = make_legend(bars, COLOURS, NAMES)
    axes[0, 0].legend(handles=handles, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    axes[-1, 0].set(xlabel="time (forward passes of a micro-batch); numbers: micro-batches")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


# ---- Real ranks, one stage on each. Their work is a sleep, so that they need no core.

WIDTH, ROWS = 8, 4
FORWARD_S, BACKWARD_S = 0.02, 0.04
BATCHES = 8
LIBRARY = {"AFAB": ScheduleGPipe, "1F1B": Schedule1F1B}


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, log: list, stage: int, seconds: tuple[float, float]):
        start = time.perf_counter()
        time.sleep(seconds[0])
        log.append((stage, "F", start, time.perf_counter()))
        ctx.about = log, stage, seconds
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple:
        log, stage, seconds = ctx.about
        start = time.perf_counter()
        time.sleep(seconds[1])
        log.append((stage, "B", start, time.perf_counter()))
        return gradient, None, None, None


class SlowStage(nn.Module):
    """``(rows, D)`` to ``(rows, D)``: a small layer that sleeps as long as a large one computes.

    Args:
        number: the stage, from which its weights are drawn.
        seconds: of the sleep in the forward and in the backward pass.
    """

    def __init__(self, number: int, seconds: tuple[float, float] = (0.0, 0.0)):
        super().__init__()
        torch.manual_seed(number)
        self.number, self.seconds = number, seconds
        self.layer = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
        self.log: list[tuple[int, str, float, float]] = []  # stage, kind, start, end

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.layer(x))
        if y.is_meta:  # PyTorch asks for the shape of the output first
            return y
        return _Sleep.apply(y, self.log, self.number, self.seconds)

    def read_log(self) -> list[Work]:
        """What was computed, in order, with the number of each micro-batch."""
        counts = {"F": itertools.count(), "B": itertools.count()}
        return [
            Work(stage, kind, next(counts[kind]), start, end)
            for stage, kind, start, end in self.log
        ]


def compute_loss(y: Tensor, target: Tensor) -> Tensor:
    """Summed, so that the gradients of micro-batches add up to that of the batch."""
    return (y - target).square().sum()


def make_batches(batches: int) -> tuple[list[Tensor], list[Tensor]]:
    """Inputs and targets of each micro-batch, each ``(rows, D)`` in double precision."""
    generator = torch.Generator().manual_seed(7)
    x, y = torch.randn(2, batches, ROWS, WIDTH, generator=generator, dtype=torch.float64)
    return list(x), list(y)


def _join(parts: list[Tensor]) -> list[Tensor]:
    """All micro-batches as one batch."""
    return [torch.cat(parts)]


def find_gradients_alone(stages: int, batches: int) -> list[Tensor]:
    """Of each stage's weights, in one process with the whole batch."""
    x, y = (torch.cat(parts) for parts in make_batches(batches))
    network = nn.Sequential(*(SlowStage(number) for number in range(stages)))
    compute_loss(network(x), y).backward()
    return [_read_gradient(stage) for stage in network]


def _read_gradient(stage: nn.Module) -> Tensor:
    gradients = [p.grad for p in stage.parameters() if p.grad is not None]
    return torch.cat([gradient.flatten() for gradient in gradients])


def _run_by_hand(name: str, rank: int, size: int, batches: int, seconds: tuple) -> SlowStage:
    stage = SlowStage(rank, seconds)
    run_stage(ORDERS[name](rank, size, batches), stage, *make_batches(batches), compute_loss)
    return stage


def _run_simple(rank: int, size: int, batches: int, seconds: tuple) -> SlowStage:
    """The layers on several devices and nothing else: one batch, as long as all micro-batches."""
    stage = SlowStage(rank, (batches * seconds[0], batches * seconds[1]))
    x, y = map(_join, make_batches(batches))
    run_stage(list_afab(rank, size, 1), stage, x, y, compute_loss)
    return stage


def _run_library(name: str, rank: int, size: int, batches: int, seconds: tuple) -> SlowStage:
    """PyTorch's schedule; a first step without a sleep learns the shapes that are sent."""
    stage = SlowStage(rank)
    schedule = LIBRARY[name](
        PipelineStage(stage, rank, size, torch.device("cpu")),
        n_microbatches=batches,
        loss_fn=compute_loss,
        scale_grads=False,
    )
    x, y = (torch.cat(parts) for parts in make_batches(batches))
    for pause in ((0.0, 0.0), seconds):
        stage.zero_grad()
        stage.log.clear()
        stage.seconds = pause
        dist.barrier()
        inputs = (x,) if rank == 0 else ()
        schedule.step(*inputs, target=y if rank == size - 1 else None)
    return stage


def _gather(stage: SlowStage, expected: Tensor, size: int) -> dict[str, Any]:
    """What all ranks have computed, by time, and the largest difference of a gradient."""
    gap = (_read_gradient(stage) - expected).abs().max().item()
    every: list[Any] = [None] * size
    dist.all_gather_object(every, ([tuple(work) for work in stage.read_log()], gap))
    works = sorted((work for works, _ in every for work in works), key=lambda work: work[3])
    return {"works": works, "gap": max(gap for _, gap in every)}


def measure(
    rank: int,
    size: int,
    batches: int = BATCHES,
    seconds: tuple[float, float] = (FORWARD_S, BACKWARD_S),
    **others: Any,
) -> dict[str, Any]:
    """Run one batch, and both orders of micro-batches by hand and by PyTorch, in these ranks.

    Args:
        batches: micro-batches.
        seconds: of a forward and of a backward pass of a stage and micro-batch.
        others: arguments of other modules of the same start.

    Returns:
        By the words "whole batch", "AFAB, by hand", "1F1B, PyTorch's" and so on: ``works``, what
        each stage computed and when, as tuples of `Work`, and ``gap``, the largest difference of a
        gradient from one process.
    """
    expected = find_gradients_alone(size, batches)[rank]
    dist.barrier()
    found = {"whole batch": _gather(_run_simple(rank, size, batches, seconds), expected, size)}
    for way, run in {"by hand": _run_by_hand, "PyTorch's": _run_library}.items():
        for name in ORDERS:
            dist.barrier()
            stage = run(name, rank, size, batches, seconds)
            found[f"{name}, {way}"] = _gather(stage, expected, size)
    return {"pipelines": found}
