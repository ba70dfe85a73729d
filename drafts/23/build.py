import json, textwrap, nbformat, re
from nbformat.v4 import new_notebook, new_code_cell, new_markdown_cell
cells=[]
def md(id, text, slide=None):
    c=new_markdown_cell(textwrap.dedent(text).strip("\n"), id=id)
    if slide: c.metadata["slideshow"]={"slide_type":slide}
    cells.append(c)
def code(id, src, slide=None, tags=(), hide=False, nbg=None):
    c=new_code_cell(textwrap.dedent(src).strip("\n"), id=id)
    tags=list(tags)
    if hide:
        c.metadata["cellView"]="form"; c.metadata["jupyter"]={"source_hidden":True}; tags=["hide-input",*tags]
    if nbg: c.metadata["nbgrader"]=nbg
    if slide: c.metadata["slideshow"]={"slide_type":slide}
    if tags: c.metadata["tags"]=tags
    cells.append(c)
CHECK=("nbval-check-output",)

md("title", """
# 23 · Other loops and engines: the same training without Lightning's Trainer

Your team has a training loop of its own, or uses Accelerate, transformers or fastai. Can you take with you what lessons with Lightning taught, and does the other loop do the same?

After this lesson you can train the same network by six loops and check that the weights are equal, say which actions of a step each loop does for you, and run many trainings on processes or a cluster so that a dead worker costs nothing but its own training.

Minutes: 90 · Prerequisites: [01 · The baseline](01_baseline.ipynb), [08 · Accumulation](08_gradient_accumulation.ipynb), [15 · Clipping](15_gradient_clipping.ipynb) · Seam: *trainer*, in whose place another loop stands · Budget: 75 s on two CPU cores in [`quick`](glossary.md#profile) · **[Recipe ↓](#Recipe)**
""", "slide")
md("question", """
## Question

We train one small network by nine loops: plain PyTorch, Fabric, Accelerate, Lightning with its automatic and with its manual optimization, transformers' Trainer, fastai, skorch and Ignite. All get the same initial weights, the same batches in the same order, warm-up and cosine, [gradient clipping](glossary.md#gradient-clipping), and [gradient accumulation](glossary.md#gradient-accumulation) over two [micro-batches](glossary.md#micro-batch). **How many of the eight others end with the weights of the plain loop? How many still do if the number of micro-batches is odd? And what does a loop cost?**

Predict three numbers: the loops of eight that agree within 10⁻⁶, those that still agree with an odd number of micro-batches, and the microseconds that Lightning's Trainer adds to each batch.
""", "slide")
code("prediction", """
from course_utils.predictions import compare_prediction, record_prediction

prediction = record_prediction(
    "23_loops_and_engines",
    loops_that_agree=None,  # your number of eight instead of None
    loops_that_agree_with_an_odd_number=None,  # and here
    microseconds_of_lightning=None,  # and here
)
""")
md("notes-prediction", """
<details><summary>For the teacher</summary>

Ask which loop the students have used, and which of its settings they have ever read. Let them guess for each loop who calls `zero_grad`, and who divides the loss. Most expect rounding differences between the libraries. There are none, which makes the real differences easy to see.

</details>
""", "notes")
md("set-up", """
## Set-up

The training is a `Job`: the course's network for photographs, embedded photographs that are never shuffled, two [epochs](glossary.md#epoch) of eight micro-batches of eight. Everything is on the CPU, in fp32 and with one thread, because only then can two loops be compared bit by bit.
""", "skip")
code("parameters", """
PROFILE = ""  # smoke, quick or full
DATASET = ""  # printed only: the loops always train on embedded photographs
FIRST_SEED = None  # first of the paired seeds, an integer
SEEDS = 4  # trainings on processes, one of which is killed
GAN_STEPS = 300  # batches of the two networks that compete
""", "skip", ["parameters"])
code("imports", """
import difflib
import inspect
import tempfile
from dataclasses import fields, replace
from functools import partial
from itertools import islice
from pathlib import Path

import lightning as L
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torchvision
import transformers
from IPython.display import Markdown
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from course_utils import plots
from course_utils.results import STUDIES, read_file
from course_utils.training import fit, quiet_trainer
from lesson_code.loops_and_engines import checks, engines, fastai_parts, loops, offline_loggers
from lesson_code.loops_and_engines.faults import FAULTS, OTHER_RULES, SCALED, change_loop
from lesson_code.loops_and_engines.job import FULL, INCOMPLETE, find_gap, measure_loss
from lesson_code.loops_and_engines.overhead import TOLERANCE, Loops
from lesson_code.loops_and_engines.plain import train_plain
from lesson_code.loops_and_engines.who import LIBRARY, NEITHER, YOU, trace_all
""", "skip", ["imports"], hide=True)
code("load", """
from course_utils import claim, load_config, load_data
from lesson_code.loops_and_engines.job import make_photograph_jobs

plots.use_style()
quiet_trainer()  # and with it Lightning's notices
config = load_config(PROFILE, dataset=DATASET, first_seed=FIRST_SEED)
is_smoke = config.profile == "smoke"
seeds = range(2 if is_smoke else SEEDS)
gan_steps = 20 if is_smoke else GAN_STEPS
torch.set_num_threads(1)
jobs = make_photograph_jobs(16 if is_smoke else 64)
job = jobs[FULL]
print(config.describe())
print(f"{job.count_batches()} micro-batches per epoch, {job.count_steps()} optimizer steps in all")
""", "skip")
md("first-md", """
## First result

A stored [study](glossary.md#study) trained the network by all nine loops and compared every weight and every [running statistic](glossary.md#running-statistics) with the plain loop's. It also timed the loops in turn, with a network of one small layer, so that a batch is nearly all overhead. Each bar is the 95 % [interval](glossary.md#confidence-interval) of the time that a loop adds to a batch, within rounds that have all loops.
""")
code("first-read", """
stored = Loops(read_file(STUDIES / "loops_and_engines/study.json"))
extras = read_file(STUDIES / "loops_and_engines/study_extras.json")
others = [name for name in stored.names if name != loops.PLAIN]
same = {kind: [x for x in stored.list_same(kind) if x != loops.PLAIN] for kind in jobs}
print(stored.describe_provenance())
stored.table()
""", hide=True)
code("first-figure", """
figure, (gaps_axis, time_axis) = plt.subplots(1, 2, figsize=(9.6, 3.6), sharey=True)
places = -np.arange(len(others))
LOWEST = 1e-9  # where a difference of zero is drawn
for kind, marker, colour in zip(jobs, "oD", plots.COLOURS, strict=False):
    gaps = [max(stored.gap(name, kind), LOWEST) for name in others]
    look = {"marker": marker, "ls": "", "color": colour, "label": kind}
    gaps_axis.plot(gaps, places + (0.12 if marker == "o" else -0.12), **look)
gaps_axis.axvline(TOLERANCE, color="black", lw=1, ls=":")
gaps_axis.set(xscale="log", xlabel="largest difference of a weight (left edge: zero)", ylabel="")
gaps_axis.set_title(f"{len(same[FULL])} of {len(others)} loops end with the same weights")
gaps_axis.set_yticks(places, others)
gaps_axis.legend(fontsize=8, loc="upper center")
added = {name: stored.added(name) for name in others}
means = np.array([x.mean for x in added.values()])
half = np.array([x.high - x.mean for x in added.values()])
time_axis.barh(places, means, xerr=half, color=plots.COLOURS[0], capsize=3, height=0.6)
time_axis.set(xlabel="added to a batch (µs)", ylabel="")
time_axis.set_title(f"Fabric adds {means[0]:.0f} µs, fastai {added['fastai'].mean:.0f}")
plt.show()
for name in (x for x in others if x not in same[INCOMPLETE]):
    print(f"{name}: differs by {stored.gap(name, INCOMPLETE):.1g} after an incomplete last group")
share = 0.1 * added["Lightning"].mean / stored.real_batch_ms  # µs of ms, in percent
print(f"Lightning adds {share:.1f} % to the {stored.real_batch_ms:.0f} ms of eight photographs")
""", hide=True)
md("first-read-md", "@@FIRST@@")
md("idea", """
## Idea

A training step is the same few actions in every loop: switch the network to train mode, run the backward pass, clip, step the optimizer, step the [schedule](glossary.md#schedule), and clear the gradients. Libraries differ in *who* does each of them. We let each loop run on the job and note for every action whether your own line called it or the library's loop. The first row also shows who sets the [seed](glossary.md#seed) of PyTorch's generator.
""", "slide")
code("idea-figure", """
who = trace_all(loops.LOOPS, job)
levels = {YOU: 0, LIBRARY: 1, NEITHER: 2}
figure, axis = plt.subplots(figsize=(8.6, 3.2))
shown = who.replace(levels).to_numpy(dtype=float)  # (actions, loops)
palette = plt.matplotlib.colors.ListedColormap(["#f6d9a8", "#b9d3ea", "#ffffff"])
axis.imshow(shown, cmap=palette, aspect="auto", vmin=0, vmax=2)
for row, column in np.ndindex(shown.shape):
    axis.text(column, row, who.iloc[row, column], ha="center", va="center", fontsize=8)
axis.set_xticks(range(len(who.columns)), who.columns)
axis.set_yticks(range(len(who)), who.index)
axis.grid(False)
hidden = (who == LIBRARY).sum()
axis.set(xlabel="", ylabel="")
axis.set_title(f"transformers' Trainer does {hidden['transformers']} of {len(who)} actions for you")
plt.show()
""", hide=True)
md("idea-read", """
There are two kinds of loops. In plain PyTorch, Fabric and Accelerate the loop is yours, and the library offers the same actions for several devices and precisions. Lightning's and transformers' Trainers own the loop, and you give them a network, an optimizer and settings. Lightning's manual optimization lies between: the Trainer has the loop over batches, and your `training_step` has the rest.

Two cells surprise. transformers' Trainer seeds PyTorch's generator, with 42 if you say nothing, so your own seed is lost. And nothing switches the network to train mode in Lightning: the Trainer leaves the mode as it finds it, and a new network happens to be in train mode.
""")
md("scratch", """
## From scratch

The whole loop fits on a postcard if one function takes an optimizer step. A *group* is the list of micro-batches that belong to a step. Each loss is a mean over its micro-batch, so it gets the weight of its share in the group's examples. Then the sum of the gradients is that of one large batch, also if the last group is incomplete or its last micro-batch is small.
""", "slide")
code("take-step", """
def take_group_step(model, optimizer, schedule, group, max_norm):
    \"\"\"One optimizer step for a list of micro-batches (inputs, targets).\"\"\"
    count = sum(len(targets) for _, targets in group)
    for inputs, targets in group:
        loss = cross_entropy(model(inputs), targets) * len(targets) / count
        loss.backward()  # adds to what is there
    clip_grad_norm_(model.parameters(), max_norm)  # the whole group's gradient
    optimizer.step()
    schedule.step()  # counts optimizer steps, not micro-batches
    optimizer.zero_grad()
""")
md("scratch-loop", """
The loop around it takes groups from an iterator with `islice`, which gives fewer at the end of an epoch.
""")
code("train-by-hand", """
def train_by_groups(job):
    \"\"\"The job's network, trained.\"\"\"
    model = job.make_model()
    optimizer = job.make_optimizer(model)
    schedule = job.make_schedule(optimizer)
    for _ in range(job.epochs):
        model.train()  # a validation may have left eval mode
        batches = iter(job.make_loader())
        while group := list(islice(batches, job.accumulate)):
            take_group_step(model, optimizer, schedule, group, job.max_norm)
    return model


trained = train_by_groups(job)
untrained = job.make_model()
print(f"loss {measure_loss(untrained, job):.3f} before, {measure_loss(trained, job):.3f} after")
""")
md("check", """
## Check

Accumulation should do what one large batch does. [BatchNorm](glossary.md#BatchNorm) is an exception, because it normalises each micro-batch with its own mean, so we check it with a linear network. The last group has one micro-batch, and this one is small.
""", "slide")
code("check-whole", """
images, targets = (x.repeat(4, *[1] * (x.ndim - 1))[:44] for x in (job.inputs, job.targets))
linear = replace(job, make_model=checks.make_linear, inputs=images[:, :, ::4, ::4])
linear = replace(linear, targets=targets % 4, max_norm=0.5, batch_size=8)  # 8, 8, 8, 8, 8, 4
whole = replace(linear, batch_size=16, accumulate=1)
gap = find_gap(train_by_groups(linear), train_by_groups(whole))
claim("groups of two micro-batches train as whole batches do (1e-6)", gap <= 1e-6)
""", tags=CHECK)
md("check-plain", """
The course's plain loop, `train_plain`, counts micro-batches instead of collecting them. It is the loop that all others are compared with. For groups of equal micro-batches it must give the weights of ours.
""")
code("check-plain-code", """
plain = {kind: train_plain(one) for kind, one in jobs.items()}
gaps = [find_gap(train_by_groups(one), plain[kind]) for kind, one in jobs.items()]
claim("our loop ends with the plain loop's weights (1e-6)", max(gaps) <= 1e-6)
moved = find_gap(job.make_model(), plain[FULL])
claim("and training has moved them by more than 1e-3", moved > 1e-3)
""", tags=CHECK)
md("library", """
## The library way

The cells print the functions that the study has measured. Lightning first: the settings of the step are arguments of the Trainer, and `"interval": "step"` lets the schedule count optimizer steps.
""", "slide")
code("show-lightning", """
def show_source(*things):
    \"\"\"The code of functions and classes, as a cell's output.\"\"\"
    return Markdown("\\n".join(f"```python\\n{inspect.getsource(x)}```" for x in things))


show_source(*loops.WRITTEN["Lightning"])
""")
md("fabric-md", """
Fabric keeps the loop in your hands. It wraps network, optimizer and loader, and what else changes is `fabric.backward` and `fabric.clip_gradients`, which know about several devices and precisions. `no_backward_sync` saves the all-reduce of incomplete groups in [DDP](glossary.md#DDP).
""")
code("show-fabric", """
show_source(*loops.WRITTEN["Fabric"])
""")
md("accelerate-md", """
Accelerate wraps the schedule, too. You call everything for every micro-batch, and `step()` and `zero_grad()` do nothing until the group is complete. Clipping needs the question `sync_gradients`. With several processes the wrapped schedule takes as many steps at a time as there are processes.
""")
code("show-accelerate", """
show_source(*loops.WRITTEN["Accelerate"])
""")
md("transformers-md", """
transformers' Trainer expects a network that returns its own loss, and a data set of which it makes the loader itself. By default it shuffles, clips to a norm of 1, logs and saves.
""")
code("show-transformers", """
show_source(*loops.WRITTEN["transformers"])
""")
md("live-md", """
Now all six loops of this environment train the job here. The tolerance is 10⁻⁶ for every weight and running statistic.
""")
code("live", """
live = {name: loop(job) for name, loop in loops.LOOPS.items()}
here = {name: find_gap(model, plain[FULL]) for name, model in live.items()}
for name, gap in here.items():
    print(f"{name:18} {loops.count_lines(name):3} lines, largest difference {gap:.0e}")
claim("all six loops end with the same weights (1e-6)", max(here.values()) <= TOLERANCE)
""")
md("manual-md", """
### Manual optimization: when one optimizer is not enough

`self.automatic_optimization = False` gives you the step, and you also have to accumulate, clip and step the schedule. The card of the [Recipe](#Recipe) does so, with a [one-cycle](glossary.md#one-cycle) schedule. SAM of lesson [16](16_optimizers.ipynb) needs none of this, because its closure runs twice within a step. Two networks that compete do, as in a GAN: a *discriminator* learns to tell data from inventions, and a *generator* to fool it. Each has its own optimizer.
""")
code("gan", """
class LitRing(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 2))
        self.discriminator = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1))
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        invented = self.generator(torch.randn(len(batch[0]), 2))
        losses = self.list_losses(batch[0], invented)
        for optimizer, loss in zip(self.optimizers(), losses, strict=True):
            optimizer.zero_grad()  # also what the other's loss has left here
            self.manual_backward(loss())
            optimizer.step()

    def list_losses(self, real, invented):
        judge, loss = self.discriminator, nn.functional.softplus
        yield lambda: (loss(-judge(real)) + loss(judge(invented.detach()))).mean()
        yield lambda: loss(-judge(invented)).mean()
""")
md("gan-md", """
`detach` keeps the discriminator's loss out of the generator. The generator's loss does go through the discriminator, so that it leaves gradients there, which the next `zero_grad` removes. The data lie near a circle of radius 2.
""")
code("gan-train", """
def make_two_optimizers(lit):
    parts = (lit.discriminator, lit.generator)
    return [torch.optim.Adam(part.parameters(), lr=3e-3, betas=(0.5, 0.99)) for part in parts]


torch.manual_seed(config.first_seed)
angles = 2 * torch.pi * torch.rand(64 * gan_steps)
ring = 2 * torch.stack([angles.cos(), angles.sin()], dim=1) + 0.05 * torch.randn(len(angles), 2)
LitRing.configure_optimizers = make_two_optimizers
lit = LitRing()
dataset = torch.utils.data.TensorDataset(ring)
quiet_trainer(accelerator="cpu", max_epochs=1).fit(lit, torch.utils.data.DataLoader(dataset, 64))
stepped = [next(iter(one.state.values()))["step"].item() for one in lit.trainer.optimizers]
claim("both optimizers took one step per batch", stepped == [gan_steps, gan_steps])
""")
code("gan-figure", """
with torch.no_grad():
    points = lit.generator(torch.randn(400, 2))
figure, axis = plt.subplots(figsize=(3.8, 3.6))
axis.plot(*ring[:400].T, ".", color=plots.GREY, ms=4, label="data")
axis.plot(*points.T, ".", color=plots.COLOURS[1], ms=4, label="generated")
title = f"Data, and the generator after {gan_steps} batches"
axis.set(xlabel="first number", ylabel="second number", title=title)
axis.legend(fontsize=8, loc="upper right")
plt.show()
""", hide=True)
md("plateau-md", """
Automatic optimization steps `ReduceLROnPlateau` with the metric named as `monitor`. Under manual optimization you do it, in `on_train_epoch_end`, where the epoch's mean is known.
""")
code("plateau", """
LOSSES = [5.0, 4.0, 4.0, 4.0, 3.0, 3.0]  # of six epochs, as if measured


class LitPlateau(loops.LitManual):
    def training_step(self, batch, batch_idx):
        self.log("loss", LOSSES[self.current_epoch], on_step=False, on_epoch=True)

    def on_train_epoch_end(self):
        self.lr_schedulers().step(self.trainer.callback_metrics["loss"])
        self.used.append(self.optimizers().param_groups[0]["lr"])

    def configure_optimizers(self):
        self.used, optimizer = [], self.job.make_optimizer(self.model)
        return [optimizer], [torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)]


""")
md("plateau-run-md", """
An epoch whose loss is no lower than before should divide the learning rate by ten.
""")
code("plateau-run", """
lit = LitPlateau(job)
quiet_trainer(accelerator="cpu", max_epochs=len(LOSSES)).fit(lit, job.make_loader())
print("learning rates after each epoch:", [f"{lr:.0e}" for lr in lit.used])
cuts = [round(job.lr / lr) for lr in lit.used]
claim("each epoch without a lower loss divides it by ten", cuts == [1, 1, 10, 100, 100, 1000])
""", tags=CHECK)
md("experiment", """
## Experiment

### Which line bites?

The same weights depend on small things. We change one line of the plain loop at a time, and measure how far the weights move. No error is raised in any of these cases.
""", "slide")
code("faults", """
def measure_faults(faults, job, reference):
    rows = {}
    for name, changes in faults.items():
        model = change_loop(*changes)(job)
        rows[name] = {"moved by": find_gap(model, reference), "loss": measure_loss(model, job)}
    return pd.DataFrame(rows).T


moved = measure_faults({"no change": (), **FAULTS}, job, plain[FULL])
if not is_smoke:  # where micro-batches of two photographs are clipped in each step
    least = moved["moved by"].iloc[1:].min()
    claim("each fault moves a weight by more than 1e-3", least > 1e-3)
scaled = find_gap(change_loop(*SCALED)(job), plain[FULL])
claim("a loss scale moves nothing, if the gradient is unscaled before the clipping", scaled == 0)
moved.map("{:.3g}".format)
""")
md("faults-read", """
Each row is a question to ask of any loop. Is the gradient clipped once, after the group is complete, and after `unscale_`? Does the schedule count optimizer steps? Is the loss divided? Are the gradients cleared? Who goes back to train mode after a validation? No loss of the last column looks broken, so a loss does not find these faults. Comparing weights with a loop that you trust does.

### The last group

An epoch of seven micro-batches has three groups of two, and one micro-batch alone. Its loss can be divided by one, which is right, or by two, so that it counts half. Or its gradient stays until the next epoch brings a second one. We change the plain loop to these rules, and look which loop follows which.
""")
code("camps", """
rules = {"divided by its own size": plain[INCOMPLETE]}
rules |= {name: change_loop(*x)(jobs[INCOMPLETE]) for name, x in OTHER_RULES.items()}
follows = {}
for name, loop in loops.LOOPS.items():
    gaps = {rule: find_gap(loop(jobs[INCOMPLETE]), model) for rule, model in rules.items()}
    follows[name] = min(gaps, key=gaps.get)
    claim(f"{name}: {follows[name]}", gaps[follows[name]] <= TOLERANCE)
""")
md("camps-read", """
Lightning's automatic optimization and Accelerate divide by the full number, so the last group counts half. transformers' Trainer looks at the group first, and divides by its own size. In the study fastai kept the last gradient until the next epoch. It is one step per epoch, so it matters in short epochs only. The simplest fix is a number of micro-batches without a rest.

### A hook that Lightning never calls

Lightning finds your methods by their names. A misspelt one is no error: it is simply a method that is never called.
""")
code("hook", """
class LitTypo(loops.LitJob):
    def on_train_epoch_ends(self):
        raise RuntimeError("this line has run")


lit = LitTypo(job)
quiet_trainer(accelerator="cpu", max_epochs=1).fit(lit, job.make_loader())
claim("a training ends without an error, and without the misspelt hook", True)
near = difflib.get_close_matches("on_train_epoch_ends", dir(L.LightningModule), n=1)
print("did you mean", *near)
""", tags=CHECK)
md("hook-read", """
So a schedule or a metric can be missing for months. Data modules have the same trap, such as `train_loader` instead of `train_dataloader`. Exercise 2 finds such names.

### Many trainings, and one worker dies

A comparison has many trainings, and an *engine* spreads them: threads, processes, Dask, Ray or SLURM. `compare` takes any of them as `executor=`. What happens if a [worker](glossary.md#worker) is killed, such as for lack of memory? A pool of Python's processes breaks as a whole. So whoever collects the results must keep what has ended, and start the rest again:
""")
code("show-train-all", """
show_source(engines.train_all)
""")
md("killed-md", """
Each training writes a line into a log when it begins. The first one kills its own process. All results are then compared with those of one process that was never disturbed.
""")
code("killed", """
def survive_a_kill(engine):
    \"\"\"Results by seed on an engine whose first worker dies; how often it opened, and the log.\"\"\"
    with tempfile.TemporaryDirectory() as folder:
        log, died = Path(folder, "log"), engines.DieOnce(Path(folder, "died"))
        train = partial(engines.train_seed, log=log, dies=died)
        kept, opened = engines.train_all(seeds, train, partial(engines.open_engine, engine))
        begun = len(log.read_text().split())
        alone = {seed: engines.train_seed(seed, log) for seed in seeds}
    return kept, alone, opened, begun


if is_smoke:
    print("left out in smoke")
else:
    kept, alone, opened, begun = survive_a_kill("processes")
    print(f"processes: opened {opened} times, {begun} trainings begun for {len(kept)} results")
    claim("a killed process loses no result, and changes none", kept == alone)
    claim("but its pool has to be opened again", opened == 2)
""")
md("dask-md", """
Dask notices that a worker has died, starts another one, and gives it the lost training. The engine is opened once. Without Dask one line says what is missing.
""")
code("dask", """
missing = engines.describe_missing_engine("Dask")
if missing or is_smoke:
    print(missing or "left out in smoke")
else:
    kept, alone, opened, begun = survive_a_kill("Dask")
    print(f"Dask: opened {opened} time, {begun} trainings begun for {len(kept)} results")
    claim("with Dask no result is lost, and the engine stays open", kept == alone and opened == 1)
""")
md("engines-read", """
`course study` does what `train_all` does, and writes each result to a file, so that even the death of the machine costs only the trainings that were running. Three rules hold for every engine. What a training needs must be picklable, so no lambda, and no function of the notebook. Each worker uses one thread, because sums of two threads differ in the last digits. And numbers depend on the seed alone, never on the worker.
""")
md("verdict", """
## Verdict

The three predictions are answered by the study.
""", "slide")
code("verdict-code", """
lightning_us = stored.added("Lightning")
print(f"{len(same[FULL])} of {len(others)} loops end with the weights of the plain one")
print(f"{len(same[INCOMPLETE])} of {len(others)} do so if the last group is incomplete")
print(
    f"Lightning adds {lightning_us.mean:.0f} µs to a batch ({lightning_us.low:.0f} to "
    f"{lightning_us.high:.0f}), {0.1 * lightning_us.mean / stored.real_batch_ms:.1f} % of a batch "
    f"of eight photographs"
)
agree = len(same[FULL]) == len(others)
claim("study: all loops end with the plain loop's weights", agree, value=f"{len(same[FULL])} of 8")
compare_prediction(
    prediction,
    loops_that_agree=len(same[FULL]),
    loops_that_agree_with_an_odd_number=len(same[INCOMPLETE]),
    microseconds_of_lightning=lightning_us.mean,
)
""", hide=True)
md("verdict-md", "@@VERDICT@@", "slide")
md("notes-verdict", """
<details><summary>For the teacher</summary>

*A common misconception:* another library gives other results. With the same settings they agree bit by bit, so a difference has a cause that can be found. Let the students name the first line that they would compare. A second one: the library's default is the neutral choice. Ask what transformers' Trainer does if `max_grad_norm` is not given.

</details>
""", "notes")
md("recipe", """
## Recipe

* **Use it when** your team has a loop, or needs what no Trainer has, such as two optimizers: change the loop, and compare the weights with those of a loop that you trust.
* **Not when** a Trainer with your settings exists already: a loop by hand is more lines to get wrong.
* **Defaults** clip after accumulation and after `unscale_`; step the schedule per optimizer step; weigh micro-batches by their examples; [manual optimization](https://lightning.ai/docs/pytorch/stable/model/manual_optimization.html) only with several optimizers or steps of your own.
* **Cost** microseconds per batch, and the lines of the loop.
* **Trap** the learning rate falls too early → the schedule is stepped per micro-batch → step it beside the optimizer.
* **Trap** another library gives other numbers → its defaults clip, shuffle or seed → write all of them down, and compare weights after two steps.
""", "slide")
md("card-pytorch-md", """
### In plain PyTorch

The whole loop: autocast, accumulation with an incomplete last group, clipping, warm-up and cosine, and a checkpoint from which it goes on.
""", "slide")
code("card-pytorch", """
import math
from itertools import islice
from pathlib import Path

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).to(device)  # yours
loader = [(torch.randn(16, 3, 2, 2), torch.arange(16) % 3) for _ in range(7)]  # yours
epochs, accumulate, max_norm, warm_up, file = 3, 2, 1.0, 2, Path("last.pt")
total = epochs * math.ceil(len(loader) / accumulate)  # optimizer steps


def factor(step):  # of the learning rate: warm-up and cosine
    rest = (step - warm_up) / (total - warm_up)
    return (step + 1) / (warm_up + 1) if step < warm_up else (1 + math.cos(math.pi * rest)) / 2


def train_group(group):  # one optimizer step
    count = sum(len(targets) for _, targets in group)
    for inputs, targets in group:
        with torch.autocast(device, torch.bfloat16):  # fp16 would need a GradScaler, too
            loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
        (loss * len(targets) / count).backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()


optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
saved = torch.load(file, map_location=device) if file.exists() else {}
for name, part in parts.items() if saved else ():
    part.load_state_dict(saved[name])
for epoch in range(saved.get("epoch", 0), epochs):
    model.train()
    batches = iter(loader)
    while group := list(islice(batches, accumulate)):
        train_group(group)
    states = {name: part.state_dict() for name, part in parts.items()}
    torch.save(states | {"epoch": epoch + 1}, file)
""", tags=["card", "card-pytorch"])
md("card-lightning-md", """
### In Lightning

Manual optimization: groups, clipping and a one-cycle schedule, all in `training_step`.
""", "slide")
code("card-lightning", """
import math

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LitManual(L.LightningModule):
    def __init__(self, model, accumulate=2, max_norm=1.0, lr=1e-3):
        super().__init__()
        self.model, self.accumulate, self.max_norm, self.lr = model, accumulate, max_norm, lr
        self.automatic_optimization = False  # from here on the step is yours

    def training_step(self, batch, batch_idx):
        inputs, labels = batch
        optimizer, schedule = self.optimizers(), self.lr_schedulers()
        first = batch_idx - batch_idx % self.accumulate
        group = min(self.accumulate, self.trainer.num_training_batches - first)
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        self.manual_backward(loss / group)
        if batch_idx == first + group - 1:
            self.clip_gradients(optimizer, self.max_norm, "norm")
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()

    def configure_optimizers(self):
        epochs = self.trainer.max_epochs
        batches = self.trainer.estimated_stepping_batches // epochs  # nothing is accumulated there
        total = epochs * math.ceil(batches / self.accumulate)
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.lr, total_steps=total)
        return [optimizer], [schedule]


net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))  # yours
loader = DataLoader(TensorDataset(torch.randn(112, 3, 2, 2), torch.arange(112) % 3), 16)  # yours
off = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False)
L.Trainer(max_epochs=3, enable_model_summary=False, **off).fit(LitManual(net), loader)
""", tags=["card", "card-lightning"])
md("exercises", """
## Exercises

Write each function in place of the body that stands there, and run the check below it. An answer may use the lesson's imports and what you define from here on.

### ☆ Experiment: which loops agree? (10 minutes)

**Predict first:** into how many groups do the six loops fall if the last group of an epoch is incomplete? Write `group_loops(loops, job)`. `loops` has functions by name, each of which trains the job and returns the network. Return a list of groups of names, in the order in which they come up. Loops of one group agree within 10⁻⁶ in every weight and running statistic. The check uses toy loops. For the real ones call `group_loops(loops.LOOPS, jobs[INCOMPLETE])`.

<details><summary>Hint</summary><code>find_gap(one, other)</code> is the largest difference of two networks. Compare each with the first network of each group that you have so far.</details>
""", "skip")
NB=lambda id, grade: {"grade": grade, "grade_id": ("check_" if grade else "")+id, "locked": grade, "schema_version": 3, "solution": not grade, "task": False}
def exercise(id, solution, points):
    code(f"{id}", solution, "skip", nbg=NB(id, False))
    code(f"check-{id.replace('_','-')}", f"from lesson_code.loops_and_engines import checks\n\nchecks.check_{id}({id})", "skip",
         nbg={**NB(id, True), "points": points})
