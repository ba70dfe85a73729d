"""How often the ranks communicate, and when each all-reduce of a backward pass begins and ends."""

from contextlib import nullcontext
from importlib import import_module
from time import perf_counter as clock
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from course_utils.ranks import DEVICE
from lesson_code.ddp.small import build, make_batch

Future = torch.futures.Future[torch.Tensor]  # as DDP asks of a comm hook


def count_call(calls: list[int], bucket: dist.GradBucket) -> Future:
    """A comm hook: it takes the place of DDP's all-reduce, notes the call, and does the same."""
    calls.append(bucket.buffer().numel())
    everybody: Any = None  # the group of all ranks
    return allreduce_hook(everybody, bucket)


def count_all_reduces(accumulated: int) -> int:
    """Of six batches, where each optimizer step has so many of them."""
    x, y = make_batch()
    calls: list[int] = []
    model = DistributedDataParallel(build())
    model.register_comm_hook(calls, count_call)
    for batch in range(6):
        is_last = batch % accumulated == accumulated - 1
        with nullcontext() if is_last else model.no_sync():
            (F.cross_entropy(model(x), y) / accumulated).backward()
    return len(calls)


SPANS: list[tuple[float, float]] = []  # begin and end of each all-reduce


def note(state: Any, bucket: dist.GradBucket) -> Future:
    def end(future: Future) -> torch.Tensor:  # when the all-reduce is over
        SPANS.append((start, clock()))
        return future.value()[0]

    start = clock()
    return allreduce_hook(state, bucket).then(end)


def wrap(mb: int) -> nn.Module:
    """Twelve layers with 7 MB of gradients, in DDP with buckets of so many MB; 0: in OurDDP."""
    net = nn.Sequential(*(nn.Linear(384, 384, device=DEVICE) for _ in range(12)))
    if mb:
        model = DistributedDataParallel(net, bucket_cap_mb=mb)
        model.register_comm_hook(None, note)
        return model
    ours = import_module("ours").OurDDP  # a file of the notebook

    class Timed(ours):  # type: ignore[misc, valid-type]
        @staticmethod
        def average(parameter: nn.Parameter) -> None:
            start = clock()
            ours.average(parameter)
            SPANS.append((start, clock()))

    return Timed(net)


def measure(rank: int, size: int) -> dict[str, Any]:
    found: dict[str, Any] = {f"all-reduces, k = {k}": count_all_reduces(k) for k in (1, 3)}
    timeline = {}
    for name, mb in {"ours": 0, "buckets of 1 MB": 1, "one bucket": 100}.items():
        model = wrap(mb)
        for _ in range(4):  # the last one counts
            loss = model(torch.randn(128, 384, device=DEVICE)).square().mean()
            SPANS.clear()
            begin = clock()
            loss.backward()
            passed = begin, clock()
        timeline[name] = [(start - begin, end - begin) for start, end in (passed, *SPANS)]
    return found | {"timeline": timeline}
