# ---
# jupyter:
#   course:
#     budget_s: 90
#     headline:
#     - claim: 'photographs: all fixes together save time'
#     key: 8f534755280d2f0a
#     minutes: 100
#     outputs: 4824fc9b7795f4e3
#     peak_mb: 1710
#     question: Where do the seconds of a step go?
#     seam: trainer
#     technique: 'profiling: phases, traces, rooflines, compiling, overhead'
#     time_s: 51
#     timing: true
#   jupytext:
#     notebook_metadata_filter: course,kernelspec
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown] slideshow={"slide_type": "slide"}
# # 19 · Profiling and compiling: where the seconds of a step go
#
# Your training takes a week, and there are twenty tips to make it faster. Which of them apply to *your* loop? A [profiler](glossary.md#profiler) names the lines that take the time, so that you change these and leave the rest alone.
#
# After this lesson you can time a step, read a profile, a trace and a [roofline](glossary.md#roofline), and say when `torch.compile` is worth its compile time.
#
# Minutes: 100 · Prerequisites: [01 · The baseline](01_baseline.ipynb), [07 · Mixed precision](07_mixed_precision.ipynb) · Seam: *trainer*, which is measured and not changed · Budget: 90 s on two CPU cores in [`quick`](glossary.md#profile) · **[Recipe ↓](#Recipe)**

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Question
#
# A plain loop trains the course's network for photographs, or its [transformer](glossary.md#transformer) for texts, on batches of 64. It reads the loss with `.item()` in each step, copies the examples one by one, uses AdamW's plain form, validates every five steps, and more, as a table below says. **If we fix all of it, which share of the time do we get back? Which fix alone gives most? And what does Lightning's Trainer cost per step?**
#
# Predict three numbers for the photographs: the percentage of the time that all fixes save together, the percentage that the best one saves alone, and the microseconds that the Trainer adds to a step.

# %%
from course_utils.predictions import compare_prediction, record_prediction

prediction = record_prediction(
    "19_profiling",
    percent_saved_by_all=None,  # your number instead of None
    percent_saved_by_the_best=None,  # and here
    microseconds_of_the_trainer=None,  # and here
)

# %% [markdown] slideshow={"slide_type": "notes"}
# <details><summary>For the teacher</summary>
#
# Let the students vote on the best fix first, and write the votes on the board. Many name `.item()`, because it is the most famous tip, or the optimizer. Ask afterwards how they would find out without a list: this is what the profile is for.
#
# </details>

# %% [markdown] slideshow={"slide_type": "skip"}
# ## Set-up
#
# The loops and their fixes stand in `lesson_code/profiling/ladder.py`, and always train on the embedded photographs and definitions. With `DATASET` your own images are used where layers are counted.

# %% slideshow={"slide_type": "skip"} tags=["parameters"]
PROFILE = ""  # smoke, quick or full
DATASET = ""  # photos if empty; or shapes, cifar10, a folder of images
FIRST_SEED = None  # first of the paired seeds, an integer
BATCH = 64  # images in the batch whose step is profiled
ROUNDS = 6  # of live measurements in turns

# %% cellView="form" jupyter={"source_hidden": true} slideshow={"slide_type": "skip"} tags=["hide-input", "imports"]
import io
import logging
import math
import os
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import profile, record_function

from course_utils import plots
from course_utils.gantt import Bar, draw_bars, make_legend
from course_utils.measure.paired import paired_difference
from course_utils.measure.timing import synchronize
from course_utils.results import STUDIES, read_file
from course_utils.training import quiet_trainer
from lesson_code.profiling import checks, compiling, ladder, slow_script
from lesson_code.profiling.counting import count_operations
from lesson_code.profiling.overhead import DEFAULTS, Overhead, run_plain_loop, run_trainer
from lesson_code.profiling.queueing import simulate_queue
from lesson_code.profiling.roofline import measure_roofline, place_layers

# %% slideshow={"slide_type": "skip"}
from course_utils import claim, create_model, load_config, load_data

os.environ["KINETO_LOG_LEVEL"] = "6"  # the profiler says nothing about GPUs that are not there
torch._logging.set_logs(dynamo=logging.ERROR)  # nor the compiler about recompilations, on purpose
plots.use_style()
quiet_trainer()  # and with it Lightning's notices
config = load_config(PROFILE, dataset=DATASET, first_seed=FIRST_SEED)
rounds = 2 if config.profile == "smoke" else ROUNDS
data = load_data(config)
images, targets = next(iter(data.train_loader(config.first_seed, batch_size=BATCH)))
print(config.describe())
print(f"{len(images)} images of {data.num_classes} classes, {torch.get_num_threads()} threads")

# %% [markdown]
# ## First result
#
# A stored [study](glossary.md#study) ran the slow loop, alone and with each fix added to it, and the fast loop, which has all fixes, also with each of them taken away. All took turns, so that each bar is the 95 % [interval](glossary.md#confidence-interval) of the median ratio within rounds, in processor time of one thread. A fix *helps* or *hurts* if its bar lies on one side of zero, and is *equivalent* within the grey band of ±2 %. Compiling is added to the fast loop, because a machine may lack a compiler.

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
study = read_file(STUDIES / "profiling/study.json")
fixes, overhead = ladder.SpeedUps(study), Overhead(study)
LOOKS = {"slow": ("o", plots.COLOURS[0]), "fast": ("s", plots.COLOURS[1])}


def percent_saved(speed_up):
    # of the time of a step; (middle, low, high) of "times as fast"
    return [100 * (1 - 1 / value) for value in speed_up]


def rank_fixes(kind, loop):
    # the fixes of one loop, and the percentages that they save, most first
    saved = {fix: percent_saved(fixes.speed_up(kind, loop, fix)) for fix in ladder.list_fixes(kind)}
    return dict(sorted(saved.items(), key=lambda pair: -pair[1][0]))


print(fixes.describe_provenance())
pd.DataFrame(ladder.FIXES, index=["slow loop", "with the fix", "only for"]).T

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.2))
order = list(rank_fixes("photographs", "slow"))
best = {kind: next(iter(rank_fixes(kind, "slow"))) for kind in ladder.DATASETS}
for axis, kind in zip(axes, ladder.DATASETS, strict=True):
    axis.axvspan(-2, 2, color=plots.GREY, alpha=0.2, lw=0)
    axis.axvline(0, color="black", lw=1)
    for loop, (marker, colour) in LOOKS.items():
        for fix, (middle, low, high) in rank_fixes(kind, loop).items():
            row = -order.index(fix) - (0.18 if loop == "fast" else -0.18)
            width = [[middle - low], [high - middle]]
            look = {"fmt": marker, "color": colour, "ms": 5, "capsize": 3}
            axis.errorbar(middle, row, xerr=width, **look)
    all_fixes = percent_saved(fixes.total(kind))[0]
    axis.set_yticks(-np.arange(len(order)), order if kind == "photographs" else [])
    axis.set(xlabel="of the time of a step saved (%)", ylabel="")
    axis.set_title(f"{kind}: all fixes save {all_fixes:.0f} %")
for loop, (marker, colour) in LOOKS.items():
    axes[1].plot([], [], marker, color=colour, label=f"in the {loop} loop")
axes[1].legend(fontsize=8, loc="lower right")
title = f"The best fix alone: {best['photographs']} (photographs), {best['texts']} (texts)"
figure.suptitle(title, x=0.01, ha="left", fontsize=11)
plt.show()
for kind in ladder.DATASETS:
    for loop in LOOKS:
        verdicts = defaultdict(list)
        for fix in rank_fixes(kind, loop):
            verdicts[fixes.verdict(kind, loop, fix)].append(fix)
        said = "; ".join(f"{verdict}: {', '.join(names)}" for verdict, names in verdicts.items())
        print(f"{kind}, {loop} loop: {said}")

