"""What the notebook of lesson 19 defines, its helpers, and its text against the stored study."""

import copy
import itertools
import re
import time
from unittest import mock

import nbformat
import numpy as np
import pytest
import torch
from torch import nn

from course_tools.study.lesson_code import read_definitions
from course_utils.results import STUDIES, read_file
from lesson_code.profiling.compiling import Price
from lesson_code.profiling.counting import CountOperations, count_operations
from lesson_code.profiling.ladder import (
    DATASETS,
    FAST,
    FIXES,
    VALIDATE_EVERY,
    SpeedUps,
    list_fixes,
)
from lesson_code.profiling.lit_timed import LitTimed, MeasuredThroughput
from lesson_code.profiling.noisy_machine import FIRST_CALLS, NoisyMachine
from lesson_code.profiling.overhead import DEFAULTS, Overhead
from lesson_code.profiling.queueing import (
    DATA_US,
    KERNEL_US,
    KERNELS,
    QUEUE_US,
    simulate_queue,
)
from lesson_code.profiling.slow_script import CLASSES, PARTS, Training, make_batch, run_step
from tests.places import ROOT

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def cells():
    notebook = nbformat.read(ROOT / "notebooks" / "19_profiling.ipynb", as_version=4)
    return {cell.id: cell.source for cell in notebook.cells}


# ---- Counting.


def ask(x):
    return 1 if x.sum() > 0 else 0


@pytest.mark.parametrize(
    ("call", "number"),
    [
        (lambda x: x.sum().item(), 1),
        (lambda x: float(x.sum()), 1),
        (lambda x: bool(x.sum()), 1),
        (ask, 1),
        (lambda x: f"{x.sum():.3f}", 1),
        (lambda x: x[x > 0], 1),  # its shape depends on values
        (lambda x: x.nonzero(), 1),
        (lambda x: torch.equal(x, x + 1), 1),
        (lambda x: x.sum() + x.mean(), 0),
        (lambda x: torch.minimum(x, x.mean()), 0),
        (lambda x: x.to("cpu").detach().view(-1), 0),
    ],
)
def test_what_needs_a_value_is_a_synchronisation(call, number):
    x = torch.arange(4.0)
    assert count_operations(lambda: call(x)).synchronisations == number


def test_copies_are_counted_in_bytes():
    x = torch.zeros(10)
    counted = count_operations(lambda: (x.clone(), x.double(), x.view(2, 5), x.float()))
    assert counted.copied_bytes == 40 + 80
    assert counted.calls["clone"] == 1


def test_the_context_ends_with_an_error():
    x = torch.zeros(3)
    with pytest.raises(RuntimeError), CountOperations() as counted:
        x @ torch.zeros(4)
    x.sum()
    assert counted.calls["sum"] == 0


# ---- The simulated GPU, and the simulated noisy computer.


@pytest.mark.parametrize("wait", [True, False])
def test_a_queue_runs_one_kernel_at_a_time_and_none_before_it_is_queued(wait):
    spans = simulate_queue(3, wait)
    kernels = [span for span in spans if span.what == "device"]
    queued = [span for span in spans if span.what == "queue"]
    assert len(kernels) == len(queued) == 3 * KERNELS
    for kernel, call in zip(kernels, queued, strict=True):
        assert kernel.start >= call.start + call.length
    for one, other in itertools.pairwise(kernels):
        assert other.start >= one.start + one.length
    python = [span for span in spans if span.what != "device"]
    for one, other in itertools.pairwise(python):
        assert other.start == pytest.approx(one.start + one.length)


def test_waiting_costs_the_head_start():
    ends = [max(x.start + x.length for x in simulate_queue(3, wait)) for wait in (True, False)]
    assert ends[0] == 3 * (DATA_US + QUEUE_US + KERNELS * KERNEL_US)
    assert ends[1] < ends[0]


def test_a_noisy_machine_moves_its_clock_while_a_step_runs():
    machine = NoisyMachine(0.5, seed=1)
    times = []
    for step in [machine.old, machine.new] * 200:
        before = machine.read_clock()
        step()
        times.append(machine.read_clock() - before)
    old, new = np.array(times[::2]), np.array(times[1::2])
    assert np.median(new[100:] / old[100:]) == pytest.approx(0.5, rel=0.01)
    assert old[0] > 0.9 * FIRST_CALLS[0] * old[10:30].min()
    assert np.median(old[150:]) > 1.2 * np.median(old[3:10]), "it becomes slower"
    assert machine.calls[:3] == ["old", "new", "old"]
    again = NoisyMachine(0.5, seed=1)
    again.old()
    assert again.read_clock() - 1000.0 == pytest.approx(old[0]), "the same each time"


# ---- The slow script.


def test_the_slow_script_computes_what_its_parts_say():
    training, batch = Training(), make_batch(32)
    before = copy.deepcopy(training.averaged)
    run_step(training, batch)
    assert training.confusions.sum() == 32
    assert torch.equal(training.confusions.sum(dim=1), torch.bincount(batch.targets, minlength=10))
    for old, new, current in zip(
        before.parameters(),
        training.averaged.parameters(),
        training.model.parameters(),
        strict=True,
    ):
        torch.testing.assert_close(new, 0.99 * old + 0.01 * current)
    expected = (batch.images * batch.factors[:, None, None, None]).clamp(max=1)
    assert torch.equal(PARTS["brighten"](batch.images, batch.factors), expected)


