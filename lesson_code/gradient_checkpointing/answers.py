"""Planted answers of the lesson's exercises."""

from tests.lessons.experiments import plant_experiments

CHOOSE = """
import math

def choose_segments(num_blocks, block_bytes, input_bytes):
    n, a, b = num_blocks, block_bytes, input_bytes
    return {value}
"""


MIXED = """
import torch
from contextlib import nullcontext

def recompute_mixed(block, x):
    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *parameters):
            ctx.random_state = torch.get_rng_state()
            ctx.autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
            ctx.save_for_backward(x, *parameters)
            {first}

        @staticmethod
        def backward(ctx, gradient):
            x, *parameters = ctx.saved_tensors
            x = x.detach().requires_grad_()
            enabled, dtype = ctx.autocast
            with torch.enable_grad(), {fork}:
                {restore}
                with torch.autocast("cpu", dtype, enabled=enabled):
                    {second}
            return torch.autograd.grad(y, (x, *parameters), gradient)

    return Again.apply(x, {parameters})
"""


CHECKPOINT = """
import warnings
from torch.utils.checkpoint import checkpoint

warnings.filterwarnings("ignore", "None of the inputs")  # PyTorch's own, of use_reentrant=True

def recompute_mixed(block, x):
    return checkpoint(block, x, {options})
"""


SEGMENTS = """
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

def run_segments(blocks, segments, x):
    {inner}
    size = {size}
    for start in {starts}:
        {step}
    return x
"""


# the function of the lesson that has three faults, with some of them put right
BUGGY = """
import warnings
from torch.utils.checkpoint import checkpoint

warnings.filterwarnings("ignore", "None of the inputs")

def run_segments(blocks, segments, x):
    size = len(blocks) // segments
    for start in range(0, len(blocks), size):
        def run(x{bound}):
            for block in blocks[start : start + size]:
                x = block(x)
            return x
        x = checkpoint(run, x, use_reentrant={reentrant}, preserve_rng_state={preserved})
    return x
"""


NEED = "s * b + -(-n // s) * a"


RIGHT_MIXED = {
    "first": "return block(x)",
    "fork": "torch.random.fork_rng(devices=[])",
    "restore": "torch.set_rng_state(ctx.random_state)",
    "second": "y = block(x)",
    "parameters": "*(p for p in block.parameters() if p.requires_grad)",
}


INNER = """def run(x, start):
        for block in blocks[start : start + size]:
            x = block(x)
        return x"""


RIGHT_SEGMENTS = {
    "inner": INNER,
    "size": "len(blocks) // segments",
    "starts": "range(0, len(blocks), size)",
    "step": "x = checkpoint(run, x, start, use_reentrant=False)",
}


LESSON = {"bound": "", "reentrant": True, "preserved": False}


def _choose(value: str) -> str:
    return CHOOSE.format(value=value)


def _least(among: str) -> str:
    return _choose(f"min({among}, key=lambda s: {NEED})")


def _mixed(**changed: str) -> str:
    return MIXED.format(**RIGHT_MIXED | changed)


def _checkpoint(options: str) -> str:
    return CHECKPOINT.format(options=options)


def _segments(**changed: str) -> str:
    return SEGMENTS.format(**RIGHT_SEGMENTS | changed)


def _buggy(**changed: object) -> str:
    return BUGGY.format(**LESSON | changed)


WRONG_ANSWERS = {
    "measure_batches": plant_experiments("measure_batches"),
    "choose_segments": [
        (_choose("max(round(math.sqrt(n * a / b)), 1)"), "71 segments, where 1 to 5 are possible"),
        (_choose("min(round(math.sqrt(n * a / b)), n)"), "0 segments, where 1 to 5 are"),
        (_least("range(n + 1)"), "stopped with ZeroDivisionError"),
        (_least("range(1, max(n, 2))"), "24 segments need 120 bytes, 48 need 96"),
        (_choose(f"float(min(range(1, n + 1), key=lambda s: {NEED}))"), "whole number, not 4.0"),
        (_choose(f"min({NEED} for s in range(1, n + 1))"), "24 segments, where 1 to 16 are"),
        (_choose("None"), "not None"),
    ],
    "recompute_mixed": [
        (_mixed(restore="pass"), "another mask"),
        (_mixed(fork="nullcontext()"), "The backward pass changes the random state"),
        (_mixed(parameters="").replace("(x, *parameters), gradient", "x, gradient"),
         "Parameters get no gradient if x wants none|Without a gradient: 0.weight"),
        (_mixed().replace("requires_grad_()", "clone()")
         .replace("torch.autograd.grad(y, (x, *parameters), gradient)",
                  "None, *torch.autograd.grad(y, parameters, gradient)"), "x wants a gradient"),
        (_mixed(parameters="*block.parameters()"), "differentiated Tensors does not require grad"),
        (_mixed(second="block(x); y = block(x)"), "runs 3 times in all"),
        (_mixed(first="with torch.enable_grad():\n                ctx.y = block(x)\n"
                      "            return ctx.y.detach()"), "bytes are kept"),
        ("def recompute_mixed(block, x):\n    return block(x)", "nothing is recomputed"),
        (_checkpoint("use_reentrant=True"), "Parameters get no gradient if x wants none"),
        (_checkpoint("use_reentrant=False, preserve_rng_state=False"), "another mask"),
    ],
    "run_segments": [
        (_buggy(), "Parameters get no gradient if x wants none"),
        (_buggy(reentrant=False), "has a loop variable moved on"),
        (_buggy(reentrant=False, preserved=True), "has a loop variable moved on"),
        (_buggy(reentrant=False, bound=", start=start"), "another mask"),
        (_buggy(preserved=True, bound=", start=start"), "if x wants none"),
        (_segments(starts="range(0, size * segments, size)"), r"Of 7 blocks \[6\] are not run"),
        (_segments(step="x = run(x, start)"), "nothing is recomputed"),
        (_segments(step="x = run(x, start) if start + size >= len(blocks) else "
                        "checkpoint(run, x, start, use_reentrant=False)"),
         r"\[6, 7\] are not recomputed"),
        (_segments(size="1"), "Each block is a segment of its own"),
        (_segments(size="-(-len(blocks) // segments)"), r"begin at \[0, 2, 4, 6\], not at \[0, 3"),
        (_segments(starts="reversed(range(0, len(blocks), size))"), r"in the order \[6, 7, 4, 5"),
        (_segments(inner=INNER.replace("x = block(x)",
                                       "x = checkpoint(block, x, use_reentrant=False)")),
         "more than once"),
        (_segments(inner="run = lambda x, start: blocks[start : start + size](x)"),
         "stopped with TypeError: 'list'"),
        ("from torch.utils.checkpoint import checkpoint_sequential\n"
         "def run_segments(blocks, segments, x):\n"
         "    return checkpoint_sequential(blocks, segments, x, use_reentrant=False)",
         r"\[6, 7\] are not recomputed"),
    ],
}  # fmt: skip


