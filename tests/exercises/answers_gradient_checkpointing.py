"""Planted answers of lesson 10: each wrong one must be rejected, in words that name its fault.

Exercise (its ``grade_id``) to a list of ``(source, part of the expected sentence)``.
"""

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
            ctx.autocast = {autocast}
            ctx.save_for_backward(x, *parameters)
            {first}

        @staticmethod
        def backward(ctx, gradient):
            x, *parameters = ctx.saved_tensors
            {x}
            enabled, dtype = ctx.autocast
            with torch.enable_grad(), {fork}:
                {restore}
                with torch.autocast("cpu", dtype, enabled={enabled}):
                    {second}
            {value}

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
    "autocast": "torch.is_autocast_enabled('cpu'), torch.get_autocast_dtype('cpu')",
    "first": "return block(x)",
    "x": "x = x.detach().requires_grad_()",
    "fork": "torch.random.fork_rng(devices=[])",
    "restore": "torch.set_rng_state(ctx.random_state)",
    "enabled": "enabled",
    "second": "y = block(x)",
    "value": "return torch.autograd.grad(y, (x, *parameters), gradient)",
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


def _least(need: str = NEED, among: str = "range(1, n + 1)") -> str:
    return _choose(f"min({among}, key=lambda s: {need})")


def _mixed(**changed: str) -> str:
    return MIXED.format(**RIGHT_MIXED | changed)


def _checkpoint(options: str) -> str:
    return CHECKPOINT.format(options=options)


def _segments(**changed: str) -> str:
    return SEGMENTS.format(**RIGHT_SEGMENTS | changed)


def _buggy(**changed: object) -> str:
    return BUGGY.format(**LESSON | changed)


WRONG_ANSWERS = {
    "choose_segments": [
        (_choose("min(max(round(math.sqrt(n)), 1), n)"), "√n is right only where a = b"),
        (_choose("min(max(round(math.sqrt(n * a / b)), 1), n)"), "rounded root is not always best"),
        (_choose("max(round(math.sqrt(n * a / b)), 1)"), "71 segments, where 1 to 5 are possible"),
        (_choose("min(round(math.sqrt(n * a / b)), n)"), "0 segments, where 1 to 5 are"),
        (_least("s * b + n // s * a"), "⌈n/s⌉ blocks, not ⌊n/s⌋"),
        (_least("s * b + n / s * a"), "⌈n/s⌉ blocks, not n/s"),
        (_least(among="range(n, 0, -1)"), "this is the largest"),
        (_least(among="[s for s in range(1, n + 1) if n % s == 0]"), "Not only divisors"),
        (_least("s * a + -(-n // s) * b"), "block and input are exchanged"),
        (_least(among="range(n + 1)"), "stopped with ZeroDivisionError"),
        (_least(among="range(1, max(n, 2))"), "24 segments need 120 bytes, 48 need 96"),
        (_choose(f"float(min(range(1, n + 1), key=lambda s: {NEED}))"), "whole number, not 4.0"),
        (_choose(f"min({NEED} for s in range(1, n + 1))"), "24 segments, where 1 to 16 are"),
        (_choose("None"), "not None"),
    ],
    "recompute_mixed": [
        (_mixed(enabled="False"), "The second pass runs in fp32, the first in bf16"),
        (_mixed(autocast="torch.is_autocast_enabled('cpu'), torch.bfloat16"),
         "The second pass runs in bf16, the first in fp16"),
        (_mixed(enabled="True"), "The second pass runs in bf16, the first in fp32"),
        (_mixed(value="with torch.autocast('cpu', dtype, enabled=enabled):\n                "
                + RIGHT_MIXED["value"]), "outside of autocast"),
        (_mixed(restore="pass"), "another mask"),
        (_mixed(fork="nullcontext()"), "The backward pass changes the random state"),
        (_mixed(parameters="").replace("(x, *parameters), gradient", "x, gradient"),
         "Parameters get no gradient if x wants none|Without a gradient: 0.weight"),
        (_mixed(parameters="*block.parameters()"), "differentiated Tensors does not require grad"),
        (_mixed(value="return torch.autograd.grad(y, (x, *parameters), torch.ones_like(y))"),
         "is ignored"),
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
         r"\[6, 7\] are not computed again"),
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
         r"\[6, 7\] are not computed again"),
    ],
}  # fmt: skip

OTHER_RIGHT_ANSWERS = {
    "choose_segments": (
        "def choose_segments(num_blocks, block_bytes, input_bytes):\n"
        "    best = least = None\n"
        "    for longest in range(num_blocks, 0, -1):\n"
        "        segments = (num_blocks + longest - 1) // longest\n"
        "        memory = segments * input_bytes + longest * block_bytes\n"
        "        if least is None or memory < least:\n"
        "            best, least = segments, memory\n"
        "    return best"
    ),
    # detached inputs, `backward` in place of `grad`, the state of autocast as a context
    "recompute_mixed": (
        "import torch\n"
        "class Twice(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, block, context, x, *parameters):\n"
        "        ctx.block, ctx.context, ctx.state = block, context, torch.get_rng_state()\n"
        "        ctx.save_for_backward(x)\n"
        "        return block(x)\n"
        "    @staticmethod\n"
        "    def backward(ctx, gradient):\n"
        "        x = ctx.saved_tensors[0].detach().requires_grad_()\n"
        "        now = torch.get_rng_state()\n"
        "        torch.set_rng_state(ctx.state)\n"
        "        with torch.enable_grad(), ctx.context:\n"
        "            y = ctx.block(x)\n"
        "        torch.set_rng_state(now)\n"
        "        y.backward(gradient)\n"
        "        return (None, None, x.grad) + (None,) * (len(ctx.needs_input_grad) - 3)\n"
        "def recompute_mixed(block, x):\n"
        "    on, dtype = torch.is_autocast_enabled('cpu'), torch.get_autocast_dtype('cpu')\n"
        "    context = torch.autocast('cpu', dtype=dtype, enabled=on)\n"
        "    return Twice.apply(block, context, x, *block.parameters())"
    ),
    # without PyTorch's checkpoint; the segments are cut beforehand
    "run_segments": (
        "import torch\n"
        "from torch import nn\n"
        "class Segment(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, part, x, *parameters):\n"
        "        ctx.part, ctx.state = part, torch.get_rng_state()\n"
        "        ctx.save_for_backward(x)\n"
        "        return part(x)\n"
        "    @staticmethod\n"
        "    def backward(ctx, gradient):\n"
        "        x = ctx.saved_tensors[0].detach().requires_grad_()\n"
        "        with torch.enable_grad(), torch.random.fork_rng(devices=[]):\n"
        "            torch.set_rng_state(ctx.state)\n"
        "            y = ctx.part(x)\n"
        "        return None, *torch.autograd.grad(y, (x, *ctx.part.parameters()), gradient)\n"
        "def run_segments(blocks, segments, x):\n"
        "    size = len(blocks) // segments\n"
        "    parts = [blocks[i : i + size] for i in range(0, len(blocks), size)]\n"
        "    for part in (nn.Sequential(*part) for part in parts):\n"
        "        x = Segment.apply(part, x, *part.parameters())\n"
        "    return x"
    ),
}