def test_three_parts_take_most_of_its_operations():
    counts = {}

    def counted(name):
        def run(*arguments):
            with CountOperations() as counts[name]:
                return PARTS[name](*arguments)

        return run

    run_step(Training(), make_batch(), {name: counted(name) for name in PARTS})
    slow = {"brighten", "count_confusions"}
    most = sorted(counts, key=lambda name: counts[name].total, reverse=True)
    assert set(most[:2]) == slow
    assert counts["count_confusions"].synchronisations == CLASSES**2
    assert counts["average"].copied_bytes == max(x.copied_bytes for x in counts.values())


# ---- What the notebook defines.


@pytest.fixture(scope="module")
def lesson():
    return read_definitions("19_profiling")


def test_a_step_is_warmed_up_and_timed(lesson):
    calls = []
    with mock.patch.object(time, "perf_counter", side_effect=map(float, range(8))):
        seconds = lesson["clock_step"](lambda: calls.append(1), repeats=4, warm_up=2)
    assert seconds.tolist() == [1.0] * 4
    assert len(calls) == 6


def test_self_times_leave_out_what_runs_inside(lesson):
    phases = lesson["PhaseTimer"]()
    moments = [0.0, 1.0, 4.0, 5.0, 6.0, 10.0]
    with mock.patch.object(time, "perf_counter", side_effect=moments), phases("outer"):
        with phases("inner"):
            pass
        with phases("inner"):
            pass
    assert phases.spans == [
        ("inner", 1.0, 4.0, 3.0),
        ("inner", 5.0, 6.0, 1.0),
        ("outer", 0.0, 10.0, 6.0),
    ]