# %% [markdown]
# All fixes together save 57 % of the time of a step for photographs and 55 % for texts. In the slow loop for photographs, *bf16* saves most, 27 % alone, before *rare validation* with 15 %. In the slow loop for texts, *rare validation* saves most, 59 % alone, before *fused optimizer* with 4 %. No loop shows a gain or a loss of *no item*, *foreach optimizer*, *set to none* or *no bias*, whose intervals end at 7 % at most. There are loops in which *bf16* and *compile* cost time.
#
# So the best fix of one network slows the other one's fast loop down. One validation takes as long as 7 training steps of the texts. Whoever starts with the most famous tip may change a line that costs nothing, and pass by the one that costs most. How can one see beforehand which line that is?

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Idea
#
# ### Two clocks
#
# A GPU works on a queue. Python puts a [kernel](glossary.md#kernel) into it and goes on at once. As soon as it needs a number from the device, as for `loss.item()`, it has to stand still until the queue is empty, which is a [synchronisation](glossary.md#synchronisation). Then the device stands still while Python prepares the next step. The drawing is calculated for three steps. In each, Python takes 100 µs to read the data, and 20 µs to queue each of ten kernels of 25 µs, so it needs 300 µs and the GPU 250.

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
figure, axes = plt.subplots(2, 1, figsize=(8.8, 2.9), sharex=True)
kinds = ("data", "queue", "device")
colours = dict(zip(kinds, plots.COLOURS, strict=False)) | {"wait": "#cccccc"}
said = ["Python reads", "Python queues", "the GPU computes", "Python waits"]
ends = []
for axis, wait in zip(axes, (True, False), strict=True):
    bars = [
        Bar("GPU" if what == "device" else "Python", what, start, start + length)
        for what, start, length in simulate_queue(3, wait)
    ]
    draw_bars(axis, bars, colours, ("Python", "GPU"))
    ends.append(max(bar.end for bar in bars))
    busy = sum(bar.end - bar.start for bar in bars if bar.kind == "device") / ends[-1]
    way = "with" if wait else "without"
    axis.set_title(f"{way} .item(): the GPU computes {busy:.0%} of the time")
    if wait:
        handles = make_legend(bars, colours, dict(zip(colours, said, strict=True)))
        figure.legend(handles=handles, ncols=4, fontsize=8, loc="outside lower center")
axes[1].set(xlabel="time (µs)")
plt.show()
print(f"three steps: {ends[0]:.0f} µs with .item() in each, {ends[1]:.0f} µs without")


# %% [markdown]
# So whoever reads a clock without waiting for the device measures how fast Python queues. And `.item()` costs the head start of Python, not its own microseconds. On a CPU each operation is finished before the next line runs, so there is no queue to lose, and a tip for GPUs can be useless here.
#
# ### Two limits
#
# A layer does $F$ floating-point operations ([FLOP](glossary.md#FLOP)) and moves $B$ bytes between memory and processor. With at most $P$ FLOP and $W$ bytes per second it takes at least
#
# $$t\ge\max\left(\frac FP,\ \frac BW\right).$$
#
# This is the [roofline](https://doi.org/10.1145/1498765.1498785). A layer with few FLOP per byte is *bound by memory*: no faster processor helps it, but fewer bytes do. Two ways lead there, a smaller format such as [bf16](glossary.md#bf16), and *fusing* layers, so that the numbers between them never leave the processor, which is what a compiler does.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## From scratch
#
# ### Time a step
#
# The first calls do not count, because memory and caches are still cold. The device is waited for before each look at the clock. And one reports a median, because another program can interrupt a call. `time.perf_counter` is the right clock: `time.time` can jump.

# %%
def clock_step(step, repeats=15, warm_up=3, device="cpu"):
    """Seconds (repeats,) of each call of ``step`` after the warm-up; the device is waited for."""
    wait, seconds = partial(synchronize, torch.device(device)), []
    for _ in range(warm_up):
        step()
    for _ in range(repeats):
        wait()  # what was queued before does not count
        start = time.perf_counter()
        step()
        wait()  # and what this call has queued does
        seconds.append(time.perf_counter() - start)
    return np.array(seconds)


step = checks.make_training_step(BATCH)  # of the network for photographs
print("the first five calls (ms):", np.round(1000 * clock_step(step, repeats=5, warm_up=0), 1))
print(f"median of fifteen after the warm-up: {1000 * np.median(clock_step(step)):.1f} ms")


# %% [markdown]
# ### A profiler in fifteen lines
#
# Each part of a step notes its start and its end. A part that runs inside another one is subtracted there, and what is left is the outer part's [self time](glossary.md#self-time). On a GPU both ends would have to wait for the device.

# %%
class PhaseTimer:
    """``with phases(name):`` notes (name, start, end, self time), in seconds, in ``spans``."""

    def __init__(self):
        self.spans = []
        self._inside = [0.0]  # seconds of the parts within each open part

    @contextmanager
    def __call__(self, name):
        self._inside.append(0.0)
        start = time.perf_counter()
        try:
            yield
        finally:
            end = time.perf_counter()
            own = end - start - self._inside.pop()
            self._inside[-1] += end - start
            self.spans.append((name, start, end, own))


# %% [markdown]
# `name_phases` wraps the methods of a loop in any context manager with a name, ours or PyTorch's. The self time of `train_step` is that of the loss and the backward pass.

# %%
def name_phases(loop, phase):
    """Let the parts of a `ladder.TrainingLoop` run inside of ``phase(name)``; returns the loop."""

    def wrap(owner, method, name):
        function = getattr(owner, method)

        @wraps(function)
        def run(*args, **kwargs):
            with phase(name):
                return function(*args, **kwargs)

        setattr(owner, method, run)

    for method in ("load_batch", "record", "validate"):
        wrap(loop, method, method)
    wrap(loop, "forward", "forward")
    wrap(loop, "train_step", "train_step")  # its self time: the loss and the backward pass
    wrap(loop.optimizer, "step", "optimizer")
    return loop


# %%
phases, log = PhaseTimer(), io.StringIO()  # the loops write their lines into the log
photographs = ladder.load_examples("photographs")
make_loop = partial(ladder.TrainingLoop, photographs, log=log)
slow = name_phases(make_loop(fixes=()), phases)
slow.run(ladder.BATCHES)  # warm-up
phases.spans.clear()
for _ in range(ladder.BATCHES):
    with phases("step"):
        slow.run(1)
spans = pd.DataFrame(phases.spans, columns=["part", "start", "end", "self"])
parts = spans.groupby("part")["self"].sum() * 1000 / ladder.BATCHES
parts = parts.rename({"step": "the rest", "train_step": "loss, backward"})
parts.sort_values(ascending=False).round(2).to_frame("ms per step")

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
NETWORK = ("forward", "loss, backward", "optimizer")
outside = 1 - parts[list(NETWORK)].sum() / parts.sum()
rows = ["load_batch", "forward", "loss, backward", "optimizer", "record", "validate"]
figure, axis = plt.subplots(figsize=(8.8, 2.6))
drawn = spans.replace({"part": {"train_step": "loss, backward"}})
drawn = drawn[drawn["part"].isin(rows)].copy()
drawn[["start", "end"]] = 1000 * (drawn[["start", "end"]] - spans["start"].min())  # ms
ends = drawn["end"][drawn["part"] == "forward"].to_numpy()  # there the backward pass begins
starts = drawn["start"][drawn["part"] == "optimizer"].to_numpy()  # and there it has ended
drawn.loc[drawn["part"] == "loss, backward", ["start", "end"]] = np.stack([ends, starts], axis=1)
bars = [
    Bar(row.part, "network" if row.part in NETWORK else "outside", row.start, row.end)
    for row in drawn.itertuples()
]
draw_bars(axis, bars, dict(zip(("network", "outside"), plots.COLOURS, strict=False)), rows)
axis.set(xlabel="time (ms)")
axis.set_title(f"Ten steps of the slow loop: {outside:.0%} of the time is not the network's")
plt.show()

