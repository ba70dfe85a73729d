"""What `torch.compile` did with a network: its graphs, its price, and whether it runs at all.

Everything but `measure_compiling` and `read_kernel` works without a C++ compiler.
"""

import math
import shutil
import statistics
import sysconfig
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.profiler import ProfilerActivity, profile

from course_utils.measure.paired import paired_difference

__all__ = [
    "Break",
    "CompiledCall",
    "Price",
    "break_even_steps",
    "compare_steps",
    "count_graphs",
    "explain_breaks",
    "find_missing_compiler",
    "inspect_call",
    "measure_compiling",
    "read_kernel",
    "warm_up_compiler",
]

REGION = "Torch-Compiled Region"  # what the profiler calls a call of compiled code
LIMIT = "recompile limit exceeded"
Batch = tuple[Tensor, Tensor]


def find_missing_compiler() -> str:
    """One sentence that says what `torch.compile` lacks here; empty where nothing is missing."""
    if not any(map(shutil.which, ("g++", "c++", "clang++", "cl"))):
        return "There is no C++ compiler here, so torch.compile is not run: install g++."
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        return "Python's headers are missing here, so torch.compile is not run: install them."
    return ""


# ---- Graph breaks and recompilations.


class Break(NamedTuple):
    """A place at which a graph ends: why, and the line of Python."""

    reason: str
    file: str
    line: int
    code: str


def explain_breaks(function: Callable[..., Any], *inputs: Any) -> list[Break]:
    """Where `torch.compile` would cut ``function(*inputs)`` into several graphs.

    It runs the function once, and compiles nothing to machine code. What was compiled before is
    forgotten, and what this call compiled as well.

    Source: `torch._dynamo.explain`.
    """
    torch._dynamo.reset()
    try:
        found = torch._dynamo.explain(function)(*inputs)
    finally:
        torch._dynamo.reset()
    breaks = []
    for reason in found.break_reasons:
        place = reason.user_stack[-1]
        text = reason.reason.partition("\n")[0]
        breaks.append(Break(text, place.filename, place.lineno or 0, place.line or ""))
    return breaks


def count_graphs(
    model: nn.Module, batches: Iterable[Tensor], dynamic: bool | None = None
) -> list[int]:
    """How many graphs there are after each batch, when ``model`` is compiled.

    The graphs run as they are, without machine code, so no compiler is needed and a graph takes
    a fraction of a second. What was compiled before is forgotten.

    Args:
        model: in the mode that it is in; gradients are not needed.
        batches: of the shapes that are asked about.
        dynamic: of `torch.compile`. None: the first shape is taken as fixed, and what differs in
            the second one as variable. False: one graph for each shape, up to eight, PyTorch's
            default, which `timm.optim` sets to a million for all. True: variable from the start.
    """
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", dynamic=dynamic)
    before, found = counters["stats"]["unique_graphs"], []
    try:
        with torch.no_grad(), torch._dynamo.config.patch(recompile_limit=8):
            for batch in batches:
                compiled(batch.clone())  # compiled code may have marked this one as variable
                found.append(counters["stats"]["unique_graphs"] - before)
    finally:
        torch._dynamo.reset()
    return found


# ---- Is it compiled code that runs?


@dataclass(frozen=True)
class CompiledCall:
    """What one call did.

    Args:
        regions: how many times compiled code was called.
        failed_frames: functions that were to be compiled in this call, and were not.
        hit_limit: whether the limit of recompilations was met, after which new shapes run eagerly.
    """

    regions: int
    failed_frames: int
    hit_limit: bool

    @property
    def fell_back(self) -> bool:
        """Whether the call, or a part of it that should have been compiled, ran eagerly."""
        return self.regions == 0 or self.failed_frames > 0

    def describe(self) -> str:
        """One sentence."""
        if self.hit_limit:
            return "It ran eagerly: there are more shapes than the limit of recompilations allows."
        if self.failed_frames:
            return f"It ran eagerly: compiling failed {self.failed_frames} times without an error."
        if self.regions == 0:
            return "It ran eagerly: no compiled code was called."
        times = "once" if self.regions == 1 else f"{self.regions} times"
        return f"Compiled code was called {times}."


