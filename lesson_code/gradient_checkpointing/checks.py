"""Checks of the exercises of lesson 10."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError

from course_utils.checking.checking import checks_exercise, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.checking.outputs import Output
from course_utils.measure.memory import count_saved_bytes

__all__ = [
    "RunTwice",
    "check_choose_segments",
    "check_measure_batches",
    "check_recompute_mixed",
    "check_run_segments",
]

# blocks, bytes of a block, of an input: the best number; whole and other roots, ties, both ends
COSTS = {
    (16, 3, 3): 4, (48, 48, 1): 48, (10, 30, 10): 5, (7, 5, 5): 2, (31, 1, 5): 2,
    (23, 9, 2): 12, (11, 8, 1): 11, (5, 1, 100): 1, (5, 1000, 1): 5, (1, 4, 4): 1,
}  # fmt: skip
FORMATS = {None: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}  # None: no autocast

UNSEEN = "Parameters get no gradient if x wants none: make them arguments (or use_reentrant=False)."
CHANGED = "The second pass is not the first: has a loop variable moved on? Make it an argument."
# Under dropout another mask gives other gradients, whatever else is wrong.
MASK = "Dropout draws another mask in the second pass: restore the random state."
OTHER_GRADIENTS = "The gradients are not those of the plain forward pass."
DRAWN = "After the forward pass the random state is not the one that the blocks leave."
FORKED = "The backward pass changes the random state: put it back (torch.random.fork_rng)."
IGNORED = "The gradient that comes back is ignored: give it to autograd."
WITHIN = "Ask for the gradients outside of autocast."


class RunTwice(torch.autograd.Function):
    """``first(x)``, which stores only its input; ``second(x)``, recorded, in the backward pass.

    The second begins with the random state of the backward pass, which is put back afterwards.
    """

    @staticmethod
    def forward(ctx: Any, first: Callable, second: Callable, x: Tensor, *parameters: Tensor):
        ctx.second = second
        ctx.save_for_backward(x, *parameters)
        return first(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple:
        x, *parameters = ctx.saved_tensors
        x = x.detach().requires_grad_()
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            y = ctx.second(x)
        return None, None, *torch.autograd.grad(y, (x, *parameters), gradient)


@checks_exercise()
def check_measure_batches(answer: Callable) -> None:
    """``answer(config, data) -> (one, other, low, high)``: two batches over the same seeds."""
    judge_experiment(run_experiment(answer))


@checks_exercise()
def check_choose_segments(answer: Callable) -> Iterator[Output]:
    """``answer(num_blocks, block_bytes, input_bytes) -> segments`` with the least memory."""
    found = [answer(*costs) for costs in COSTS]
    otherwise = ""  # the sentence on the first wrong number
    for segments, ((n, a, b), right) in zip(found, COSTS.items(), strict=True):
        case = f"{n} blocks of {a} bytes, inputs of {b}"
        whole = isinstance(segments, Integral)
        require(whole, f"Return the number of segments, a whole number, not {segments!r}.")
        require(1 <= segments <= n, f"{case}: {segments} segments, where 1 to {n} are possible.")
        need, least = (s * b + -(-n // s) * a for s in (segments, right))
        if segments != right and not otherwise:
            otherwise = f"{case}: {segments} segments need {need} bytes, {right} need {least}."
    yield Output(found, otherwise)


class _Passes:
    """What a forward pass ``run(x)`` and a backward pass leave behind, and the blocks in the log.

    ``dtypes``: those of autocast in both. ``ones``: begin the backward pass with equal numbers.
    """

    def __init__(
        self, run: Callable, model: nn.Module, log: list, x: Tensor, dtypes: Any, ones: bool = False
    ) -> None:
        x = x.detach().requires_grad_(x.requires_grad)
        model.zero_grad()
        log.clear()
        torch.default_generator.manual_seed(1)
        first, second = (torch.autocast("cpu", dtype, dtype is not None) for dtype in dtypes)
        with first, count_saved_bytes(model) as saved:
            self.out = out = run(x)
        require(isinstance(out, Tensor), "Return the output, a tensor.")
        require(out.requires_grad, UNSEEN)
        self.saved_bytes = saved.total
        self.first, self.drawn_forward = list(log), torch.rand(1)
        weights = torch.linspace(1, 1 if ones else -1, out.numel()).view_as(out).to(out.dtype)
        try:
            with second:
                out.backward(weights)
        except CheckpointError:
            fail(CHANGED)
        self.second, self.drawn_backward = log[len(self.first) :], torch.rand(1)
        tensors = {"x": x, **dict(model.named_parameters())}
        self.missing = [name for name, t in tensors.items() if t.requires_grad and t.grad is None]
        gradients = [tensor.grad for tensor in tensors.values() if tensor.grad is not None]
        self.gradient = torch.cat([torch.zeros(0), *(gradient.flatten() for gradient in gradients)])


def _compare(found: _Passes, plain: _Passes, otherwise: str, faults: Sequence = ()) -> None:
    """Fail unless all is as in the ``plain`` passes; ``faults``: sentences with their passes."""
    same = found.out.dtype == plain.out.dtype and torch.equal(found.out, plain.out)
    require(same, "The output is not that of the plain forward pass.")
    require(found.missing != ["x"], "x wants a gradient and gets none.")
    left = ", ".join(found.missing)
    require(not left, f"Without a gradient: {left}; is each an argument of the Function?")
    require(found.gradient.shape == plain.gradient.shape, "x is changed: detach it first.")
    same = torch.equal(found.gradient, plain.gradient)
    for sentence, fault in faults:
        require(same or not torch.equal(found.gradient, fault.gradient), sentence)
    require(same, otherwise)
    require(torch.equal(found.drawn_forward, plain.drawn_forward), DRAWN)
    require(torch.equal(found.drawn_backward, plain.drawn_backward), FORKED)
    kept = f"{found.saved_bytes} bytes are kept, and {plain.saved_bytes} with nothing recomputed"
    require(2 * found.saved_bytes <= plain.saved_bytes, f"{kept}: keep inputs and nothing else.")


class _Precise(nn.Linear):
    """A linear layer in fp32 under any autocast, as a sensitive layer would be."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return super().forward(x.float())


