"""One line of the plain loop is changed: the faults that loops written by hand have.

Each change is a patch of the source of `train_plain`, so that the loop itself has no switch.
"""

import inspect
from types import FunctionType

from torch.amp import GradScaler

from lesson_code.loops_and_engines import plain
from lesson_code.loops_and_engines.job import Loop
from lesson_code.loops_and_engines.plain import train_plain

__all__ = ["FAULTS", "OTHER_RULES", "SCALED", "change_loop"]

BACKWARD = "(loss / group).backward()"
CLIP = "clip_grad_norm_(model.parameters(), job.max_norm)"
EVERY = "            "  # the indent of what runs for each micro-batch

# In words: pairs of what stands in the loop, and what stands there with the fault.
FAULTS: dict[str, tuple[str, ...]] = {
    "clipped before the group is complete": (
        f"                {CLIP}\n", "", BACKWARD, f"{BACKWARD}\n{EVERY}{CLIP}",
    ),
    "schedule stepped for each micro-batch": (
        "                schedule.step()\n", "", BACKWARD, f"{BACKWARD}\n{EVERY}schedule.step()",
    ),
    "loss not divided": (BACKWARD, "loss.backward()"),
    "gradients never cleared": ("                optimizer.zero_grad()\n", ""),
    "eval mode left on after a validation": (
        "        model.train()\n", "", "    return model", "        model.eval()\n    return model",
    ),
    "batches in another order": ("enumerate(loader)", "enumerate(reversed(list(loader)))"),
}  # fmt: skip

STEP = "                optimizer.step()"
SCALE = (
    "    for _ in range(job.epochs):",
    "    scaler = GradScaler('cpu')\n    for _ in range(job.epochs):",
    BACKWARD, "scaler.scale(loss / group).backward()",
    STEP, "                scaler.step(optimizer)\n                scaler.update()",
)  # fmt: skip
UNSCALED = f"scaler.unscale_(optimizer)\n                {CLIP}"
SCALED = (*SCALE, CLIP, UNSCALED)  # as it is right
FAULTS["clipped before the gradient is unscaled"] = SCALE

# What libraries do with a last group that is incomplete: the plain loop divides by its own size.
OTHER_RULES: dict[str, tuple[str, ...]] = {
    "divided by the full size": (BACKWARD, "(loss / job.accumulate).backward()"),
    "carried over to the next epoch": (
        "    for _ in range(job.epochs):", "    seen = 0\n    for _ in range(job.epochs):",
        BACKWARD, f"(loss / job.accumulate).backward()\n{EVERY}seen += 1",
        "if number == first + group - 1:", "if seen % job.accumulate == 0:",
    ),
}  # fmt: skip


def change_loop(*changes: str, loop: Loop = train_plain) -> Loop:
    """The loop with each old text, which occurs once in it, replaced by the new one after it.

    Raises:
        ValueError: an old text does not occur once.
    """
    assert isinstance(loop, FunctionType)
    source = inspect.getsource(loop)
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        if source.count(old) != 1:
            raise ValueError(f"it occurs {source.count(old)} times in the loop: {old!r}")
        source = source.replace(old, new)
    names = vars(plain) | {"GradScaler": GradScaler}
    exec(compile(source, "<changed loop>", "exec"), names)
    changed: Loop = names[loop.__name__]
    return changed