def inspect_call(call: Callable[[], object]) -> CompiledCall:
    """Run ``call()`` once, and say whether compiled code ran in it.

    `torch.compile` may give way to eager execution without an error: with
    ``torch._dynamo.config.suppress_errors``, beyond the limit of recompilations, under
    ``TORCHDYNAMO_DISABLE=1`` or ``torch.compiler.set_stance("force_eager")``. The results are
    equal then, so no test of them notices it. Here the counters of Dynamo tell what was compiled
    in this call, and the profiler what ran.

    >>> compiled = torch.compile(model)                                   # doctest: +SKIP
    >>> inspect_call(lambda: compiled(images)).describe()
    'Compiled code was called once.'
    """
    before = _read_counters()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the profiler, where it does not end by itself
        with profile(activities=[ProfilerActivity.CPU]) as record:
            call()
    after = _read_counters()
    regions = sum(event.name.startswith(REGION) for event in record.events())
    total, ok, limits = (b - a for a, b in zip(before, after, strict=True))
    return CompiledCall(regions, total - ok, limits > 0)


def _read_counters() -> tuple[int, int, int]:
    """Functions that Dynamo met, those that it compiled, and how often a limit was met."""
    limits = sum(count for text, count in counters["unimplemented"].items() if LIMIT in text)
    return counters["frames"]["total"], counters["frames"]["ok"], limits


# ---- Its price: seconds once, against milliseconds in each step.


def break_even_steps(compile_s: float, eager_s: float, compiled_s: float) -> float:
    """After how many steps the time of compiling is recovered; infinite if steps are no faster.

    Args:
        compile_s: what compiling takes once, in seconds.
        eager_s, compiled_s: seconds of a step.
    """
    saved_s = eager_s - compiled_s
    return math.ceil(compile_s / saved_s) if saved_s > 0 else math.inf


def _answer(forward: Callable[[Tensor], Tensor], batch: Batch, dtype: torch.dtype) -> Batch:
    """Logits ``(B, C)`` and loss; in bf16 under autocast."""
    inputs, targets = batch
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        logits = forward(inputs)
        return logits, F.cross_entropy(logits, targets)


def _step(forward: Callable[[Tensor], Tensor], batch: Batch, dtype: torch.dtype) -> Tensor:
    """Forward and backward pass; gradients are added to what is there. Returns the logits."""
    logits, loss = _answer(forward, batch, dtype)
    loss.backward()
    return logits.detach().float()


def compare_steps(
    eager: nn.Module,
    compiled: Any,
    batch: Batch,
    dtype: torch.dtype = torch.float32,
) -> dict[str, float]:
    """Largest difference of logits and of gradients, as a share of the largest value.

    Args:
        eager: a network in train mode.
        compiled: what `torch.compile` made of another one with equal weights. The gradients of
            both are removed.
        batch: inputs and targets.
        dtype: ``torch.bfloat16``: both run under autocast.
    """
    found = []
    for model in (eager, compiled):
        model.zero_grad()
        logits = _step(model, batch, dtype)
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        found.append((logits, torch.cat([g.flatten() for g in gradients]).float()))
        model.zero_grad()
    differences = {}
    for name, one, two in zip(("logits", "gradients"), *found, strict=True):
        differences[name] = ((one - two).abs().max() / one.abs().max()).item()
    return differences


@contextmanager
def _without_caches() -> Iterator[None]:
    """Compile anew: what an earlier run compiled does not count."""
    before = torch.compiler.config.force_disable_caches
    torch.compiler.config.force_disable_caches = True
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="dynamo_pgo force disabled")
            yield
    finally:
        torch.compiler.config.force_disable_caches = before


def warm_up_compiler() -> float:
    """Compile a tiny network: seconds that the first compilation of a process takes by itself."""
    start = time.perf_counter()
    torch.compile(nn.Linear(2, 2))(torch.ones(1, 2)).sum().backward()
    return time.perf_counter() - start