@checks_exercise()
def check_recompute_mixed(answer: Callable) -> Iterator[Output]:
    """``answer(block, x) -> block(x)``, recomputed under the same autocast."""
    log: list[int] = []  # numbers of formats

    def note(*_: object) -> None:
        enabled = torch.is_autocast_enabled("cpu")
        log.append([*FORMATS].index(torch.get_autocast_dtype("cpu") if enabled else None))

    layers = (nn.Linear(8, 48), nn.GELU(), _Precise(48, 48), nn.Dropout(0.5), nn.Linear(48, 8))
    layers[0].register_forward_pre_hook(note)
    block = nn.Sequential(*layers)
    inputs = torch.randn(64, 8)
    cases = itertools.product((False, True), FORMATS, (True, False), (False, True))
    for dropout, dtype, wants_gradient, frozen in cases:
        x = inputs.clone().requires_grad_(wants_gradient)
        block.train(dropout)
        block[0].weight.requires_grad_(not frozen)
        plain = _Passes(block, block, log, x, (dtype, None))
        ignored = _Passes(block, block, log, x, (dtype, None), ones=True)
        within = _Passes(block, block, log, x, (dtype, dtype))
        found = _Passes(partial(answer, block), block, log, x, (dtype, None))
        runs = found.first + found.second
        formats = ", ".join(list(FORMATS.values())[number] for number in runs)
        times = f"The block runs {len(runs)} times in all ({formats})"
        yield Output(runs, f"{times}: once forward, and once again in the same format.")
        faults = ((IGNORED, ignored), (WITHIN, within))
        _compare(found, plain, MASK if dropout else OTHER_GRADIENTS, faults)


@checks_exercise()
def check_run_segments(answer: Callable) -> Iterator[Output]:
    """``answer(blocks, segments, x)``: all segments recomputed, gradients as without."""
    log: list[int] = []
    shapes = ((8, 4), (7, 3), (3, 1))  # blocks, segments
    cases = itertools.product(shapes, (0.0, 0.5), (False, True), (False, True))
    for (count, segments), dropout, wants_gradient, as_list in cases:
        x = torch.randn(16, 3, 8, 8).requires_grad_(wants_gradient)
        model = nn.Sequential()
        for number in range(count):
            first = nn.Conv2d(3, 3, 1)
            first.register_forward_pre_hook(lambda *_, n=number: log.append(n))
            model.append(nn.Sequential(first, nn.Tanh(), nn.Dropout(dropout)))
        blocks = list(model) if as_list else model
        plain = _Passes(model, model, log, x, (None, None))
        found = _Passes(partial(answer, blocks, segments), model, log, x, (None, None))
        yield Output(found.first, f"The blocks run in the order {found.first}.")
        again = f"{count} blocks, segments of {count // segments}: the backward pass runs"
        yield Output(found.second, f"{again} {found.second}, which is another order.")
        _compare(found, plain, MASK if dropout else OTHER_GRADIENTS)
