# %% [markdown]
# # 09 · DDP: two processes, one network
#
# A second GPU, or a second machine, and the training should take half the time. Data parallel training is how: every process has the whole network and a part of each batch, and they agree on one gradient. This lesson writes that in fifteen lines, starts it as real processes, proves that they train the network that one process would, kills one of them in the middle, and measures what two cores can and cannot gain.
#
# Minutes: 75 · Prerequisites: [04 · Warm-up and cosine](04_warmup_cosine.ipynb), [08 · Gradient accumulation](08_gradient_accumulation.ipynb) · Seam: *trainer*, `devices`, `strategy` · Budget: 120 s on two CPU cores in `quick`

# %% [markdown]
# ## Question
#
# Two processes on the two cores of a laptop, each with half of every batch. **Do they train the network that one process would have trained, and how many more images a second do they see?** Commit to an answer:
#
# <details><summary>A. The same network, and nearly twice as fast</summary>Two workers, half the work each.</details>
# <details><summary>B. The same network, and hardly faster</summary>PyTorch already uses both cores, and the processes have to talk to each other.</details>
# <details><summary>C. Another network</summary>Two gradients of half a batch are not the gradient of the whole one.</details>

# %% [markdown]
# ## Set-up

# %% tags=["parameters"]
PROFILE = ""  # smoke, quick or full
DATASET = ""  # shapes, cifar10 or a folder of images
FIRST_SEED = None  # first of the paired seeds, an integer
PROCESSES = 2  # on this machine

# %% tags=["imports"]
import itertools
import json
import os
import tempfile
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from torch.optim import SGD
from torch.utils.data import DistributedSampler

from course_utils import plots
from course_utils.claims import claim
from course_utils.data import load_data
from course_utils.lit_classifier import LitClassifier
from course_utils.models import create_model
from course_utils.processes import torchrun
from course_utils.profiles import load_config
from course_utils.schedules import warmup_cosine
from course_utils.training import quiet_trainer

# %%
plots.use_style()
config = load_config(PROFILE, dataset=DATASET, first_seed=FIRST_SEED)
os.environ.setdefault("COURSE_RUNS_DIR", str(Path("runs").resolve()))
os.chdir(tempfile.mkdtemp())  # the scripts of this lesson get a folder of their own
print(config.describe())

# %% [markdown]
# ## Idea
#
# ### Two numbers
#
# Process 0 has the gradient 3, process 1 the gradient 5. An *all-reduce* leaves their sum, 8, in *both*; divided by the number of processes that is 4, the mean. If both had equally many images, the mean of the two means is the mean over all of them (lesson 08): the gradient of the whole batch.
#
# The processes are real. `torchrun` starts them, tells each its *rank* (0 or 1) and the *world size* (2) in environment variables, and watches over them. What all scripts of this lesson share:

# %%
%%writefile common.py
"""A small network in double precision, one batch, and what to do with them."""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD


def build(norm=nn.Identity):
    return nn.Sequential(nn.Linear(8, 16), norm(16), nn.ReLU(), nn.Linear(16, 3)).double()


def make_batch(count=12):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 8, generator=generator, dtype=torch.float64)
    return x, torch.randint(3, (count,), generator=generator)


def train(model, x, y, steps=3):
    """The weights after a few steps of SGD."""
    optimizer = SGD(model.parameters(), lr=0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def leave():
    """End this process when all have come here; taking gloo's threads down aborts now and then."""
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)

# %% [markdown]
# And the script that runs parts of it in every process; rank 0 writes down what was found:

# %%
%%writefile prove.py
"""Run `prove(rank, size)` of the named modules in every process; rank 0 stores the results."""

import sys
from importlib import import_module

import torch
import torch.distributed as dist
from common import leave

if __name__ == "__main__":
    dist.init_process_group("gloo")
    found = {}
    for name in sys.argv[1:]:
        found |= import_module(name).prove(dist.get_rank(), dist.get_world_size())
    if dist.get_rank() == 0:
        torch.save(found, "found.pt")
    leave()