exercise("group_loops", '''
def group_loops(loops, job):
    """Names of loops that end with the same weights, group by group."""
    ### BEGIN SOLUTION
    models = {name: loop(job) for name, loop in loops.items()}
    groups = []
    for name in models:
        for group in groups:
            if find_gap(models[group[0]], models[name]) <= 1e-6:
                group.append(name)
                break
        else:
            groups.append([name])
    return groups
    ### END SOLUTION
''', 1)
md("answer-1", """
<details><summary>Worked answer</summary>The six loops fall into two groups. Lightning's automatic optimization and Accelerate divide the last loss by the full number of micro-batches, and the other four by the number that is there. Running statistics belong to the comparison, because two loops may agree in all weights of one epoch although one of them normalised in another mode.</details>

### ★ Exercise 1: what does each micro-batch weigh? (5 minutes)

Write `weigh_losses(sizes, accumulate)`. `sizes` are the numbers of examples in the micro-batches of one epoch, and `accumulate` of them make a group, of which the last one may be incomplete. Return a list of factors, one for each micro-batch, by which its mean loss is multiplied, so that all examples *of a group* count the same and the factors of a group add up to 1.

<details><summary>Hint</summary>A mean over a part, times the share of this part, is what the part adds to the mean over the whole.</details>
""", "skip")
exercise("weigh_losses", '''
def weigh_losses(sizes, accumulate):
    """The factor of each micro-batch's mean loss."""
    ### BEGIN SOLUTION
    factors = []
    for first in range(0, len(sizes), accumulate):
        group = sizes[first : first + accumulate]
        factors += [size / sum(group) for size in group]
    return factors
    ### END SOLUTION
''', 1)
md("answer-2", """
<details><summary>Worked answer</summary>Each factor is the micro-batch's share of its group's examples. For texts the same rule holds with tokens in place of examples, see lesson 21, and there the difference is large, because texts have different lengths.</details>

### ★★ Exercise 2: hooks that are never called (15 minutes)

Write `find_misnamed(thing, base)`. `thing` is your module, data module or callback, and `base` is the class of Lightning that it inherits from. Return the sorted names of methods that look like a hook and are none. Look at what is defined in the classes of `thing` below `base`, your own base classes included. Leave out names that `base` has, names with a leading underscore, and what is no function. A name looks like a hook if it begins with `on_`, or if a name of `base` is at least 0.8 similar by `difflib`.

<details><summary>Hint</summary><code>type(thing).__mro__</code> lists the classes from yours upwards, <code>vars(kind)</code> has what one of them defines, and <code>dir(base)</code> has all names of the library's class. <code>difflib.get_close_matches</code> has a <code>cutoff</code>.</details>
""", "skip")
exercise("find_misnamed", '''
def find_misnamed(thing, base):
    """Sorted names of methods that the library will never call."""
    ### BEGIN SOLUTION
    hooks, found = dir(base), set()
    for kind in type(thing).__mro__[: type(thing).__mro__.index(base)]:
        for name, value in vars(kind).items():
            near = name.startswith("on_") or difflib.get_close_matches(name, hooks, n=1, cutoff=0.8)
            if callable(value) and near and name not in hooks and not name.startswith("_"):
                found.add(name)
    return sorted(found)
    ### END SOLUTION
''', 2)
md("answer-3", """
<details><summary>Worked answer</summary>The check knows the typing error, the hook that a new version has removed, a singular in place of a plural, and the data module's <code>train_loader</code>. A helper such as <code>compute_loss</code> is not similar to any hook. Run it once before each long training, for the module and for every callback.</details>

### ★★★ Exercise 3: find the bugs in a loop (20 minutes)

A colleague's loop runs, and its loss falls. It has five faults.

```python
def train_repaired(job):
    model = job.make_model()
    optimizer = job.make_optimizer(model)
    schedule = job.make_schedule(optimizer)
    for _ in range(job.epochs):
        for number, (inputs, targets) in enumerate(job.make_loader(), 1):
            loss = cross_entropy(model(inputs), targets) / job.accumulate
            loss.backward()
            clip_grad_norm_(model.parameters(), job.max_norm)
            if number % job.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
            schedule.step()
        print(f"loss {measure_loss(model.eval(), job):.3f}")
    return model
```

Write `train_repaired(job)`, which trains as if every group were one batch: each example of a group counts the same. It validates after each epoch, as the loop above does. The check compares modes, steps and weights with those of whole batches, and names what differs first.

<details><summary>Hint</summary>Go through the five questions below the table of the Experiment. The size of a group, in examples, must be known before its first backward pass.</details>
""", "skip")
exercise("train_repaired", '''
def train_repaired(job):
    """The job's network, trained by groups of micro-batches."""
    ### BEGIN SOLUTION
    model = job.make_model()
    optimizer = job.make_optimizer(model)
    schedule = job.make_schedule(optimizer)
    for _ in range(job.epochs):
        model.train()
        batches = iter(job.make_loader())
        while group := list(islice(batches, job.accumulate)):
            count = sum(len(labels) for _, labels in group)
            for inputs, targets in group:
                loss = cross_entropy(model(inputs), targets) * len(targets) / count
                loss.backward()
            clip_grad_norm_(model.parameters(), max_norm=job.max_norm)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        measure_loss(model.eval(), job)
    return model
    ### END SOLUTION
''', 3)
md("answer-4", """
<details><summary>Worked answer</summary>The loop stays in eval mode after the first validation. It clips the gradient of an incomplete group. It steps the schedule for each micro-batch, so that the learning rate is at its end in the middle of the training. The last group of an odd epoch gets no step, and its gradient leaks into the next epoch. And a small micro-batch counts as much as a full one. None of the five raises an error.</details>
""", "skip")
md("deeper", """
## Going deeper

Each of these parts stands alone.

### When does a wrong divisor not matter?

When something behind it forgets the size of the gradient. Clipping resets the norm of each gradient that is above the limit. So a loss that was never divided, and the half gradient of an incomplete group, can hide there for a long time. They show on the day on which somebody raises the limit, or when the gradients become small. The table has the movement of the weights with two limits.
""")
code("hidden", """
limits = {"clips nothing": 1e6, "clips every step": 1.0}
divisors = {"loss not divided": FAULTS["loss not divided"]}
divisors["last group halved"] = OTHER_RULES["divided by the full size"]
table = {}
for words, max_norm in limits.items():
    one = replace(jobs[INCOMPLETE], max_norm=max_norm)
    table[words] = measure_faults(divisors, one, train_plain(one))["moved by"]
table = pd.DataFrame(table).T
claim("where every step is clipped, they move no weight by 1e-4", table.iloc[1].max() < 1e-4)
claim("where none is, they do", table.iloc[0].min() > 1e-4)
table.map("{:.0e}".format)
""")
md("checkpoint-md", """
### What is in each checkpoint?

Not the same. Lightning's file has the weights, the states of optimizers, schedules and callbacks, and where the loops stand. Accelerate's `save_state` writes a file for each object that was prepared, and the states of the random generators. What Fabric and a plain loop save is what you hand them. None of them has your code, so a `load_state_dict` needs the same network.
""")
code("checkpoint", """
from accelerate import Accelerator

with tempfile.TemporaryDirectory() as folder:
    trainer = quiet_trainer(accelerator="cpu", max_epochs=1)
    trainer.fit(loops.LitJob(job), job.make_loader())
    trainer.save_checkpoint(f"{folder}/one.ckpt")
    print("Lightning:", sorted(torch.load(f"{folder}/one.ckpt", weights_only=False)))
    accelerator = Accelerator(cpu=True)
    network = job.make_model()
    accelerator.prepare(network, job.make_optimizer(network), job.make_loader())
    accelerator.save_state(f"{folder}/state")
    print("Accelerate:", sorted(path.name for path in Path(folder, "state").iterdir()))
""")
md("defaults-md", """
### What is on unless you say otherwise?

The defaults below are read from the installed versions. transformers' Trainer is made for fine-tuning large language models, and its defaults fit these. For another network, write each of them down.
""")
code("defaults", """
theirs = {field.name: field.default for field in fields(transformers.TrainingArguments)}
ours = {name: x.default for name, x in inspect.signature(L.Trainer).parameters.items()}
rows = {
    "clips to a norm of": (theirs["max_grad_norm"], str(ours["gradient_clip_val"])),
    "epochs": (theirs["num_train_epochs"], "1000, by max_epochs=None"),
    "seeds the generators with": (theirs["seed"], "nothing"),
    "order of the examples": (theirs["train_sampling_strategy"], "the loader's"),
    "learning rate": (theirs["learning_rate"], "your optimizer's"),
    "saves": (f"each {theirs['save_steps']} steps", "the latest epoch"),
}
pd.DataFrame(rows, index=["transformers", "Lightning"]).T
""", hide=True)
md("fastai-md", """
### Can a plain loop use fastai's loss and schedule?

Yes, because a loss is a function and a schedule is a function of the share that is done. The cell trains a plain loop with fastai's label smoothing and its cosine schedule, and again with PyTorch's. Where fastai is not installed, the stored difference is shown.
""")
code("fastai", """
found = fastai_parts.compare_fastai()
if not found:
    print("fastai is not installed, so the numbers are stored ones: pip install fastai")
found = found or extras["fastai"]
print(f"after {found['steps']} steps the weights differ by {found['gap']:.0e} at most")
claim("fastai's loss and schedule do what PyTorch's do (1e-5)", found["gap"] <= 1e-5)
""")
md("composer-md", """
### What is left of Composer's methods?

The ideas, as functions. [Composer](https://github.com/mosaicml/composer) had a catalogue of methods in two forms, for its own trainer and as functions for any loop. Its last version, 0.32.1 of July 2025, asks for `torch<2.7.1`, so that it cannot be installed beside this course's PyTorch. Three of its methods take a few lines each. *BlurPool* blurs before a layer that skips pixels, so that a small shift of the image changes less. *Stochastic depth* leaves out the branch of a residual block at random. *Progressive resizing* begins with small images.
""")
code("composer", """
class BlurPool(nn.Module):
    \"\"\"Maximum without a stride, then a blur of 3 x 3 with the stride: (N, C, H, W) to half.\"\"\"

    def forward(self, x):
        row = torch.tensor([0.25, 0.5, 0.25], dtype=x.dtype, device=x.device)
        kernel = torch.outer(row, row).expand(x.shape[1], 1, 3, 3)
        x = nn.functional.max_pool2d(nn.functional.pad(x, (0, 1, 0, 1), mode="replicate"), 2, 1)
        return nn.functional.conv2d(x, kernel, stride=2, padding=1, groups=x.shape[1])
""")
md("composer-model-md", """
Two functions put BlurPool and stochastic depth into a network, by the names of its layers. The second one takes torchvision's layer.
""")
code("composer-model", """
def add_blur(model):
    \"\"\"In place of every maximum that halves the side.\"\"\"
    for module in list(model.modules()):
        if isinstance(getattr(module, "pool", None), nn.MaxPool2d):
            module.pool = BlurPool()
    return model


def add_stochastic_depth(model, p=0.2):
    \"\"\"The last norm of each residual branch is zero for a random part of the images.\"\"\"
    for module in model.modules():
        if hasattr(module, "bn2"):
            module.bn2 = nn.Sequential(module.bn2, torchvision.ops.StochasticDepth(p, "row"))
    return model
""")
code("resizing", """
class ProgressiveResizing:
    \"\"\"A batch transform: the side grows from half to the whole over the training.\"\"\"

    def __init__(self, total_batches):
        self.total, self.seen, self.sides = total_batches, 0, []

    def __call__(self, images, targets):
        share = min(1.0, 0.5 + self.seen / self.total)  # whole from the half of the training on
        self.seen += 1
        side = 4 * round(images.shape[-1] * share / 4)
        self.sides.append(side)
        return nn.functional.interpolate(images, (side, side), mode="bilinear"), targets
""")
md("composer-fit-md", """
They plug into the course's seams, and so into any loop. The cell trains one epoch with all three by Lightning. It checks that they act, and makes no claim that they help.
""")
code("composer-fit", """
few = load_config(PROFILE, dataset="photos", first_seed=FIRST_SEED)
few = few.replace(num_train=256, num_val=64, epochs=1, batch_size=32, progress=False)
few_data = load_data(few)
resizing = ProgressiveResizing(total_batches=8)
options = {"model_transform": lambda net: add_stochastic_depth(add_blur(net)), "save": False}
run = fit(few, few_data, seed=0, batch_transform=resizing, pretrained=False, **options)
print("sides of the images:", resizing.sides)
claim("the images grow to their full size", resizing.sides[0] < resizing.sides[-1] == 32)
layer = nn.MaxPool2d(2)
x = torch.rand(1, 3, 8, 8)
claim("the blurred maximum has the shape of the plain one", BlurPool()(x).shape == layer(x).shape)
rolled = [abs(f(x.roll(1, 3)) - f(x)).mean() for f in (BlurPool(), layer)]
claim("and changes less when the image is shifted by a pixel", rolled[0] < rolled[1])
""")
md("logger-md", """
### Which loggers work without a network?

TensorBoard writes a file and needs no server. Weights & Biases does so with `WandbLogger(offline=True)`, and `wandb sync` sends it later. MLflow's logger writes to a folder or a local database with `tracking_uri="file:./mlruns"`. All are an argument of Lightning's Trainer, and in a plain loop a call per step.
""")
code("logger", """
losses = offline_loggers.log_with_tensorboard()
print("TensorBoard's file has the losses", [f"{x:.3f}" for x in losses])
claim("each step is in TensorBoard's file", len(losses) == offline_loggers.STEPS)
if not offline_loggers.has_wandb():
    print("wandb is not installed, so its part is stored: pip install wandb")
offline = extras["wandb"]
print(f"W&B {extras['extras']['wandb']} offline: {offline['steps']} steps in {offline['files']}")
""")
md("engines-md", """
### Does the engine change the numbers?

No. A stored run of `compare` gave the same validation losses on every engine, digit by digit. submitit starts jobs of SLURM, and here its local executor, and Ray starts tasks on one or many machines. For several nodes Lightning's own launchers, torchrun (lesson 20) or `ray.train` take the place of the older package `ray_lightning`. Most of the seconds are the start of the workers, so an engine is for long trainings.
""")
code("engines-table", """
rows = {}
for name in ("this process", *engines.ENGINES):
    row = extras["engines"][name]
    killed = row.get("killed", {})
    rows[name] = {
        f"seconds for {extras['trainings']} trainings": row["seconds"],
        "same losses": row.get("equal", "–"),
        "one killed: opened": killed.get("opened", "–"),
        "one killed: same results": killed.get("equal", "–"),
    }
for name in ("submitit", "Ray"):
    print(engines.describe_missing_engine(name) or f"{name} is installed")
equal = [row["equal"] for name, row in extras["engines"].items() if "equal" in row]
claim("stored: every engine gave the same losses", all(equal))
pd.DataFrame(rows).T
""", hide=True)
md("bagua-md", """
### What became of Bagua, fairscale and FFCV?

[Bagua](https://github.com/BaguaSys/bagua) was a strategy of Lightning for decentralised and compressed all-reduce, and [fairscale](https://github.com/facebookresearch/fairscale) had the first sharding for PyTorch. Neither is maintained any more. PyTorch's own FSDP has taken fairscale's place, and DDP's communication hooks have some of Bagua's. The cell lists what the installed Lightning knows. [FFCV](https://github.com/libffcv/ffcv) is no strategy but a loader, so that it stands beside lesson 11, and DeepSpeed and FSDP in lesson 20.
""")
code("bagua", """
from lightning.pytorch.strategies import StrategyRegistry

known = StrategyRegistry.available_strategies()
print("strategies:", ", ".join(known))
gone = [name for name in ("bagua", "fairscale", "horovod", "ffcv") if name in " ".join(known)]
claim("Bagua, fairscale and Horovod are no strategies any more", not gone)
claim("FSDP and DeepSpeed are", {"fsdp", "deepspeed"} <= set(known))
""", tags=CHECK)
md("recap", """
## Recap and sources

* With the same settings all loops end with the same weights, bit by bit.
* They differ in who does what, in their defaults, and in the last group of an epoch.
* Clip once per step, after accumulation and unscaling; count optimizer steps in the schedule.
* Lightning does not call a misspelt hook, and does not say so.
* An engine needs a place where finished trainings are kept.

Sources: Lightning's [manual optimization](https://lightning.ai/docs/pytorch/stable/model/manual_optimization.html) and [Fabric](https://lightning.ai/docs/fabric/stable/) · Accelerate's [gradient accumulation](https://huggingface.co/docs/accelerate/usage_guides/gradient_accumulation) · transformers' [Trainer](https://huggingface.co/docs/transformers/main_classes/trainer) · [fastai](https://docs.fast.ai) · [skorch](https://skorch.readthedocs.io) · [Ignite](https://docs.pytorch.org/ignite/) · R. Zhang, [Making convolutional networks shift-invariant again](https://arxiv.org/abs/1904.11486), 2019 · G. Huang et al., [Deep networks with stochastic depth](https://arxiv.org/abs/1603.09382), 2016 · [Dask](https://distributed.dask.org), [Ray](https://docs.ray.io), [submitit](https://github.com/facebookincubator/submitit).

Back: [21 · Text](21_text.ipynb) · Next: [25 · Choose and judge](25_choose_and_judge.ipynb)
""", "slide")

T=json.load(open("/root/n/l23/texts.json"))
for c in cells:
    for k,v in T.items(): c.source=c.source.replace(k, v)
nb=new_notebook(cells=cells)
path="/root/n/wt_l23/notebooks/23_loops_and_engines.ipynb"
try: old=nbformat.read(path,4).metadata["course"]
except FileNotFoundError: old={"key":"","outputs":"","time_s":1}
nb.metadata["course"]={**old, "budget_s": 75, "headline":[{"claim":"study: all loops end with the plain loop's weights"}], "minutes": 90,
 "question":"Do other training loops give the same weights?","seam":"trainer","technique":"other loops and engines","timing":True}
nb.metadata["kernelspec"]={"display_name":"Python 3 (ipykernel)","language":"python","name":"python3"}
nb.metadata["language_info"]={"file_extension":".py","mimetype":"text/x-python","name":"python","pygments_lexer":"ipython3"}
with open(path,"w") as f: f.write(json.dumps(nb,indent=1,ensure_ascii=False,sort_keys=True)+"\n")
