"""Planted answers of lesson 10's exercises: see `course_tools.publish.planted`."""

from course_tools.publish.planted_experiments import plant_experiments

LEAST = "min(range(1, num_blocks + 1), key=memory)"
COST = "segments * input_bytes + math.ceil(num_blocks / segments) * block_bytes"
ROOT = "math.sqrt(num_blocks * block_bytes / input_bytes)"

APPLY = "checks.RunTwice.apply(block, run_again, x, *trained)"
FORMAT = 'torch.autocast("cpu", dtype, enabled)'
OTHER_FORMAT = "The second pass runs in {}, the first in {}: see autocast."
MASK = "Dropout draws another mask in the second pass: restore the random state."
UNSEEN = "Parameters get no gradient if x wants none: make them arguments (or use_reentrant=False)."
QUIET = "warnings.filterwarnings('ignore', 'None of the inputs')  # of use_reentrant=True\n    "
OWN = """
class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, block, autocast, x, *parameters):
        ctx.block, ctx.autocast, ctx.random_state = block, autocast, torch.get_rng_state()
        ctx.save_for_backward(x, *parameters)
        return block(x)

    @staticmethod
    def backward(ctx, gradient):
        x, *parameters = ctx.saved_tensors
        x = x.detach().requires_grad_()
        with torch.enable_grad(), torch.random.fork_rng(devices=[]), ctx.autocast:
            torch.set_rng_state(ctx.random_state)
            y = ctx.block(x)
        return None, None, *torch.autograd.grad(y, (x, *parameters), gradient)

def recompute_mixed(block, x):
    dtype, enabled = torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")
    trained = [p for p in block.parameters() if p.requires_grad]
    return Again.apply(block, torch.autocast("cpu", dtype, enabled), x, *trained)
"""

CALL = "checkpoint(run, x, start, use_reentrant=False)"
FREE = ("run(x, start)", "run(x)", "x, start, use", "x, use")  # start is looked up when called
NO_MASK = ("use_reentrant=False", "use_reentrant=False, preserve_rng_state=False")
CHANGED = "The second pass is not the first: has a loop variable moved on? Make it an argument."
LAST = "Of 8 blocks [6, 7] are not recomputed: all should be."