# %% [markdown]
# The orange parts are not the network. The largest of them is `validate`, although it runs only once in five steps. `load_batch` is small, although it copies image by image, and `record` with its two `.item()` cannot be seen. So ten steps already say which fixes cannot matter here.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Check
#
# ### The parts are the whole
#
# A profiler that loses time, or counts some twice, leads to the wrong line. So the self times must add up to the steps. Without the subtraction, the inner parts would count twice.

# %% tags=["nbval-check-output"]
spans["length"] = spans["end"] - spans["start"]
total = spans["length"][spans["part"] == "step"].sum()
off = abs(spans["self"].sum() - total)
claim("the self times of the parts add up to the steps (1e-9 s)", off < 1e-9)
twice = spans["length"].sum() - total
claim("without subtracting the inner parts they would not", twice > 1e-9)

# %% [markdown]
# PyTorch's profiler sees every operation. We give it the same names, by `record_function`. The self times of all rows should add up to the total times of the outermost rows.

# %% tags=["nbval-check-output"]
named = name_phases(make_loop(fixes=()), record_function)
named.run(2)
with profile(profile_memory=True) as profiler:
    named.run(3)
averages = profiler.key_averages()
outer = [event for event in profiler.events() if event.cpu_parent is None]
sums = [sum(x.self_cpu_time_total for x in averages), sum(x.cpu_time_total for x in outer)]
close = np.ptp(sums) < 1e-6 * sums[0]
claim("the profiler's self times add up to its outermost rows (1e-6)", close)
seen = {row.key: row.count for row in averages}
calls = [seen[name] for name in ("load_batch", "train_step", "forward", "optimizer", "record")]
claim("and it saw each part of the loop once per step", calls == [3] * 5)

# %% [markdown]
# ### FLOP by hand
#
# A convolution with a 3 × 3 kernel from 256 to 256 channels computes each output from $256\cdot9$ products, and each product comes with a sum. We count one layer by hand, all layers by hooks, and let PyTorch's `FlopCounterMode` count at the dispatcher.

# %% tags=["nbval-check-output"]
from torch.utils.flop_counter import FlopCounterMode

network = create_model("convnet_small", data.num_classes).train()
one = 2 * (len(images) * 256 * 2 * 2) * (256 * 3 * 3)  # outputs times products, layer4.0.conv1
with FlopCounterMode(display=False) as counter:
    network(images)
counted = counter.get_flop_counts()
by_library = sum(counted["ConvNetSmall.layer4.0.conv1"].values())
claim("one convolution by hand has the FLOP that the library counts", one == by_library)
layers = place_layers(network, images)
products = sum(x.flops for x in layers if x.kind in ("Conv2d", "Linear"))
claim("and so have all convolutions and linear layers", products == counter.get_total_flops())
print(f"{products / len(images) / 1e6:.1f} million FLOP per photograph, forward")


# %% [markdown]
# ### A hidden synchronisation is found
#
# A metric may hide its `.item()` in an innocent `if`. No clock of a CPU shows it. But every such question goes through PyTorch's dispatcher, where `count_operations` counts it.

# %% tags=["nbval-check-output"]
class BestLoss:
    """Remembers the lowest loss; its `if` asks the device for a truth value."""

    def __init__(self):
        self.best = torch.tensor(math.inf)

    def update(self, loss):
        if loss < self.best:
            self.best = loss


fast = make_loop(fixes=ladder.FAST)
best_loss, batch = BestLoss(), fast.load_batch()
fast.train_step(*batch)
calls = [lambda: fast.train_step(*batch), lambda: best_loss.update(fast.train_step(*batch)[0])]
counts = [count_operations(call).synchronisations for call in calls]
print("synchronisations per step, without and with the metric:", counts)
claim("a metric's hidden question to the device is counted", counts == [0, 1])


# %% [markdown]
# `self.best = torch.minimum(self.best, loss)` computes the same and asks nothing. In a project, `torch.cuda.set_sync_debug_mode("warn")` warns at most synchronisations of a GPU.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The library way
#
# ### PyTorch's profiler: table, trace, memory
#
# The table sums the operations of the profile above by name. Sort operations by self time, because the total of an outer row contains that of its inner ones. Sort the parts that you named by total time, because their work is in the rows inside them.

# %%
def tabulate_profile(averages, steps):
    """Rows of a profile by self time: calls and milliseconds per step, and the share."""
    rows = {
        row.key: {
            "calls per step": row.count / steps,
            "self (ms)": row.self_cpu_time_total / 1000 / steps,
            "total (ms)": row.cpu_time_total / 1000 / steps,
        }
        for row in averages
    }
    table = pd.DataFrame(rows).T.sort_values("self (ms)", ascending=False)
    table["share (%)"] = 100 * table["self (ms)"] / table["self (ms)"].sum()
    return table


tabulate_profile(averages, steps=3).head(8).round(2)

# %% [markdown]
# `export_chrome_trace` writes every single call with its start and length, in a Chrome trace, which [Perfetto](https://ui.perfetto.dev) shows in the browser. It is JSON, so that we can draw the first step ourselves, with the outermost calls at the top.

# %%
with tempfile.TemporaryDirectory() as folder:
    profiler.export_chrome_trace(f"{folder}/trace.json")
    trace = read_file(Path(f"{folder}/trace.json"))["traceEvents"]
calls = sorted((x for x in trace if x.get("ph") == "X" and "dur" in x), key=lambda x: x["ts"])
calls = [x for x in calls if x.get("cat") in ("cpu_op", "user_annotation")]
starts = [x["ts"] for x in calls if x["name"] == "load_batch"]  # µs
first_step = [x for x in calls if starts[0] <= x["ts"] < starts[1]]
memory = [x for x in trace if x.get("name") == "[memory]"]
print(f"{len(first_step):,} calls in one step; {len(memory):,} changes of memory in all")

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
PARTS = ("load_batch", "train_step", "forward", "optimizer", "validate")
PART_COLOURS = dict(zip(PARTS, plots.COLOURS, strict=False))
figure, (timeline, bytes_axis) = plt.subplots(
    2, 1, figsize=(9, 4.4), sharex=True, height_ratios=(3, 2)
)
bars, open_until = defaultdict(list), []  # by depth and colour
for call in first_step:
    start, length = (call["ts"] - starts[0]) / 1000, call["dur"] / 1000  # ms
    while open_until and open_until[-1] <= start:
        open_until.pop()
    colour = PART_COLOURS.get(call["name"], "#cccccc" if len(open_until) % 2 else "#aaaaaa")
    bars[len(open_until), colour].append((start, length))
    open_until.append(start + length)
for (depth, colour), spans_of_bar in bars.items():
    timeline.broken_barh(spans_of_bar, (-depth - 0.42, 0.84), color=colour, lw=0)