def measure_compiling(
    model: nn.Module,
    batches: Sequence[Batch],
    rounds: int,
    dtype: torch.dtype = torch.float32,
    mode: str | None = None,
) -> dict[str, Any]:
    """What compiling a network for training costs and saves on this machine.

    Seconds of compiling are those of the first steps on all batches, less those of as many warm
    steps; batches of other shapes are compiled again. Then eager and compiled steps take turns, in
    which processor time is counted, and with one thread it is about that of the clock.

    The first compilation of a process takes seconds more, see `warm_up_compiler`, which comes
    first for that reason.

    Args:
        model: eager, in train mode; it is copied.
        batches: inputs and targets.
        rounds: each has one eager and one compiled step on every batch.
        dtype: ``torch.bfloat16``: under autocast.
        mode: of `torch.compile`.

    Returns:
        ``compile_s``; ``eager_ms`` and ``compiled_ms`` of a step, one for each round;
        ``graphs``; ``differences`` of `compare_steps`; ``call`` of `inspect_call` in words.
    """
    models = {"eager": deepcopy(model), "compiled": deepcopy(model)}
    batches = [(inputs.clone(), targets) for inputs, targets in batches]  # see `count_graphs`
    torch._dynamo.reset()
    compiled = torch.compile(models["compiled"], mode=mode)
    forwards: dict[str, Callable[[Tensor], Tensor]] = {
        "eager": models["eager"],
        "compiled": compiled,
    }

    def run(name: str) -> float:
        start = time.process_time()
        for batch in batches:
            _step(forwards[name], batch, dtype)
            models[name].zero_grad()
        return time.process_time() - start

    run("eager")
    graphs, start = counters["stats"]["unique_graphs"], time.perf_counter()
    with _without_caches():
        run("compiled")
    first_s = time.perf_counter() - start
    run("compiled")
    graphs = counters["stats"]["unique_graphs"] - graphs
    times: dict[str, list[float]] = {name: [] for name in forwards}
    for number in range(rounds):
        for name in list(forwards)[:: 1 if number % 2 == 0 else -1]:
            times[name].append(round(1000 * run(name) / len(batches), 3))
    warm_s = statistics.median(times["compiled"]) / 1000 * len(batches)
    models["compiled"].load_state_dict(models["eager"].state_dict())
    called = inspect_call(lambda: _answer(compiled, batches[0], dtype))
    return {
        "compile_s": round(first_s - warm_s, 2),
        "eager_ms": times["eager"],
        "compiled_ms": times["compiled"],
        "graphs": graphs,
        "differences": compare_steps(models["eager"], compiled, batches[0], dtype),
        "call": called.describe(),
    }


def read_kernel(function: Callable[..., Tensor], *inputs: Tensor) -> str:
    """The C++ of the first kernel that `torch.compile` writes for ``function(*inputs)``.

    Several operations of the function in one loop of the kernel are *fused*. Needs a compiler.
    """
    from torch._inductor.utils import run_and_get_code

    with _without_caches(), torch.no_grad():
        _, sources = run_and_get_code(torch.compile(function), *inputs)
    _, _, kernel = sources[0].partition("async_compile.cpp")
    _, _, kernel = kernel.partition("'''")
    kernel, _, _ = kernel.partition("'''")
    return kernel.strip()


class Price(NamedTuple):
    """What compiling one network in one format costs and saves, of a row that `study.py` stored.

    Args:
        kind: ``"photographs"`` or ``"texts"``.
        format: ``"fp32"`` or ``"bf16"``.
        compile_s: seconds once.
        eager_ms, compiled_ms: of a step, medians over the rounds.
        speed_up: eager over compiled, paired by rounds, with its 95 % interval.
        break_even: steps after which the seconds are recovered, of the medians; may be infinite.
    """

    kind: str
    format: str
    compile_s: float
    eager_ms: float
    compiled_ms: float
    speed_up: tuple[float, float, float]
    break_even: float

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> "Price":
        """From a row of ``content["compiling"]["rows"]``."""
        eager, compiled = np.array(row["eager_ms"]), np.array(row["compiled_ms"])
        ratio = paired_difference(np.log(compiled), np.log(eager))
        middle, low, high = np.exp([ratio.mean, ratio.low, ratio.high]).tolist()
        eager_ms, compiled_ms = float(np.median(eager)), float(np.median(compiled))
        steps = break_even_steps(row["compile_s"], eager_ms / 1000, compiled_ms / 1000)
        return cls(
            row["kind"],
            row["format"],
            row["compile_s"],
            eager_ms,
            compiled_ms,
            (middle, low, high),
            steps,
        )