WRONG = {
    "measure_batches": plant_experiments("measure_batches"),
    "choose_segments": [
        (LEAST, "min(range(num_blocks, 0, -1), key=memory)",
         "Of equal ones this is the largest: return the smallest."),
        (LEAST, "min((s for s in range(1, num_blocks + 1) if num_blocks % s == 0), key=memory)",
         "Not only divisors: the longest segment counts."),
        ("math.ceil(num_blocks / segments)", "num_blocks // segments",
         "The longest segment has ⌈n/s⌉ blocks, not ⌊n/s⌋."),
        ("math.ceil(num_blocks / segments)", "num_blocks / segments",
         "The longest segment has ⌈n/s⌉ blocks, not n/s."),
        (COST, "segments * block_bytes + math.ceil(num_blocks / segments) * input_bytes",
         "The bytes of block and input are swapped."),
        (COST, "abs(segments - math.sqrt(num_blocks))",
         "√n is right only where a = b: take √(n·a/b)."),
        (COST, f"abs(segments - {ROOT})", "The rounded root is not always best: try all."),
        (LEAST, f"max(round({ROOT}), 1)", "71 segments, where 1 to 5 are possible"),
        (LEAST, f"min(round({ROOT}), num_blocks)", "0 segments, where 1 to 5 are"),
        ("range(1, num", "range(num", "stopped with ZeroDivisionError"),
        (LEAST, "min(range(1, max(num_blocks, 2)), key=memory)",
         "24 segments need 120 bytes, 48 need 96"),
        (LEAST, f"float({LEAST})", "whole number, not 4.0"),
        (LEAST, "min(map(memory, range(1, num_blocks + 1)))", "24 segments, where 1 to 16 are"),
    ],
    "recompute_mixed": [
        ("dtype, enabled)", "dtype, False)", OTHER_FORMAT.format("fp32", "bf16")),
        ("dtype, enabled)", "dtype, enabled and dtype == torch.bfloat16)",
         OTHER_FORMAT.format("fp32", "fp16")),
        (FORMAT, "torch.autocast('cpu')", OTHER_FORMAT.format("bf16", "fp32")),
        ("dtype, enabled)", "torch.float16)", OTHER_FORMAT.format("fp16", "fp32")),
        (FORMAT, "torch.autocast('cpu', enabled=enabled)", OTHER_FORMAT.format("bf16", "fp16")),
        ("dtype, enabled)", "torch.float16, enabled)", OTHER_FORMAT.format("fp16", "bf16")),
        (OWN.replace("), gradient", "), torch.ones_like(gradient)"),
         "The gradient that comes back is ignored: give it to autograd."),
        (OWN.replace("        return None", "            return None"),
         "Ask for the gradients outside of autocast."),
        ("        torch.set_rng_state(random_state)\n", "", MASK),
        (OWN.replace(", torch.random.fork_rng(devices=[])", ""),
         "The backward pass changes the random state: put it back (torch.random.fork_rng)."),
        (", *trained", "", "Without a gradient: 0.weight"),
        (OWN.replace("None, *torch.autograd.grad(y, (x, *parameters)",
                     "None, None, *torch.autograd.grad(y, parameters"),
         "x wants a gradient and gets none."),
        (" if p.requires_grad", "", "differentiated Tensors does not require grad"),
        ("            return", "            block(x)\n            return", "runs 3 times in all"),
        (OWN.replace("return block(x)", "with torch.enable_grad():\n            ctx.y = block(x)\n"
                     "        return ctx.y.detach()"), "bytes are kept"),
        (APPLY, "block(x)", "The block does not run in the backward pass: nothing is recomputed."),
        ("random_state = ", QUIET + "random_state = ",
         APPLY, "checkpoint(block, x, use_reentrant=True)", UNSEEN),
        ("return block(x)", "return 2 * block(x)", "not those of the plain forward pass"),
        (f"return {APPLY}", f"return 2 * {APPLY}", "The output is not that of the plain forward"),
        (f"return {APPLY}", f"out = {APPLY}\n    torch.rand(1)\n    return out",
         "After the forward pass the random state"),
        ("    random_state", "    x.requires_grad_()\n    random_state", "x is changed"),
        (f"return {APPLY}", APPLY, "Return the output, a tensor"),
    ],
    "run_segments": [
        (*FREE, *NO_MASK, "=False, p", "=True, p", "size =", QUIET + "size =", UNSEEN),
        (*FREE, CHANGED),
        (*FREE, *NO_MASK, CHANGED),
        (*NO_MASK, MASK),
        ("=False", "=True", "size =", QUIET + "size =", UNSEEN),
        ("(0, len(blocks), size)", "(0, size * segments, size)",
         "Of 7 blocks [6] are not run: the last segment may be shorter."),
        (CALL, "run(x, start)", "No block runs in the backward pass: nothing is recomputed."),
        (CALL, f"run(x, start) if start + size >= len(blocks) else {CALL}", LAST),
        ("len(blocks) // segments", "1", "Each block is a segment of its own: keep fewer."),
        ("len(blocks) // segments", "-(-len(blocks) // segments)",
         "Segments of 2 of 7 blocks begin at [0, 2, 4, 6], not at [0, 3, 6]."),
        ("range(0, len(blocks), size)", "reversed(range(0, len(blocks), size))",
         "in the order [6, 7, 4, 5"),
        ("= block(x)", "= checkpoint(block, x, use_reentrant=False)",
         "Blocks are recomputed more than once."),
        ("        for block in blocks[start : start + size]:\n            x = block(x)\n",
         "        x = blocks[start : start + size](x)\n", "stopped with TypeError: 'list'"),
        (CALL, "checkpoint_sequential(blocks, segments, x, use_reentrant=False)\n        break",
         LAST),
        ("len(blocks) // segments", "len(blocks)", "which is another order"),
    ],
}  # fmt: skip

RIGHT = {
    "measure_batches": [
        ("4 * config.batch_size", "2 * data.batch_size", "seeds=(0, 1, 2)", "seeds=range(4)"),
        ("seeds=(0, 1, 2)", "seeds=(5, 6, 7)",
         "return measured.values(\"batch\"), measured.values(\"4 × batch\"), gain.low, gain.high",
         "one, other = np.array([measured.values(arm) for arm in arms])\n"
         "    half = 4.302652729911275 * (other - one).std(ddof=1) / np.sqrt(3)\n"
         "    return one, other, (other - one).mean() - half, (other - one).mean() + half"),
    ],
    "choose_segments": [
        # by the length of the longest segment
        (LEAST, "min((-(-num_blocks // n) for n in range(num_blocks, 0, -1)), key=memory)"),
        ("math.ceil", "np.ceil", LEAST, "1 + memory(np.arange(1, num_blocks + 1)).argmin()"),
    ],
    "recompute_mixed": [OWN, (APPLY, "checkpoint(block, x, use_reentrant=False)")],
    "run_segments": [
        (CALL, "checkpoint(nn.Sequential(*blocks[start : start + size]), x, use_reentrant=False)"),
        # without PyTorch's checkpoint
        ("    size =", "    def recompute(part, x):\n        state = torch.get_rng_state()\n"
         "        again = lambda x: torch.set_rng_state(state) or part(x)\n"
         "        return checks.RunTwice.apply(part, again, x, *part.parameters())\n\n    size =",
         CALL, "recompute(nn.Sequential(*blocks[start : start + size]), x)"),
    ],
}  # fmt: skip