patches = [plt.Rectangle((0, 0), 1, 1, fc=x) for x in (*PART_COLOURS.values(), "#bbbbbb")]
timeline.legend(
    patches, [*PARTS, "PyTorch's operations"], fontsize=8, loc="upper left", bbox_to_anchor=(1, 1)
)
timeline.set(xlabel="", ylabel="calls inside calls", yticks=[], ylim=(-7.5, 0.6))
timeline.set_title(f"One step of the slow loop makes {len(first_step):,} calls")
timeline.grid(False)
changes = sorted((x["ts"], x["args"]["Bytes"]) for x in memory)
inside = [(ts - starts[0], size) for ts, size in changes if starts[0] <= ts < starts[1]]
moments, sizes = np.array(inside).T
held = np.cumsum(sizes) / 1e6
bytes_axis.step(moments / 1000, held, where="post", color="black")
bytes_axis.set(xlabel="time (ms)", ylabel="memory (MB)")
bytes_axis.set_title(f"It adds up to {held.max():.0f} MB to what was there")
plt.show()

# %% [markdown]
# The lower panel is the memory timeline, from `profile_memory=True`. The bytes grow while the forward pass stores its [activations](glossary.md#activation), and the backward pass frees them, those of the first layers last.
#
# ### Lightning's
#
# `Trainer(profiler="simple")` times each hook, and `"pytorch"` runs the profiler above. `ThroughputMonitor` logs the [MFU](glossary.md#MFU), the share of the device's peak that the network uses. It has a table of the peaks of GPUs. For a CPU we give it the throughput of a large matrix product, which we measure.

# %%
roof = measure_roofline()
print(f"memory {roof.bytes_per_s / 1e9:.0f} GB/s, products {roof.flops_per_s / 1e9:.0f} GFLOP/s")
print(f"so a layer needs {roof.ridge:.0f} FLOP per byte, or it is bound by memory")

# %%
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.profilers import SimpleProfiler

from lesson_code.profiling.lit_timed import LitTimed, MeasuredThroughput

simple = SimpleProfiler()
monitor = MeasuredThroughput(lambda batch: len(batch[0]), roof.flops_per_s, window_size=6)
loader = torch.utils.data.DataLoader([(images, targets)] * 10, batch_size=None)
with tempfile.TemporaryDirectory() as folder:
    options = {"profiler": simple, "callbacks": [monitor], "logger": CSVLogger(folder)}
    trainer = quiet_trainer(max_epochs=1, log_every_n_steps=5, accelerator="cpu", **options)
    trainer.fit(LitTimed(create_model("convnet_small", data.num_classes), images), loader)
mfu = trainer.logged_metrics["train/device/mfu"]
for name, seconds in simple.recorded_durations.items():
    part = name.rpartition(".")[2]
    if part in ("training_step", "backward", "optimizer_step", "train_dataloader_next"):
        print(f"{part}: {1000 * np.mean(seconds[3:]):.2f} ms")
print(f"MFU {mfu:.0%}: this share of the measured peak is used")

# %% [markdown]
# Lightning's `optimizer_step` contains `training_step` and `backward`, which it runs as a closure, so these rows do not add up. Two tools look from outside. [py-spy](https://github.com/benfred/py-spy) samples a running process without changing it: `py-spy dump --pid …` shows where a training stands that seems to hang. [memray](https://github.com/bloomberg/memray) records who took which memory.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Experiment
#
# ### Which layers are bound by memory?
#
# Both roofs are measured: the bytes per second of a copy, and the FLOP per second of a large product. Every layer that computes gets a dot, from its FLOP, the bytes that it must move at least, and its time in a forward pass.

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
texts = ladder.load_examples("texts")
tokens, _ = texts.stack(texts.batches[0])
placed = {
    "photographs": layers,
    "texts": place_layers(create_model("text_small", texts.num_classes).train(), tokens),
}
for kind, found in placed.items():
    bound = [x for x in found if x.is_bound_by_memory(roof)]
    share = sum(x.seconds for x in bound) / sum(x.seconds for x in found)
    print(f"{kind}: memory bounds {len(bound)} of {len(found)} layers, {share:.0%} of the time")

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
figure, axes = plt.subplots(1, 2, figsize=(9.4, 3.7), sharey=True)
intensities = np.logspace(-1.2, 2.8, 100)
KINDS = ["Conv2d", "Linear", "BatchNorm2d", "LayerNorm", "ReLU", "MaxPool2d"]
for axis, (kind, found) in zip(axes, placed.items(), strict=True):
    roofs = [roof.limit(x) / 1e9 for x in intensities]
    axis.plot(intensities, roofs, color="black", lw=1.5)
    axis.axvline(roof.ridge, color=plots.GREY, ls=":")
    for number, name in enumerate(KINDS):
        dots = [(x.intensity, x.flops_per_s / 1e9) for x in found if x.kind == name and x.flops]
        if dots:
            look = {"color": plots.COLOURS[number], "marker": "osD^vP"[number], "ls": ""}
            axis.plot(*zip(*dots, strict=True), label=name, ms=5, **look)
    axis.set(xscale="log", yscale="log", xlabel="FLOP per byte", ylabel="", title=kind)
    axis.legend(fontsize=8, loc="lower right")
axes[0].set_ylabel("GFLOP per second")
title = "Norms, ReLU and pooling lie left of the dotted line: memory bounds them"
figure.suptitle(title, x=0.01, ha="left", fontsize=11)
plt.show()


# %% [markdown]
# Most convolutions and linear layers have many FLOP per byte, so arithmetic bounds them. Norms, ReLU and pooling do a few FLOP with each number that they read, so memory bounds them. A dot above the sloping roof is no error: its numbers still lie in a cache, which is faster than memory. A dot above the flat roof shows that the large product was not the fastest that this machine can do, so roof and MFU are a guide.

# %% [markdown]
# ### From the profile to the fix
#
# The profile leads to the best fix: most of the self time is that of convolutions, and arithmetic bounds them, so try bf16 and channels last. It does not promise that they help: bf16 slows the linear layers of the texts, so measure. For both parts outside of the network, and for the optimizer, there is a fix, too. We measure these three live, in turns: each round runs every loop for five steps, and only ratios within a round count.

# %%
def time_in_turns(runs, rounds):
    """Seconds (rounds,) of each call in ``runs``; every round has all, in another order."""
    seconds = {name: [] for name in runs}
    for number in range(-1, rounds):  # the first round is to warm up
        for name in np.random.default_rng(number + 1).permutation(list(runs)).tolist():
            start = time.perf_counter()
            runs[name]()
            if number >= 0:
                seconds[name].append(time.perf_counter() - start)
    return {name: np.array(times) for name, times in seconds.items()}


live = ["batched copies", "rare validation", "fused optimizer"]
loops = {"slow": make_loop(fixes=())} | {fix: make_loop(fixes=[fix]) for fix in live}
runs = {name: partial(loop.run, ladder.VALIDATE_EVERY) for name, loop in loops.items()}
times = time_in_turns(runs, rounds)


# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
def describe_saved(middle, low, high):
    return f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})"


table = {}
for fix in live:
    logs = paired_difference(np.log(times[fix]), np.log(times["slow"]))  # of "times as fast"
    now = percent_saved(np.exp([logs.mean, logs.low, logs.high]))
    then = percent_saved(fixes.speed_up("photographs", "slow", fix))
    table[fix] = {"saved here": describe_saved(*now), "saved in the study": describe_saved(*then)}
pd.DataFrame(table).T


# %% [markdown]
# Where an interval holds zero, nothing is decided. A part that is small in the profile cannot give much, however slow its code looks: *batched copies* shortens `load_batch` alone.

