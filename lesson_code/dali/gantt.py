"""Who prepares and who trains, and when: a measured Gantt chart."""

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info

from course_utils import plots
from course_utils.gantt import Bar, draw_bars, make_legend

__all__ = ["Span", "TracedDataset", "describe_stalls", "draw_gantt", "find_stall", "trace_training"]

MAIN = "training process"
COLOURS = {"prepare": plots.COLOURS[4], "step": plots.COLOURS[0], "wait": "#b0b0b0"}
NAMES = {"prepare": "prepare a batch", "step": "training step", "wait": "wait"}
SEEN = 0.005  # of the width of a figure: shorter bars cannot be seen


@dataclass(frozen=True)
class Span:
    """One bar: ``who`` did ``what`` for batch ``number``, from ``start`` to ``end`` in seconds."""

    who: str  # `MAIN`, or "worker 0" and so on
    what: str  # "prepare", "wait" or "step"
    number: int
    start: float
    end: float


class TracedDataset(Dataset):
    """The batches of a data set, each with the time at which it was prepared, and by whom.

    Clocks of processes on one machine agree: all of them read the machine's own clock.
    """

    def __init__(self, dataset: Any):
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, index: list[int]) -> tuple[Any, tuple[str, float, float]]:
        """The batch of these items, and ``(who, start, end)``."""
        start = time.perf_counter()
        batch = default_collate([self.dataset[i] for i in index])
        worker = get_worker_info()
        who = f"worker {worker.id}" if worker else MAIN
        return batch, (who, start, time.perf_counter())

    def loader(self, batch_size: int, **options) -> DataLoader:
        """Batches of ``batch_size`` items; ``options`` go to the `DataLoader`."""
        return DataLoader(self, batch_size, collate_fn=tuple, **options)


def trace_training(batches: Iterable, step: Callable[[Any], object]) -> list[Span]:
    """Call ``step(batch)`` for each batch of a `TracedDataset`, and note who did what when.

    The training process waits for a batch unless it prepares this batch itself. All times are
    counted from the moment at which the first step begins, so what comes before is negative.
    """
    spans: list[tuple[str, str, int, float, float]] = []
    waiting = time.perf_counter()
    for number, (batch, (who, start, end)) in enumerate(batches):
        began = time.perf_counter()
        spans.append((who, "prepare", number, start, end))
        if who != MAIN:
            spans.append((MAIN, "wait", number, waiting, began))
        step(batch)
        waiting = time.perf_counter()
        spans.append((MAIN, "step", number, began, waiting))
    first = next((start for _, what, _, start, _ in spans if what == "step"), 0.0)
    return [
        Span(who, what, number, start - first, end - first)
        for who, what, number, start, end in spans
    ]


def find_stall(spans: Sequence[Span]) -> float:
    """The share of the time from the end of the first step on in which no step runs."""
    steps = [span for span in spans if span.what == "step"]
    total = steps[-1].end - steps[0].end
    return 1 - sum(span.end - span.start for span in steps[1:]) / total


def describe_stalls(traces: Mapping[str, Sequence[Span]]) -> str:
    """Three sentences: stall and step of each training, and the bottleneck of the last one."""
    shares = [f"{find_stall(x):.0%} of the time with {name}" for name, x in traces.items()]
    steps = [f"{_median_ms(x, 'step'):.0f} ms with {name}" for name, x in traces.items()]
    name, spans = list(traces.items())[-1]
    prepare, step = (_median_ms(spans, what) for what in ("prepare", "step"))
    slower = "preparing" if prepare > step else "the training step"
    return (
        f"No step runs in {', in '.join(shares)}.\n"
        f"A step takes {', '.join(steps)} (medians).\n"
        f"With {name}, preparing a batch takes {prepare:.0f} ms, so {slower} is the bottleneck."
    )


def _median_ms(spans: Sequence[Span], what: str) -> float:
    return 1000 * statistics.median([x.end - x.start for x in spans if x.what == what])


def draw_gantt(traces: Mapping[str, Sequence[Span]]) -> Figure:
    """A panel for each training, whose title has its stall; one bar is one batch.

    The legend names the kinds of bars that are long enough to be seen.
    """
    figure, axes = plt.subplots(
        len(traces), 1, figsize=(8.6, 1.6 * len(traces)), sharex=True, layout="constrained"
    )
    for axis, (name, spans) in zip(axes, traces.items(), strict=True):
        origin = min(span.start for span in spans if span.who == MAIN)
        bars = [
            Bar(span.who, span.what, 1000 * (span.start - origin), 1000 * (span.end - origin))
            for span in spans
        ]
        draw_bars(axis, bars, COLOURS)
        axis.set(title=f"{name}: no step runs in {find_stall(spans):.0%} of the time")
    axes[-1].set(xlabel="time (ms)", xlim=(0, None))
    longest = SEEN * axes[-1].get_xlim()[1] / 1000
    every = [Bar(x.who, x.what, x.start, x.end) for spans in traces.values() for x in spans]
    handles = make_legend((x for x in every if x.end - x.start > longest), COLOURS, NAMES)
    figure.legend(handles=handles, fontsize=8, ncols=3, loc="outside lower center")
    return figure