OTHER_RIGHT_ANSWERS = {
    "measure_batches": [
        # one training after the other, at other seeds; half the batch instead
        """
def measure_batches(config, data):
    columns = []
    for size in (config.batch_size, config.batch_size // 2):
        load = lambda data, seed: data.train_loader(seed, batch_size=size)
        runs = [fit(config, data, seed=seed, make_loader=load) for seed in (5, 6, 7)]
        columns.append([run.metrics["val_accuracy"] for run in runs])
    differences = np.subtract(columns[1], columns[0])
    half = 4.302652729911275 * differences.std(ddof=1) / np.sqrt(3)
    return *columns, differences.mean() - half, differences.mean() + half
""",
        # the data bring the batch
        """
from dataclasses import replace

def measure_batches(config, data):
    twice = replace(data, batch_size=2 * data.batch_size)
    found = compare(config, data, {"once": {}, "twice": {"data": twice}}, seeds=range(4))
    gain = found.difference("twice")
    return [found.values("once"), found.values("twice"), gain.low, gain.high]
""",
    ],
    "choose_segments": [
        # by the length of the longest segment
        """
def choose_segments(num_blocks, block_bytes, input_bytes):
    best = least = None
    for longest in range(num_blocks, 0, -1):
        segments = (num_blocks + longest - 1) // longest
        memory = segments * input_bytes + longest * block_bytes
        if least is None or memory < least:
            best, least = segments, memory
    return best
""",
        # all at once
        """
def choose_segments(num_blocks, block_bytes, input_bytes):
    segments = np.arange(1, num_blocks + 1)
    need = segments * input_bytes + np.ceil(num_blocks / segments) * block_bytes
    return segments[need.argmin()]
""",
    ],
    "recompute_mixed": [
        # detached inputs, `backward` in place of `grad`, the state of autocast as a context
        """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, block, context, x, *parameters):
        ctx.block, ctx.context, ctx.state = block, context, torch.get_rng_state()
        ctx.save_for_backward(x)
        return block(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        now = torch.get_rng_state()
        torch.set_rng_state(ctx.state)
        with torch.enable_grad(), ctx.context:
            y = ctx.block(x)
        torch.set_rng_state(now)
        y.backward(gradient)
        return (None, None, x.grad) + (None,) * (len(ctx.needs_input_grad) - 3)


def recompute_mixed(block, x):
    on, dtype = torch.is_autocast_enabled('cpu'), torch.get_autocast_dtype('cpu')
    context = torch.autocast('cpu', dtype=dtype, enabled=on)
    return Twice.apply(block, context, x, *block.parameters())
""",
        # PyTorch's checkpoint does all that is asked
        """
def recompute_mixed(block, x):
    return checkpoint(block, x, use_reentrant=False)
""",
    ],
    "run_segments": [
        # without PyTorch's checkpoint; the segments are cut beforehand
        """
class Segment(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part, x, *parameters):
        ctx.part, ctx.state = part, torch.get_rng_state()
        ctx.save_for_backward(x)
        return part(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.state)
            y = ctx.part(x)
        return None, *torch.autograd.grad(y, (x, *ctx.part.parameters()), gradient)


def run_segments(blocks, segments, x):
    size = len(blocks) // segments
    parts = [blocks[i : i + size] for i in range(0, len(blocks), size)]
    for part in (nn.Sequential(*part) for part in parts):
        x = Segment.apply(part, x, *part.parameters())
    return x
""",
        # takes off the first segment until none is left
        """
def run_segments(blocks, segments, x):
    def run(left, x):
        if not left:
            return x
        first = nn.Sequential(*left[:size])
        return run(left[size:], checkpoint(first, x, use_reentrant=False))

    size, _ = divmod(len(blocks), segments)
    return run(list(blocks), x)
""",
    ],
}