# %% [markdown]
# ### `torch.compile`: does it run, and is it worth it?
#
# The compiler traces the forward pass to a graph and writes code in which neighbouring operations are fused. Where Python has to look at a value, the graph ends and a new one begins, which is a [graph break](glossary.md#graph-break). `torch._dynamo.explain` names the line.

# %%
class Careful(nn.Module):
    """A layer that looks at its output, and so asks Python."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        x = self.layer(x)
        if x.abs().max() > 100:
            x = x / 100
        return x.relu()


(broken,) = compiling.explain_breaks(Careful(), torch.ones(2, 8))
print(f"the graph ends at: {broken.code}")
whole = compiling.explain_breaks(network, images)
claim("the network for photographs has no graph break, and the careful layer has one", not whole)

# %% [markdown]
# Worse, the compiler can give up without an error: beyond its limit of recompilations, with `suppress_errors`, or because an environment variable switches it off. The results are equal then, so that no test of them notices. `inspect_call` asks the profiler whether compiled code ran. We switch the compiler off on purpose.

# %% tags=["nbval-check-output"]
torch._dynamo.reset()
compiled = torch.compile(network, backend="eager")  # traces, and needs no C++ compiler
with torch.no_grad():
    network.eval()
    outputs = [network(images), compiled(images)]
    works = compiling.inspect_call(lambda: compiled(images))
    with torch.compiler.set_stance("force_eager"):
        outputs.append(compiled(images))
        gave_up = compiling.inspect_call(lambda: compiled(images))
network.train()
print("as usual:", works.describe())
print("switched off:", gave_up.describe())
claim("all three outputs are equal", all(torch.equal(x, outputs[0]) for x in outputs))
claim("but only the one that fell back is found out", gave_up.fell_back and not works.fell_back)


# %% [markdown]
# Machine code needs a C++ compiler and takes long, so its numbers are the study's, for forward and backward pass. *Break-even* is the number of steps after which the compile time is recovered. It is known where the interval lies on one side of zero.

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
def describe_price(row):
    # a row of the study in words
    price = compiling.Price.read(row)
    middle, low, high = percent_saved(price.speed_up)
    known = f"{price.break_even:,}" if low > 0 else "never" if high < 0 else "not known"
    return {
        "eager (ms)": f"{price.eager_ms:.1f}",
        "compiled (ms)": f"{price.compiled_ms:.1f}",
        "saved": describe_saved(middle, low, high),
        "compile time (s)": f"{price.compile_s:.0f}",
        "break-even (steps)": known,
        "gradients differ (of the largest)": f"{row['differences']['gradients']:.0e}",
    }


prices = {(row["kind"], row["format"]): describe_price(row) for row in study["compiling"]["rows"]}
print(compiling.find_missing_compiler() or "There is a C++ compiler here.")
pd.DataFrame(prices).T

# %% [markdown]
# For photographs in fp32 compiling costs 6 % of a step, and its 13 s are never recovered. The other three intervals hold zero. The slow loop's network, which has biases, gains 7 %, so the sign depends on little. On an A100 the authors [report](https://doi.org/10.1145/3620665.3640366) training 1.41 times as fast, the geometric mean of more than 180 networks. In fp32 no gradient differs by more than about 1e-04 of the largest, and in bf16 by up to 9e-02, so check the accuracy there.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Verdict
#
# The three predictions are answered by the study.

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
saved_by_all = percent_saved(fixes.total("photographs"))
saved_by_best = percent_saved(fixes.speed_up("photographs", "slow", best["photographs"]))
added = overhead.over(DEFAULTS)
print(f"photographs, all fixes: {describe_saved(*saved_by_all)} of the time saved")
print(f"the best fix alone, {best['photographs']}: {describe_saved(*saved_by_best)}")
print(f"the Trainer adds {added[0]:.0f} µs to a step ({added[1]:.0f} to {added[2]:.0f})")
value = describe_saved(*saved_by_all)
claim("photographs: all fixes together save time", saved_by_all[1] > 0, value=value)
compare_prediction(
    prediction,
    percent_saved_by_all=saved_by_all[0],
    percent_saved_by_the_best=saved_by_best[0],
    microseconds_of_the_trainer=added[0],
)

# %% [markdown] slideshow={"slide_type": "slide"}
# Lightning's Trainer adds 1291 µs to a step, which is 2.5 % of a step of the fast loop for photographs. About half of it is one `self.log`, and where a bar is drawn in each step it is 3154 µs. So a loop of your own saves time only where steps are short.
#
# * ✅ **Use it when** a training takes hours. Ten profiled steps say which fixes can help, and the others need not be tried.
# * 🚧 **Costs** your time. A fix of 2 % is worth an hour of work only for a training of days.
# * ❗ **Traps**
#   * A change is faster in one run and slower in the next → the machine changed between the two → take turns, and report the interval of a ratio.
# * **Combines with** bf16 (lesson 07), checkpointing (10) and, if the profile names the loading, the loaders of 11.
#
# **What this lesson does not show.** Our times are of one processor with two cores and of two small networks. On a GPU synchronisations, pinned memory, fused optimizers and compiling weigh more.

# %% [markdown] slideshow={"slide_type": "notes"}
# <details><summary>For the teacher</summary>
#
# *A common misconception:* a fix that helps someone else's loop helps mine. Ask which part of the profile the fix would shorten, and how large that part is. A second one: the fix with the best name helps most. `.item()` costs nothing measurable on a CPU, where there is no queue. A third one: a compiled network is a faster network. Ask for the break-even.
#
# </details>

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Recipe
#
# * **Use it when** a training will take more than an hour, and before you change a line to make it faster.
# * **Not when** a training takes minutes, or when the loss does not fall yet: find the bug first.
# * **Defaults** warm up, then [profile](https://docs.pytorch.org/tutorials/recipes/recipes/profiler_recipe.html) ten steps. Sort operations by self time, the device's if there is one, and your own parts by total time. Change one thing, and measure both versions in turns.
# * **Cost** ten steps. The profiler slows small operations, so measure ratios without it.
# * **Trap** the profile says that `loss.item()` or `cpu()` is slow → Python waits there for what was queued before → look at the device's rows, and synchronise before a clock is read.
# * **Trap** the compiled network is as slow as before → graph breaks, recompilations, or it fell back without an error → `torch._dynamo.explain`, `TORCH_LOGS=recompiles`, and look for "Torch-Compiled Region" in the profile.

# %% [markdown] slideshow={"slide_type": "slide"}
# ### In plain PyTorch
#
# Name the parts of your step by `record_function`, and the table shows them among PyTorch's own operations.

# %% tags=["card", "card-pytorch"]
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule


def profile_steps(step, count=10, warm_up=3, lines=12):  # prints where the time goes
    on_gpu = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU] + on_gpu * [ProfilerActivity.CUDA]
    plan = schedule(wait=0, warmup=warm_up, active=count, repeat=1)
    with profile(activities=activities, schedule=plan, acc_events=True) as profiled:
        for _ in range(warm_up + count):
            step()
            profiled.step()
    order = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    print(profiled.key_averages().table(order, row_limit=lines, max_name_column_width=30))
    return profiled  # its export_chrome_trace("trace.json") opens in ui.perfetto.dev


def train_step():
    with record_function("load"):
        inputs, labels = (x.to(kind) for x in next(batches))
    with record_function("forward"):
        loss = nn.functional.cross_entropy(net(inputs), labels)
    with record_function("backward"):
        loss.backward()
    with record_function("update"):
        adam.step()
        adam.zero_grad()


kind = "cuda" if torch.cuda.is_available() else "cpu"
net = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)).to(kind)  # yours
batches = iter([(torch.randn(64, 3, 32, 32), torch.arange(64) % 10)] * 13)  # yours: iter(loader)
adam = torch.optim.AdamW(net.parameters())  # yours
profiled = profile_steps(train_step)

# %% [markdown] slideshow={"slide_type": "slide"}
# ### In Lightning
#
# The profiler waits for the device at both ends of a part, and the medians leave out the first calls.

# %% tags=["card", "card-lightning"]
import statistics

import lightning as L
import torch
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from lightning.pytorch.profilers import SimpleProfiler
from torch.utils.data import DataLoader

wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None


class StepProfiler(SimpleProfiler):
    def start(self, action_name):
        wait()
        super().start(action_name)

    def stop(self, action_name):
        wait()
        super().stop(action_name)

    def list_medians(self, warm_up=3):  # milliseconds of what runs in each step, longest first
        calls = {name: times[warm_up:] for name, times in self.recorded_durations.items()}
        medians = {name: 1000 * statistics.median(x) for name, x in calls.items() if x}
        return dict(sorted(medians.items(), key=lambda item: -item[1]))


lit = BoringModel()  # yours
loader = DataLoader(RandomDataset(32, 832), 64)  # yours
off = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False)
off |= {"enable_model_summary": False, "limit_val_batches": 0}  # only while you profile
trainer = L.Trainer(max_steps=13, profiler=StepProfiler(), log_every_n_steps=5, **off)
trainer.fit(lit, loader)
for name, ms in list(trainer.profiler.list_medians().items())[:8]:
    print(f"{ms:8.3f} ms  {name}")


# %% [markdown] slideshow={"slide_type": "skip"}
# ## Exercises
#
# Write each function in place of the body that stands there, and run the check below it. An answer may use the lesson's imports and what you define from here on.
#
# ### ☆ Experiment: does a larger batch take less time per example? (10 minutes)
#
# **Predict first:** how many times as long does one photograph take in a batch of 256 as in one of 16? Write `compare_batches(make_step, small, large)`. `make_step(size)` returns a function that trains one step on `size` examples. Call each step once to warm up, then let the two take turns over at least five rounds. Return the seconds *per example* of each round, small and large, and the two edges of the 95 % interval of the ratio large / small, from logarithms. The check uses a tiny step. To measure `convnet_small`, call `compare_batches(checks.make_training_step, 16, 256)`.
#
# <details><summary>Hint</summary><code>paired_difference(a, b)</code> is about b minus a, pair by pair, and has <code>low</code> and <code>high</code>. The logarithm of a ratio is a difference of logarithms, and <code>exp</code> of an edge is the ratio again.</details>

# %% nbgrader={"grade": false, "grade_id": "compare_batches", "locked": false, "schema_version": 3, "solution": true, "task": false} slideshow={"slide_type": "skip"}
def compare_batches(make_step, small, large):
    """Seconds per example of each round, small and large, and the interval of large / small."""
    ### BEGIN SOLUTION
    steps = {size: make_step(size) for size in (small, large)}
    seconds = {size: [] for size in steps}
    for number in range(11):
        for size, step in steps.items():
            start = time.perf_counter()
            step()
            if number > 0:
                seconds[size].append((time.perf_counter() - start) / size)
    logs = paired_difference(np.log(seconds[small]), np.log(seconds[large]))
    return seconds[small], seconds[large], math.exp(logs.low), math.exp(logs.high)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_compare_batches", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false} slideshow={"slide_type": "skip"}
from lesson_code.profiling import checks

checks.check_compare_batches(compare_batches)


# %% [markdown] slideshow={"slide_type": "skip"}
# <details><summary>Worked answer</summary>A step has costs that do not grow with the batch: the calls of Python, the optimizer, which moves all weights once per step, and layers that are too small to keep all threads busy. In a larger batch more examples share them, so that an example takes less time. Beyond some size nothing is left to share. The loss per example may still fall more slowly with a larger batch, which is what lessons 08 and 16 are about.</details>
#
# ### ★ Exercise 1: how fast can a linear layer be? (5 minutes)
#
# Write `bound_linear(tokens, inputs, outputs, flops_per_s, bytes_per_s)`: the least seconds that the forward pass of `nn.Linear(inputs, outputs)` on `tokens` vectors can take, by the roofline. All numbers have four bytes. Each product of the matrix product comes with a sum, and the additions of the bias do not count as FLOP. Input, weight, bias and output are moved once.
#
# <details><summary>Hint</summary>The matrix product has tokens × inputs × outputs products. Both limits hold at once, so the later of the two decides.</details>

# %% nbgrader={"grade": false, "grade_id": "bound_linear", "locked": false, "schema_version": 3, "solution": true, "task": false} slideshow={"slide_type": "skip"}
def bound_linear(tokens, inputs, outputs, flops_per_s, bytes_per_s):
    """Seconds that a linear layer takes at least: by arithmetic, or by memory."""
    ### BEGIN SOLUTION
    flops = 2 * tokens * inputs * outputs
    moved = 4 * (tokens * inputs + inputs * outputs + outputs + tokens * outputs)
    return max(flops / flops_per_s, moved / bytes_per_s)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_bound_linear", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false} slideshow={"slide_type": "skip"}
from lesson_code.profiling import checks

checks.check_bound_linear(bound_linear)


# %% [markdown] slideshow={"slide_type": "skip"}
# <details><summary>Worked answer</summary>With one token the layer is bound by memory, because each weight is read for a single product and sum. The 152 tokens of the check's other case share the weights, so that it is bound by arithmetic. This is why a network that writes texts token by token is so much slower than in training, and why it answers many users in one batch.</details>
#
# ### ★★ Exercise 2: find the bugs that only cost time (20 minutes)
#
# `slow_script.run_step` is a training step of nine parts, which have names in the profiler. Three are slow. **Profile before you read**, with `tabulate_profile`. Only then read the three, by `slow_script.flip??` in a cell, with the name of the part in place of `flip`. Write `replace_slow()`, which returns a dictionary from the name of a slow part to a function that computes the same faster. The check counts operations, copies and synchronisations, and compares what is trained.
#
# ```python
# training, batch = slow_script.Training(), slow_script.make_batch()
# slow_script.run_step(training, batch)  # to warm up
# with profile() as profiler:
#     for _ in range(5):
#         slow_script.run_step(training, batch)  # and later: slow_script.PARTS | replace_slow()
# tabulate_profile(profiler.key_averages(), steps=5).sort_values("total (ms)", ascending=False)
# ```
#
# <details><summary>Hint</summary>One loops over images, although a tensor of factors can be multiplied at once if it has the shape (N, 1, 1, 1). One copies all weights, although <code>lerp_</code> changes a tensor in place. One asks the device a hundred questions, although <code>torch.bincount</code> counts pairs if a pair is one number.</details>

# %% nbgrader={"grade": false, "grade_id": "replace_slow", "locked": false, "schema_version": 3, "solution": true, "task": false} slideshow={"slide_type": "skip"}
def replace_slow():
    """The slow parts of the script, by name, each with a function that computes the same faster."""

    ### BEGIN SOLUTION
    def brighten(images, factors):
        return (images * factors[:, None, None, None]).clamp(max=1.0)

    @torch.no_grad()
    def average(model, averaged):
        for mean, value in zip(averaged.parameters(), model.parameters(), strict=True):
            mean.lerp_(value, 1 - slow_script.DECAY)

    def count_confusions(logits, targets, confusions):
        classes = len(confusions)
        pairs = targets * classes + logits.argmax(dim=1)
        confusions += torch.bincount(pairs, minlength=classes**2).view(classes, classes)

    return {"brighten": brighten, "average": average, "count_confusions": count_confusions}
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_replace_slow", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false} slideshow={"slide_type": "skip"}
from lesson_code.profiling import checks

checks.check_replace_slow(replace_slow)


# %% [markdown] slideshow={"slide_type": "skip"}
# <details><summary>Worked answer</summary>The profile names <code>average</code>, <code>brighten</code> and <code>count_confusions</code>, which look harmless in the source. <code>clip</code> and <code>normalise</code>, which look expensive, are not. On a GPU the third one would be the worst, because each of its hundred <code>item()</code> waits for the device, and the first one next.</details>
#
# ### ★★★ Exercise 3: time a change of 2 % (20 minutes)
#
# A colleague has a change that should save 2 % of a step. On your computer other programs run, and the processor becomes slower while it gets warm. Write `compare_fairly(old, new, rounds)`, which returns the ratio of the times, new divided by old, and both ends of a 95 % interval. `old()` and `new()` take one step each. Call each at most `rounds` times (40 in the check), after at most five to warm up. Read `time.perf_counter()` before and after a call.
#
# The check replaces that clock by those of 40 simulated computers, whose true ratio is 0.98. Your ratio must be right on average, the intervals narrow enough to decide, and 85 % of them must hold the true ratio.
#
# <details><summary>Hint</summary>What changes during the measurement must hit both steps alike. What hits single calls must not move the result. Of 40 sorted numbers, the 14th and the 27th are the ends of a 95 % interval of their median, because the number of values below the true median is binomial.</details>

# %% nbgrader={"grade": false, "grade_id": "compare_fairly", "locked": false, "schema_version": 3, "solution": true, "task": false} slideshow={"slide_type": "skip"}
def compare_fairly(old, new, rounds):
    """Time of a new step, divided by the old one's: the ratio, and its 95 % interval."""
    ### BEGIN SOLUTION
    for _ in range(3):
        old()
        new()
    logs = []
    for number in range(rounds):
        seconds = {}
        for step in (old, new) if number % 2 else (new, old):
            start = time.perf_counter()
            step()
            seconds[step] = time.perf_counter() - start
        logs.append(math.log(seconds[new] / seconds[old]))
    logs.sort()
    edge = int(rounds / 2 - 0.98 * math.sqrt(rounds))  # of a binomial distribution
    return tuple(math.exp(x) for x in (np.median(logs), logs[edge], logs[-1 - edge]))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "check_compare_fairly", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false} slideshow={"slide_type": "skip"}