# %% [markdown]
# The two numbers, in two processes (we write all parts first and then start the processes once, which takes seconds each time):

# %%
%%writefile toy.py
import torch
import torch.distributed as dist


def prove(rank, size):
    number = torch.tensor([3.0, 5.0])[rank]
    print(f"I have {number.item():.0f}")
    dist.all_reduce(number)
    print(f"together we have {number.item():.0f}, the mean is {number.item() / size:.0f}")
    return {"sum": number.item()}

# %% [markdown]
# ## From scratch
#
# Data parallel training needs two things: the same weights at the start, and the mean gradient in every process. The first is a broadcast. The second is an all-reduce of each gradient as soon as it is there, by a hook:

# %%
%%writefile ours.py
"""Data parallel training, written by hand."""

import torch.distributed as dist
from torch import nn


class OurDDP(nn.Module):
    """The same weights in every process, and the mean of their gradients."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in module.state_dict().values():  # parameters and buffers
            dist.broadcast(tensor, src=0)
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.average)

    @staticmethod
    def average(parameter):
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()

    def forward(self, *inputs):
        return self.module(*inputs)

# %% [markdown]
# ## Proof
#
# **One: ours, PyTorch's, and one process with the whole batch** end with the same weights, although every rank starts from other ones: rank 0's win.

# %%
%%writefile wrappers.py
import torch
from common import build, make_batch, train
from ours import OurDDP
from torch.nn.parallel import DistributedDataParallel


def prove(rank, size):
    (x, y), found = make_batch(), {}
    for name, wrap in {"ours": OurDDP, "PyTorch's": DistributedDataParallel}.items():
        torch.manual_seed(rank)  # other weights in every process
        found[name] = train(wrap(build()), x[rank::size], y[rank::size])
    torch.manual_seed(0)
    return found | {"whole batch": train(build(), x, y)}

# %% [markdown]
# **Two: the shards.** `DistributedSampler` gives each rank its own images. Nine images and two ranks: it pads with an image that is there already, so that all ranks take equally many steps. And it shuffles by seed *and epoch*, which it must be told:

# %% tags=["nbval-check-output"]
def shard(rank, epoch=None, shuffle=True):
    sampler = DistributedSampler(range(9), num_replicas=2, rank=rank, shuffle=shuffle)
    if epoch is not None:
        sampler.set_epoch(epoch)
    return list(sampler)


first, second = shard(0, 0), shard(1, 0)
print("rank 0:", first, " rank 1:", second)
claim("together they see all nine, one of them twice", sorted(set(first + second)) == list(range(9)) and len(first + second) == 10)
claim("without set_epoch every epoch has the same order", shard(0) == shard(0) == shard(0, 0))
claim("with it another one", shard(0, 1) != shard(0, 0))

# %% [markdown]
# **Three: what is not shared.** BatchNorm's statistics are those of a rank's own images. Averaged metrics are wrong where ranks have unequally many images. And gradients that accumulate need to be exchanged once a window only:

# %%
%%writefile norms.py
import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import build, make_batch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def prove(rank, size):
    (x, y), means = make_batch(), [torch.empty(16, dtype=torch.float64) for _ in range(size)]
    torch.manual_seed(0)
    model = DistributedDataParallel(build(nn.BatchNorm1d))
    F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
    dist.all_gather(means, model.module[1].running_mean)
    whole = build(nn.BatchNorm1d)
    whole.load_state_dict(model.module.state_dict() | {"1.running_mean": torch.zeros(16)})
    whole(x)
    return {"means": torch.stack(means), "mean of the whole batch": whole[1].running_mean}

# %%
%%writefile metrics.py
import torch
import torch.distributed as dist


def prove(rank, size):
    hits = torch.tensor([[1.0, 1, 1, 0, 0, 0, 0, 0], [1.0, 1]][rank])
    print(f"{hits.sum():.0f} of {len(hits)} right")
    mean, counts = hits.mean(), torch.tensor([hits.sum(), len(hits)])
    dist.all_reduce(mean)
    dist.all_reduce(counts)
    return {"mean of ranks": (mean / size).item(), "counts": (counts[0] / counts[1]).item()}

# %%
%%writefile windows.py
from contextlib import nullcontext

import torch.nn.functional as F
from common import build, make_batch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel


def prove(rank, size):
    (x, y), found = make_batch(), {}
    for window in (1, 3):
        calls, model = [], DistributedDataParallel(build())
        model.register_comm_hook(None, lambda state, bucket: calls.append(1) or allreduce_hook(state, bucket))
        for number in range(6):
            with nullcontext() if (number + 1) % window == 0 else model.no_sync():
                (F.cross_entropy(model(x[rank::size]), y[rank::size]) / window).backward()
        found[f"all-reduces, window {window}"] = len(calls)
    return found

# %% [markdown]
# **Four: who waits for whom.** Our hook stops the backward pass until each single gradient has been exchanged. PyTorch's wrapper collects gradients in *buckets* and exchanges a full one while the backward pass goes on. We note when each exchange begins and ends:

# %%
%%writefile timeline.py
import time

import torch
from ours import OurDDP
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

spans, clock = [], time.perf_counter


class Timed(OurDDP):
    @staticmethod
    def average(parameter):
        start = clock()
        OurDDP.average(parameter)
        spans.append((start, clock(), parameter.numel()))


def note(state, bucket):
    start, numel = clock(), bucket.buffer().numel()
    done = allreduce_hook(state, bucket)
    return done.then(lambda f: spans.append((start, clock(), numel)) or f.value()[0])


def prove(rank, size):
    found, x = {}, torch.randn(256, 384)
    for name, wrap in {"ours": Timed, "DDP": DistributedDataParallel}.items():
        model = wrap(nn.Sequential(*(nn.Linear(384, 384) for _ in range(12))))
        if name == "DDP":
            model.register_comm_hook(None, note)
        for _ in range(4):  # the last one counts
            loss = model(x).square().mean()
            spans.clear()
            start = clock()
            loss.backward()
        found[f"timeline {name}"] = [(a - start, b - start, n) for a, b, n in spans], clock() - start
    return found

# %% [markdown]
# **Five: when the model does not fit**, each process can hold a part of every parameter, gather the others just before a layer runs, and let go of them again: *fully sharded* data parallel, FSDP. The gradients must be the same:

# %%
%%writefile fsdp.py
import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import build, make_batch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def prove(rank, size):
    (x, y), mesh = make_batch(), init_device_mesh("cpu", (size,))
    torch.manual_seed(0)
    whole = build()
    F.cross_entropy(whole(x), y).backward()
    torch.manual_seed(0)
    model = fully_shard(build(), mesh=mesh)
    F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
    pairs = zip(model.parameters(), whole.parameters(), strict=True)
    gaps = [(p.grad.full_tensor() - q.grad).abs().max() for p, q in pairs]
    held = sum(p.to_local().numel() for p in model.parameters())
    total = sum(p.numel() for p in whole.parameters())
    print(f"I hold {held} of {total} parameters")
    return {"gap": max(gaps).item(), "held": held / total}

# %% [markdown]
# Now all of it in two processes; what they print comes rank by rank:

# %% tags=["nbval-check-output"]
parts = ["toy", "wrappers", "norms", "metrics", "windows", "timeline", "fsdp"]
torchrun("prove.py", *parts, processes=PROCESSES).show()
found = torch.load("found.pt")
claim("the sum of 3 and 5 is 8 in both", found["sum"] == 8)
claim("ours is PyTorch's, bit for bit", torch.equal(found["ours"], found["PyTorch's"]))
gap = (found["ours"] - found["whole batch"]).abs().max()
claim("and one process with the whole batch (tolerance 1e-12)", gap < 1e-12)
claim("FSDP: the gradients are those of one process (tolerance 1e-12)", found["gap"] < 1e-12)
claim("each process holds about half of the parameters (40 to 60 %)", 0.4 < found["held"] < 0.6)

# %% [markdown]
# What is not shared, and what is shared too often:

# %% tags=["nbval-check-output"]
means = found["means"]
claim("the ranks' running means differ (by more than 1e-3)", (means[0] - means[1]).abs().max() > 1e-3)
gap = (means.mean(dim=0) - found["mean of the whole batch"]).abs().max()
claim("their mean is that of the whole batch (tolerance 1e-12)", gap < 1e-12)
claim("5 of 10 are right; the mean of the ranks says 0.69", round(found["mean of ranks"], 2) == 0.69)
claim("counts added over the ranks say 0.5", found["counts"] == 0.5)
calls = [found[f"all-reduces, window {window}"] for window in (1, 3)]
claim("six batches: six all-reduces; in windows of three with no_sync: two", calls == [6, 2])

# %% [markdown]
# And the exchanges in time, of rank 0, each bar as long as one takes:

# %%
figure, axis = plt.subplots(figsize=(8, 2.4))
for row, name in enumerate(("ours", "DDP")):
    bars, end = found[f"timeline {name}"]
    axis.barh(row, 1000 * end, 0.7, color=plots.GREY, alpha=0.2)
    for start, stop, _ in bars:
        axis.barh(row, 1000 * (stop - start), 0.5, left=1000 * start, color=plots.COLOURS[row], ec="white")
axis.set_yticks([0, 1], [f"{name}: {len(found[f'timeline {name}'][0])} exchanges" for name in ("ours", "DDP")])
axis.set(xlabel="time since the backward pass began (ms)", ylabel="wrapper", title="A bucket travels while the backward pass goes on (grey)")
plt.show()

# %% [markdown]
# The running means of the ranks are those of their own images; their mean would be that of the whole batch (of equal shares), which is what a synchronised BatchNorm computes in its forward pass: `nn.SyncBatchNorm.convert_sync_batchnorm(model)`, on GPUs only. Metrics must add up counts, not average averages: torchmetrics does, and so does Lightning's `log(…, sync_dist=True)` only if all ranks have equally many.
#
# ## The library way
#
# **Lightning** in a notebook forks: `Trainer(accelerator="cpu", devices=2, strategy="ddp_notebook")`; in a script it is `strategy="ddp"`. It puts the `DistributedSampler` in and calls `set_epoch`. Precision and accumulation are arguments as ever, and the total number of steps is derived from all of them, so schedules fit:

# %%
class StepCounter(LitClassifier):
    """Log how many steps were planned, how many taken, by how many processes."""

    def on_train_epoch_end(self):
        trainer = self.trainer
        counts = {"planned": trainer.estimated_stepping_batches, "taken": trainer.global_step}
        counts["processes"] = trainer.world_size
        self.log_dict({name: float(count) for name, count in counts.items()}, sync_dist=True)


def count_steps_of(**options):
    """One epoch on few images under these options of the trainer."""
    lit = StepCounter(create_model(config.model, data.num_classes), data.num_classes, optimizer=partial(SGD, lr=0.1), schedule=partial(warmup_cosine, warmup_steps=1))
    trainer = quiet_trainer(max_epochs=1, accelerator="cpu", **options)
    trainer.fit(lit, few.train_loader(seed=0), few.eval_loader())
    return {name: int(trainer.callback_metrics[name]) for name in ("processes", "planned", "taken")}


# %%
data = load_data(config)
few = data.take_train(8 * config.batch_size)
two = {"devices": 2, "strategy": "ddp_notebook"}
ways = {"one process": {}, "two": two, "two, bf16, accumulation over 2": two | {"precision": "bf16-mixed", "accumulate_grad_batches": 2}}
steps = pd.DataFrame({way: count_steps_of(**options) for way, options in ways.items()}).T
claim("as many steps are taken as were planned, each time", (steps["planned"] == steps["taken"]).all())
steps

# %% [markdown]
# Values that a forked process sets stay in it: what comes back are weights and logged metrics. A *learning rate* is to be chosen for the global batch, which is twice as large now (lesson 08).
#
# **Two machines** run the same script, each with `torchrun` of its own, which meet at a *rendezvous*:
#
# ```
# torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-id job7 --rdzv-endpoint first-machine:29500 train.py
# ```
#
# and under Slurm, `srun` starts one `torchrun` a machine:
#
# ```
# #!/bin/bash
# #SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8
# first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# srun torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$first:29500" train.py
# ```
#
# Here both agents run on this machine, which makes no difference to them. The script stores a checkpoint every five steps, and one of its ranks can be told to die:

# %%
%%writefile checkpoints.py
from pathlib import Path

import torch

PATH = Path("checkpoint.pt")


def save(step, model, optimizer):
    """Write beside, then rename: a process that dies while writing leaves the old one."""
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, PATH.with_suffix(".part"))
    PATH.with_suffix(".part").replace(PATH)


def resume(model, optimizer):
    """The step to go on from: 0, or that of the checkpoint, whose state it loads."""
    if not PATH.exists():
        return 0
    state = torch.load(PATH, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]

# %%
%%writefile job.py
import os, signal, sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F
from checkpoints import resume, save
from common import build, leave, make_batch
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, size, die_at = dist.get_rank(), dist.get_world_size(), int(sys.argv[1])
torch.manual_seed(0)
model = DistributedDataParallel(build())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
start, (x, y) = resume(model, optimizer), make_batch()
print(f"from step {start}", flush=True)
for step in range(start, 20):
    if step == die_at and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
    optimizer.step()
    if rank == 0 and step % 5 == 4:
        save(step + 1, model, optimizer)
leave()

# %% tags=["nbval-check-output"]
def run_job(die_at=-1, **options):
    """The last checkpoint's weights, of a job that starts without one."""
    Path("checkpoint.pt").unlink(missing_ok=True)
    torchrun("job.py", die_at, **options).show()
    return torch.cat([x.flatten() for x in torch.load("checkpoint.pt")["model"].values()])


