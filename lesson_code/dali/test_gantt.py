import itertools

import matplotlib.pyplot as plt
import pytest
import torch
from torch.utils.data import TensorDataset

from lesson_code.dali import gantt
from lesson_code.dali.gantt import (
    MAIN,
    Span,
    TracedDataset,
    describe_stalls,
    draw_gantt,
    find_stall,
    trace_training,
)


def trace(workers):
    seen = []
    loader = TracedDataset(TensorDataset(torch.arange(10.0))).loader(4, num_workers=workers)
    spans = trace_training(loader, lambda batch: seen.append(batch[0]))
    assert torch.equal(torch.cat(seen), torch.arange(10.0))
    return spans


def test_without_workers_the_training_process_prepares_and_steps_in_turn():
    spans = trace(workers=0)
    assert [(span.what, span.number) for span in spans] == [
        (what, number) for number in range(3) for what in ("prepare", "step")
    ]
    assert {span.who for span in spans} == {"training process"}
    for before, after in itertools.pairwise(spans):
        assert before.start <= before.end <= after.start
    assert spans[1].start == 0
    assert spans[0].start <= 0


def test_with_workers_the_training_process_waits_and_steps():
    spans = trace(workers=2)
    prepared = [span for span in spans if span.what == "prepare"]
    assert [span.who for span in prepared] == ["worker 0", "worker 1", "worker 0"]
    own = [span for span in spans if span.who == "training process"]
    assert [span.what for span in own] == 3 * ["wait", "step"]
    steps = [span for span in own if span.what == "step"]
    for batch, step in zip(prepared, steps, strict=True):  # the processes' clocks agree
        assert batch.start <= batch.end <= step.start
    assert TracedDataset(range(7)).__len__() == 7


def test_the_bars_are_the_clocks(monkeypatch):
    """A batch is prepared in 1 s, a step takes 1 s, on a clock that ticks when it is read."""
    clock = itertools.count()
    monkeypatch.setattr(gantt.time, "perf_counter", lambda: float(next(clock)))
    spans = trace_training(TracedDataset([0.0, 1.0]).loader(1), lambda batch: None)
    assert [(span.what, span.start, span.end) for span in spans] == [
        ("prepare", -2, -1),
        ("step", 0, 1),
        ("prepare", 2, 3),
        ("step", 4, 5),
    ]


def test_no_batches_make_no_bars():
    assert trace_training([], pytest.fail) == []


def make_spans(gap):
    """Steps of 2 s, and 1 s to prepare each batch; between two steps lies a gap."""
    spans = []
    for number in range(3):
        start = number * (2.0 + gap)
        spans.append(Span(MAIN, "prepare", number, start - 1, start))
        spans.append(Span(MAIN, "step", number, start, start + 2))
    return spans


def test_the_stall_is_the_share_of_the_gaps():
    traces = {"no worker": make_spans(2.0), "one worker": make_spans(0.0)}
    assert [find_stall(spans) for spans in traces.values()] == [0.5, 0.0]
    said = describe_stalls(traces)
    assert "50% of the time with no worker, in 0% of the time with one worker." in said
    assert "A step takes 2000 ms with no worker, 2000 ms with one worker (medians)." in said
    assert "With one worker, preparing a batch takes 1000 ms, so the training step" in said
    with plt.style.context("default"):  # another test may have taken the course's style
        figure = draw_gantt(traces)
    assert [axis.get_title() for axis in figure.axes] == [
        "no worker: no step runs in 50% of the time",
        "one worker: no step runs in 0% of the time",
    ]
    assert [len(axis.patches) for axis in figure.axes] == [6, 6]


@pytest.mark.parametrize(("waited", "more"), [(0.001, []), (1.0, ["wait"])])
def test_the_legend_names_what_can_be_seen(waited, more):
    spans = [*make_spans(2.0), Span(MAIN, "wait", 1, 2.0, 2.0 + waited)]
    with plt.style.context("default"):
        figure = draw_gantt({"no worker": spans, "one worker": spans})
    [legend] = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["prepare a batch", "training step", *more]