from lesson_code.profiling import checks

checks.check_compare_fairly(compare_fairly)

# %% [markdown] slideshow={"slide_type": "skip"}
# <details><summary>Worked answer</summary>Pairs of neighbouring calls see nearly the same machine, so that slow changes cancel in their ratio. The order alternates, because the second of a pair is always a little later. A median ignores the calls that were interrupted, which would move a mean and widen its interval. All old calls first, then all new ones, would find that the change costs 10 % and more.</details>

# %% [markdown]
# ## Going deeper
#
# Each of these parts stands alone.
#
# ### What does Lightning cost, flag by flag?
#
# The study trained a network of one weight, so that a step is nearly all overhead, once in a plain loop and then by a Trainer with its defaults, with one flag off, and with `barebones=True`, which switches off the bar, summary, checkpoints, logger and `self.log`. The table has the microseconds of a step. The last column is what a training takes once, beside its steps.

# %%
overhead.table()

# %%
lengths = {share: overhead.length_for_share(share) for share in (0.01, 0.05)}
bare = overhead.length_for_share(0.01, "barebones=True")
for share, ms in lengths.items():
    print(f"the Trainer's defaults cost {share:.0%} of a step of {ms:.1f} ms")
print(f"with barebones=True they cost 1% of a step of {bare:.1f} ms")
less = added[1] > 0 and bare < lengths[0.01]
claim("the Trainer costs time in each step, and barebones=True costs less", less)