def test_turns_have_every_step_in_every_round(lesson):
    calls = []
    runs = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    found = lesson["time_in_turns"](runs, 4)
    assert {name: len(times) for name, times in found.items()} == dict.fromkeys("abc", 4)
    rounds = [calls[start : start + 3] for start in range(0, 15, 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1, "the order changes"


def test_both_algorithms_of_the_benchmark_convolve(lesson):
    x, weight = torch.randn(2, 3, 7, 5), torch.randn(4, 3, 3, 3)
    found = lesson["convolve_by_product"](x, weight)
    torch.testing.assert_close(found, lesson["convolve_directly"](x, weight), atol=1e-4, rtol=1e-4)


# ---- Lightning.


def test_the_flops_of_a_batch_are_those_of_both_passes():
    model, images = nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), torch.randn(7, 3, 2, 2)
    lit = LitTimed(model, images)
    one = 2 * 7 * 12 * 5
    assert lit.flops_per_batch == 2 * one  # the images want no gradient
    assert all(p.grad is None for p in model.parameters())


def test_a_measured_peak_reaches_the_monitor():
    monitor = MeasuredThroughput(len, 123.0)
    trainer = mock.Mock(world_size=1, enable_validation=False)
    trainer.strategy.root_device = CPU
    with mock.patch("lightning.pytorch.callbacks.throughput_monitor._plugin_to_compute_dtype"):
        monitor.setup(trainer, mock.Mock(), "fit")
    (throughput,) = monitor._throughputs.values()
    assert throughput.available_flops == 123.0


# ---- The text against the study: its numbers are written here, and must stand in the text.


@pytest.fixture(scope="module")
def study():
    return read_file(STUDIES / "profiling/study.json")


def percent(speed_up):
    """Of the time of a step that is saved."""
    return 100 * (1 - 1 / speed_up)


def join_names(names, word="and"):
    *before, last = [f"*{name}*" for name in names]
    return f"{', '.join(before)} {word} {last}" if before else last


def say_first(study):
    fixes = SpeedUps(study)
    total = {kind: percent(fixes.total(kind)[0]) for kind in DATASETS}
    yield (
        f"All fixes together save {total['photographs']:.0f} % of the time of a step for "
        f"photographs and {total['texts']:.0f} % for texts."
    )
    for kind in DATASETS:
        helping = [x for x in list_fixes(kind) if fixes.verdict(kind, "slow", x) == "helps"]
        saved = {fix: percent(fixes.speed_up(kind, "slow", fix)[0]) for fix in helping}
        best, second = sorted(saved, key=saved.get, reverse=True)[:2]
        yield (
            f"In the slow loop for {kind}, *{best}* saves most, {saved[best]:.0f} % alone, before "
            f"*{second}* with {saved[second]:.0f} %."
        )
    places = [(kind, loop) for kind in DATASETS for loop in ("slow", "fast")]
    verdicts = {
        fix: [fixes.verdict(*place, fix) for place in places if fix in list_fixes(place[0])]
        for fix in FIXES
    }
    open_ones = [fix for fix, found in verdicts.items() if not {"helps", "hurts"} & set(found)]
    edges = [
        percent(edge)
        for kind, loop in places
        for fix in open_ones
        if fix in list_fixes(kind)
        for edge in fixes.speed_up(kind, loop, fix)[1:]
    ]
    yield (
        f"No loop shows a gain or a loss of {join_names(open_ones, 'or')}, whose intervals end at "
        f"{max(map(abs, edges)):.0f} % at most."
    )
    hurting = [fix for fix, found in verdicts.items() if "hurts" in found]
    if hurting:
        yield f"In some loops {join_names(hurting)} " + (
            "cost time." if len(hurting) > 1 else "costs time."
        )
    slow, rare = (np.median(fixes.read_ms("texts", x)) for x in ((), ["rare validation"]))
    steps = VALIDATE_EVERY * (slow - rare) / rare
    yield f"One validation of the texts takes as long as {steps:.0f} training steps, because all "
    assert fixes.total("texts")[0] < fixes.speed_up("texts", "slow", "rare validation")[0]
    assert fixes.verdict("texts", "fast", "bf16") == "hurts"
    yield "For texts all fixes together save less than one alone, because *bf16*"


def say_compiled(study):
    prices = [Price.read(row) for row in study["compiling"]["rows"]]
    (known,) = (x for x in prices if x.speed_up[1] > 1 or x.speed_up[2] < 1)
    assert known.speed_up[2] < 1, "the sentence is about a price that is never recovered"
    yield (
        f"For {known.kind} in {known.format} compiling costs {-percent(known.speed_up[0]):.0f} % "
        f"of a step, and its {known.compile_s:.0f} s are never recovered. The other three "
        "intervals hold zero."
    )
    worst = {
        form: max(
            row["differences"]["gradients"]
            for row in study["compiling"]["rows"]
            if row["format"] == form
        )
        for form in ("fp32", "bf16")
    }
    yield (
        f"no gradient differs by more than about {worst['fp32']:.0e} of the largest, and in bf16 "
        f"by up to {worst['bf16']:.0e}"
    )


def say_overhead(study):
    overhead = Overhead(study)
    added, bare = overhead.over(DEFAULTS)[0], overhead.over("barebones=True")[0]
    yield f"The Trainer's defaults add {added:.0f} µs to a step, `barebones=True` {bare:.0f} µs."
    single = [name for name in overhead.loops if "=False" in name or name.endswith("n_steps=0")]
    saved = {name: overhead.over(DEFAULTS, name)[0] for name in single}
    best = max(saved, key=saved.get)
    yield f"Of the single flags `{best}` saves most, {saved[best]:.0f} µs."
    logged = added - overhead.over("defaults, no self.log")[0]
    assert logged > saved[best]
    yield f"One `self.log` costs {logged:.0f} µs, more than any flag."


def say_verdict(study):
    fixes, overhead = SpeedUps(study), Overhead(study)
    fast = np.median(fixes.read_ms("photographs", FAST))
    added = overhead.over(DEFAULTS)[0]
    yield (
        f"Lightning's Trainer adds {added:.0f} µs to a step of a network of one weight (see *Going "
        f"deeper*). This is {added / fast / 10:.1f} % of a step of the fast loop for photographs."
    )
    silent = overhead.over("defaults, no self.log")[0]
    assert 0.4 < 1 - silent / added < 0.6
    interactive = overhead.over("defaults, interactive")[0]
    yield (
        "About half of it is one `self.log`, and where a bar is drawn in each step it is "
        f"{interactive:.0f} µs."
    )


def say_bias(study):
    fixes = SpeedUps(study)
    saved = [
        percent(fixes.speed_up("photographs", loop, "no bias")[0]) for loop in ("slow", "fast")
    ]
    yield (
        f"In the study *no bias* saves {saved[0]:.1f} % of the slow loop and {saved[1]:.1f} % of "
        "the fast one."
    )


def say_pages(study):
    rows = {(row["batch_size"], row["way"]): row for row in study["page_faults"]["rows"]}
    for size in (64, 1024):
        usual, kept = rows[size, "as usual"], rows[size, "memory is kept"]
        faults = np.median(usual["faults"])
        saved = 100 * (1 - np.exp(np.log(np.divide(kept["ms"], usual["ms"])).mean()))
        megabytes = faults * 4096 / 1e6
        yield (
            f"With {size:,} images per batch a step has {faults:,.0f} page faults, for "
            f"{megabytes:,.0f} MB, and without them it takes {saved:.0f} % less time."
        )


SAID = {
    "first-read-md": say_first,
    "compile-read": say_compiled,
    "overhead-read": say_overhead,
    "verdict-md": say_verdict,
    "bias-read": say_bias,
    "pages-read": say_pages,
}


@pytest.mark.parametrize("name", SAID)
def test_the_numbers_of_the_text_are_those_of_the_study(name, study, cells):
    missing = [sentence for sentence in SAID[name](study) if sentence not in cells[name]]
    assert not missing


def test_no_text_is_left_to_be_written(cells):
    assert not [
        name for name, source in cells.items() if re.search("has the numbers of the study", source)
    ]