two_nodes = run_job(processes=1, nodes=2)
restarted = run_job(die_at=12, max_restarts=3)
claim("a rank killed at step 12, restarted from step 10: the same weights, bit for bit", torch.equal(two_nodes, restarted))

# %% [markdown]
# ## Experiment
#
# ### Images a second

# %%
%%writefile speed.py
import json, sys, time
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import leave
from course_utils.models import create_model
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, size, found = dist.get_rank(), dist.get_world_size(), {}
for name in ("resnet_tiny", "resnet18"):
    model = DistributedDataParallel(create_model(name, 10))
    for batch in (16, 32):
        x, y = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
        for talk in (True, False):
            with nullcontext() if talk else model.no_sync():
                times = []
                for _ in range(6):
                    dist.barrier()
                    start = time.perf_counter()
                    F.cross_entropy(model(x), y).backward()
                    times.append(time.perf_counter() - start)
            found[f"{name} {batch} {talk}"] = sorted(times[1:])[2]
if rank == 0:
    print(json.dumps(found))
leave()

# %%
def measure_speed(processes):
    """Images a second and the share of a step spent communicating, by model and local batch."""
    found, rows = json.loads(torchrun("speed.py", processes=processes).outputs[0]), {}
    for name, batch in itertools.product(("resnet_tiny", "resnet18"), (16, 32)):
        with_talk, without = (found[f"{name} {batch} {talk}"] for talk in (True, False))
        rows[name, processes, batch] = {"global batch": batch * processes, "images/s": processes * batch / with_talk, "communicating (%)": 100 * max(0, 1 - without / with_talk)}
    return rows


pd.DataFrame(measure_speed(1) | measure_speed(2)).T.rename_axis(["model", "processes", "local batch"]).round(0)