# %%
here = {"plain loop": run_plain_loop}
here |= {name: partial(run_trainer, name) for name in ("all five off", "barebones=True")}
for name, run in here.items():
    print(f"{name}: {np.median([run(120).step_us for _ in range(3)]):.0f} µs per step here")

# %% [markdown]
# The Trainer's defaults add 1291 µs to a step, `barebones=True` 369 µs. Of the single flags `enable_progress_bar=False` saves most, 465 µs. One `self.log` costs 655 µs, more than any flag. What is left is the Trainer's own work: its hooks, its counters of steps and epochs, and the closure around the optimizer. So the flags matter where a step takes a few milliseconds. In longer steps they are for quiet output, not for speed.

# %% [markdown]
# ### What does the compiler write?
#
# Eager PyTorch runs `relu(x + bias) * 0.5` as three operations, each of which reads a tensor from memory and writes one. The compiler writes one loop. Below are the lines of its body, as the study stored them. All three operations happen between one load and one store, which is what *fused* means.

# %%
kernel = study["compiling"].get("kernel", "").splitlines()
body = [line.strip() for line in kernel if "auto tmp" in line or "store" in line]
print("\n".join(body[:8]))

# %% [markdown]
# ### Why does it compile again and again?
#
# A graph is compiled for shapes. By default the first shape is taken as fixed. When another one comes, the size that differs becomes a variable, and from then on one graph serves all. With `dynamic=False` each shape gets a graph of its own, until the limit of recompilations is met and new shapes run eagerly, without an error. We give ten batches of texts, of different lengths, to a compiled transformer, and count its graphs.

# %% tags=["nbval-check-output"]
batches_of_texts = [texts.stack(index)[0] for index in texts.batches]
reader = create_model("text_small", texts.num_classes).eval()
print("tokens:", [batch.shape[1] for batch in batches_of_texts])
graphs = {
    dynamic: compiling.count_graphs(reader, batches_of_texts, dynamic)
    for dynamic in (None, False, True)
}
for dynamic, counted in graphs.items():
    print(f"dynamic={dynamic}: graphs after each batch {counted}")
claim("one graph more is enough for all lengths by default", graphs[None][-1] <= 2)
one_or_many = graphs[True][-1] == 1 < graphs[False][-1]
claim("with dynamic=True there is one, and with dynamic=False there are more", one_or_many)


# %% [markdown]
# `TORCH_LOGS=recompiles` prints the reason of each recompilation. The `mode` of `torch.compile` trades compile time for speed: `"reduce-overhead"` records the kernels of a GPU as a CUDA graph, which saves the queueing, and `"max-autotune"` also times several kernels for each matrix product. On a CPU the first changes nothing.
#
# ### What does `cudnn.benchmark` do?
#
# It times the algorithms that cuDNN has for a convolution, once for each new shape, and takes the fastest from then on. Without a GPU the flag has no effect. So we build the idea, with two algorithms: PyTorch's convolution, and a matrix product of unfolded patches.

# %%
def convolve_directly(x, weight):
    return F.conv2d(x, weight, padding=1)


def convolve_by_product(x, weight):
    patches = F.unfold(x, kernel_size=3, padding=1)  # (N, 9 C, H W)
    return (weight.flatten(1) @ patches).unflatten(2, x.shape[2:])


class Benchmark:
    """Runs all algorithms for each new shape, and from then on the fastest."""

    def __init__(self, *algorithms):
        self.algorithms, self.fastest = algorithms, {}

    def __call__(self, x, weight):
        if x.shape not in self.fastest:
            medians = [np.median(clock_step(partial(f, x, weight), 5)) for f in self.algorithms]
            self.fastest[x.shape] = self.algorithms[np.argmin(medians)]
        return self.fastest[x.shape](x, weight)


# %%
convolve = Benchmark(convolve_directly, convolve_by_product)
weight = torch.randn(16, 8, 3, 3)
inputs = [torch.randn(4, 8, side, side) for side in (4, 16, 48)]
close = [
    torch.allclose(convolve(x, weight), convolve_directly(x, weight), atol=1e-4) for x in inputs * 2
]
for shape, chosen in convolve.fastest.items():
    print(f"{tuple(shape)}: {chosen.__name__}")
claim("six calls with three shapes are benchmarked three times", len(convolve.fastest) == 3)
claim("and whichever is chosen computes the same (1e-4)", all(close))
before = F.conv2d(inputs[0], weight)
torch.backends.cudnn.benchmark = True
claim("on a CPU the real flag changes no bit", torch.equal(before, F.conv2d(inputs[0], weight)))
torch.backends.cudnn.benchmark = False

# %% [markdown]
# So set `torch.backends.cudnn.benchmark = True` for images of one size, and leave it off where each batch has another shape, because then every step is a benchmark. The chosen algorithm may differ from run to run, and with it the last digits. In Lightning it is `Trainer(benchmark=True)`.
#
# ### Which functions copy?
#
# `torch.tensor` always copies. `torch.from_numpy` and `torch.as_tensor` share the memory of a NumPy array, unless another type or device is asked for. Whether two tensors share memory can be seen from the address of their first number.

# %% tags=["nbval-check-output"]
array = np.arange(6, dtype=np.float32)
made = {
    "torch.tensor(array)": torch.tensor(array),
    "torch.from_numpy(array)": torch.from_numpy(array),
    "torch.as_tensor(array)": torch.as_tensor(array),
    "torch.as_tensor(array, dtype=torch.float64)": torch.as_tensor(array, dtype=torch.float64),
}
shares = {name: x.data_ptr() == array.ctypes.data for name, x in made.items()}
print(shares)
expected = [False, True, True, False]
claim("from_numpy and as_tensor share memory, tensor copies", [*shares.values()] == expected)

# %% tags=["nbval-check-output"]
array[0] = 100.0
claim("so a change of the array is seen in the tensor", made["torch.as_tensor(array)"][0] == 100)
moved = made["torch.tensor(array)"].to("cpu", non_blocking=True)
claim("to() returns the same tensor if nothing is to do", moved is made["torch.tensor(array)"])

# %% [markdown]
# Sharing is fast and has a price: whoever changes the array changes the tensor. In the study the fix *batched copies* has this and one more part, because it also makes a batch at once in place of 64 images one by one.
#
# ### When do pinned memory and `non_blocking` help?
#
# A GPU can fetch a batch by itself, while Python goes on, if the batch lies in *pinned* memory, which the system never moves. `DataLoader(pin_memory=True)` puts it there, and `batch.to("cuda", non_blocking=True)` does not wait. Without pinned memory the copy waits in spite of `non_blocking`. On a CPU there is nothing to copy. The table was measured on a GPU by `course measure`.

# %%
from course_utils.measured import read_measured

read_measured("copies")

# %% [markdown]
# ### Why no bias before BatchNorm?
#
# [BatchNorm](glossary.md#BatchNorm) subtracts the mean of each channel, and with it every bias that was added before. So the output does not depend on the bias, and its gradient is zero. In floating-point numbers it is rounding noise. An optimizer such as AdamW divides this noise by its own size, so that the useless biases still wander.

# %%
biased = ladder.add_biases(create_model("convnet_small", data.num_classes)).train()
adam = torch.optim.AdamW(biased.parameters(), lr=1e-3, weight_decay=0.0)
convolution = biased.layer4[0].conv1
for _ in range(5):
    adam.zero_grad()
    F.cross_entropy(biased(images), targets).backward()
    adam.step()
noise = convolution.bias.grad.abs().max() / convolution.weight.grad.abs().max()
print(f"largest gradient of the biases: {noise:.0e} of the largest of the weights")
print(f"they moved by up to {convolution.bias.abs().max():.4f} in five steps of 0.001")
claim("the gradient of a bias before BatchNorm is zero to rounding", noise < 1e-4)
claim("and AdamW moves it all the same", convolution.bias.abs().max() > 1e-4)

# %% [markdown]
# In the study *no bias* saves 1.2 % of the slow loop and 0.7 % of the fast one. Both intervals hold zero. Besides time, a useless bias takes a row of the optimizer state and a line of every checkpoint. So write `bias=False` in a convolution or linear layer that stands directly before a BatchNorm.

# %% [markdown]
# ### What does no profiler of operations name?
#
# Memory that is given back and asked for anew. When a large tensor is freed, the C library returns its memory to the system. The next tensor of this size gets new pages, and the first touch of each is a *page fault*, in which the system finds a page and clears it. In a profile this time is part of whichever operation touches the tensor first. The study trained the network for photographs in two processes in turn. One of them was started with `GLIBC_TUNABLES`, which told the C library to keep its memory.

# %% cellView="form" jupyter={"source_hidden": true} tags=["hide-input"]
stored_pages = study["page_faults"]
kept = {(row["batch_size"], row["way"]): row for row in stored_pages["rows"]}
table = {}
for size in sorted({size for size, _ in kept}):
    usual, keeping = (kept[size, way] for way in ("as usual", "memory is kept"))
    logs = paired_difference(np.log(keeping["ms"]), np.log(usual["ms"]))
    table[f"{size} images"] = {
        "faults per step": f"{np.median(usual['faults']):,.0f}",
        "with kept memory": f"{np.median(keeping['faults']):,.0f}",
        "ms per step": f"{np.median(usual['ms']):.0f}",
        "time saved": describe_saved(*percent_saved(np.exp([logs.mean, logs.low, logs.high]))),
    }
print(stored_pages["missing"] or f"GLIBC_TUNABLES={stored_pages['tunables']}")
pd.DataFrame(table).T

# %% [markdown]
# With 64 images per batch a step has 5,506 page faults, for 23 MB, and without them it takes 11 % less time. With 1,024 images per batch a step has 52,484 page faults, for 215 MB, and without them it takes 12 % less time. No row of the profile names this time. Try the setting where a CPU trains: it must stand in the environment before Python starts.

# %% [markdown]
# ### The study in full
#
# Milliseconds without and with each fix, in both loops. *Times as fast* above one means that the fix saves time, and the verdict is that of the figure.

# %%
fixes.table("photographs")

# %%
fixes.table("texts")

# %% [markdown]
# A fix can have another effect in the slow loop than in the fast one, because it shortens a part of a step whose other parts are shorter there. That is why the study measured both.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Recap and sources
#
# * Warm up, wait for the device, take turns, report a ratio with an interval.
# * Profile first: a part that is small in the profile cannot give much.
# * A synchronisation costs a GPU its queue, and a CPU nothing, so count them.
# * A layer with few FLOP per byte is bound by memory: move fewer bytes.
# * Ask of a compiled network whether it runs compiled, and after how many steps it is worth it.
#
# Sources: S. Williams et al., [Roofline](https://doi.org/10.1145/1498765.1498785), 2009 · J. Ansel et al., [PyTorch 2](https://doi.org/10.1145/3620665.3640366), 2024 · A. Chowdhery et al., [PaLM](https://arxiv.org/abs/2204.02311), 2022 (MFU) · PyTorch's [performance tuning guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html) and [profiler](https://docs.pytorch.org/docs/stable/profiler.html) · [Lightning's profilers](https://lightning.ai/docs/pytorch/stable/tuning/profiler.html).
#
# Back: [18 · When to stop](18_when_to_stop.ipynb) · Next: [20 · Sharding](20_sharding.ipynb)
