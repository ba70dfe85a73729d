"""Checks of the exercises of lesson 10."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError

from course_utils.checking.checking import Faults, checks_exercise, diagnose, fail, require
from course_utils.checking.experiment import judge_experiment, run_experiment
from course_utils.measure.memory import count_saved_bytes

__all__ = [
    "RunTwice",
    "check_choose_segments",
    "check_measure_batches",
    "check_recompute_mixed",
    "check_run_segments",
]

# blocks, bytes of a block, of an input: whole and other roots, ties, both ends
COSTS = (
    (16, 3, 3),
    (48, 48, 1),
    (10, 30, 10),
    (7, 5, 5),
    (31, 1, 5),
    (23, 9, 2),
    (11, 8, 1),
    (5, 1, 100),
    (5, 1000, 1),
    (1, 4, 4),
)
FORMATS = {None: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}  # None: autocast is off
SAME_FORMATS = {dtype: dtype for dtype in FORMATS}

UNSEEN = "Parameters get no gradient if x wants none: make them arguments (or use_reentrant=False)."
CHANGED = "The second pass is not the first: has a loop variable moved on? Make it an argument."
# Under dropout another mask gives other gradients, whatever else is wrong.
MASK = "Dropout draws another mask in the second pass: restore the random state."
OTHER_GRADIENTS = "The gradients are not those of the plain forward pass."
DRAWN = "After the forward pass the random state is not the one that the blocks leave."
FORKED = "The backward pass changes the random state: put it back (torch.random.fork_rng)."
NOT_RECOMPUTED = "The block does not run in the backward pass: nothing is recomputed."
NONE_RECOMPUTED = "No block runs in the backward pass: nothing is recomputed."


class RunTwice(torch.autograd.Function):
    """``first(x)`` in the forward pass, which stores only its input; ``second(x)`` in the backward.

    The second pass is recorded, and autograd computes the gradients from it. It begins with the
    random state of the backward pass, which is put back afterwards. A part of exercise 2.
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


def _count_bytes(s: int, n: int, a: int, b: int) -> int:
    """The inputs of all ``s`` segments, and the activations of the longest one."""
    longest = -(-n // s)  # rounded up
    return s * b + longest * a


def _choose(
    num_blocks: int,
    block_bytes: int,
    input_bytes: int,
    cost: Callable[[int, int, int, int], Any] = _count_bytes,
) -> int:
    """The oracle: the smallest number of segments with the least bytes, or another ``cost``."""
    segments = range(1, num_blocks + 1)
    return min(segments, key=lambda s: cost(s, num_blocks, block_bytes, input_bytes))


# fmt: off
CHOICE_FAULTS: Faults = (
    ("Of equal ones this is the largest: return the smallest.",
     partial(_choose, cost=lambda s, n, a, b: (_count_bytes(s, n, a, b), -s))),
    ("Not only divisors: the longest segment counts.",
     partial(_choose, cost=lambda s, n, a, b: (n % s != 0, _count_bytes(s, n, a, b)))),
    ("The longest segment has ⌈n/s⌉ blocks, not ⌊n/s⌋.",
     partial(_choose, cost=lambda s, n, a, b: s * b + n // s * a)),
    ("The longest segment has ⌈n/s⌉ blocks, not n/s.",
     partial(_choose, cost=lambda s, n, a, b: s * b + n / s * a)),
    ("The bytes of block and input are swapped.",
     partial(_choose, cost=lambda s, n, a, b: _count_bytes(s, n, b, a))),
    ("√n is right only where a = b: take √(n·a/b).",
     partial(_choose, cost=lambda s, n, a, b: abs(s - n**0.5))),
    ("The rounded root is not always best: try all.",
     partial(_choose, cost=lambda s, n, a, b: abs(s - (n * a / b) ** 0.5))),
)
# fmt: on


def _answer_all(answer: Callable) -> list:
    return [answer(*costs) for costs in COSTS]


@checks_exercise(faults=CHOICE_FAULTS)
def check_choose_segments(answer: Callable) -> None:
    """``answer(num_blocks, block_bytes, input_bytes) -> segments`` with the least memory."""
    found = _answer_all(answer)
    otherwise = ""  # the sentence on the first wrong number
    for (n, a, b), segments in zip(COSTS, found, strict=True):
        case = f"{n} blocks of {a} bytes, inputs of {b}"
        whole = isinstance(segments, Integral)
        require(whole, f"Return the number of segments, a whole number, not {segments!r}.")
        possible = 1 <= segments <= n
        require(possible, f"{case}: {segments} segments, where 1 to {n} are possible.")
        right = _choose(n, a, b)
        if segments != right and not otherwise:
            more = f"{segments} segments need {_count_bytes(segments, n, a, b)} bytes"
            otherwise = f"{case}: {more}, {right} need {_count_bytes(right, n, a, b)}."
    diagnose(found, _answer_all, _choose, CHOICE_FAULTS, otherwise)


def _build(log: list[int], number: int, *layers: nn.Module) -> nn.Sequential:
    """A block; each call adds its number to the log."""
    layers[0].register_forward_pre_hook(lambda *_: log.append(number))
    return nn.Sequential(*layers)


def _autocast(dtype: torch.dtype | None) -> torch.autocast:
    """``None`` switches autocast off."""
    return torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None)


class _Precise(nn.Linear):
    """A linear layer in fp32 under any autocast, as a sensitive layer would be."""

    def forward(self, x: Tensor) -> Tensor:
        with _autocast(None):
            return super().forward(x.float())


def _weigh(out: Tensor) -> Tensor:
    """A gradient to start the backward pass with: another number for each element."""
    return torch.linspace(-1, 1, out.numel()).view_as(out).to(out.dtype)


@dataclass(frozen=True)
class _Passes:
    """What a forward and a backward pass leave behind."""

    out: Tensor
    saved_bytes: int  # saved activations, counted after the forward pass
    drawn: tuple[Tensor, Tensor]  # a random number drawn after each of the two passes
    gradients: dict[str, Tensor | None]  # of x and of the parameters that want one
    first: list[int]  # numbers of the blocks that run in the forward pass, in order
    second: list[int]  # and in the backward pass

    def join_gradients(self) -> Tensor:
        """All gradients as one vector; none may be missing."""
        return torch.cat([g.flatten() for g in self.gradients.values() if g is not None])


def _observe(
    run: Callable, model: nn.Module, log: list[int], x: Tensor, dtype: torch.dtype | None = None
) -> _Passes:
    """``run(x)`` under autocast to ``dtype``, then backward; the blocks of ``model`` fill the log.

    Every call begins with the same random state.
    """
    x = x.detach().requires_grad_(x.requires_grad)
    model.zero_grad()
    log.clear()
    torch.default_generator.manual_seed(1)
    with _autocast(dtype), count_saved_bytes(model) as saved:
        out = run(x)
    require(isinstance(out, Tensor), "Return the output, a tensor.")
    require(out.requires_grad, UNSEEN)
    calls_forward = len(log)
    # A random number tells whether two random states are the same.
    after_forward = torch.rand(1)
    try:
        out.backward(_weigh(out))
    except CheckpointError:
        fail(CHANGED)
    after_backward = torch.rand(1)
    tensors = {"x": x, **dict(model.named_parameters())}
    return _Passes(
        out=out,
        saved_bytes=saved.total,
        drawn=(after_forward, after_backward),
        gradients={name: tensor.grad for name, tensor in tensors.items() if tensor.requires_grad},
        first=log[:calls_forward],
        second=log[calls_forward:],
    )


def _require_same_output(found: _Passes, plain: _Passes) -> None:
    """The output is that without checkpointing, to the last bit, and all gradients come."""
    same = found.out.dtype == plain.out.dtype and torch.equal(found.out, plain.out)
    require(same, "The output is not that of the plain forward pass.")
    missing = [name for name, gradient in found.gradients.items() if gradient is None]
    require(missing != ["x"], "x wants a gradient and gets none.")
    left = ", ".join(missing)
    require(not missing, f"Without a gradient: {left}; is each an argument of the Function?")
    require(found.gradients.keys() == plain.gradients.keys(), "x is changed: detach it first.")


def _require_same_state(found: _Passes, plain: _Passes) -> None:
    """The random states are those without checkpointing, and there are fewer saved bytes."""
    require(torch.equal(found.drawn[0], plain.drawn[0]), DRAWN)
    require(torch.equal(found.drawn[1], plain.drawn[1]), FORKED)
    kept = f"{found.saved_bytes} bytes are kept, and {plain.saved_bytes} with nothing recomputed"
    less = 2 * found.saved_bytes <= plain.saved_bytes
    require(less, f"{kept}: keep inputs and nothing else.")


def _recompute(
    block: nn.Module,
    x: Tensor,
    formats: Mapping = SAME_FORMATS,
    ignore_gradient: bool = False,
    differentiate_under_autocast: bool = False,
) -> Tensor:
    """A right answer, unless one of its faults is chosen.

    ``formats``: that of the second pass, for each that the first may have.
    """

    trained = [p for p in block.parameters() if p.requires_grad]

    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, inputs: Tensor, *_: Tensor) -> Tensor:
            enabled = torch.is_autocast_enabled("cpu")
            ctx.dtype = torch.get_autocast_dtype("cpu") if enabled else None
            ctx.random_state = torch.get_rng_state()
            ctx.save_for_backward(inputs)
            return block(inputs)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
            inputs = ctx.saved_tensors[0].clone().requires_grad_()
            random_state = torch.get_rng_state()
            torch.set_rng_state(ctx.random_state)
            with torch.enable_grad(), _autocast(formats[ctx.dtype]):
                out = block(inputs)
            torch.set_rng_state(random_state)
            used = torch.ones_like(gradient) if ignore_gradient else gradient
            with _autocast(ctx.dtype if differentiate_under_autocast else None):
                return torch.autograd.grad([out], [inputs, *trained], [used])

    return Again.apply(x, *trained)


FORMAT_FAULTS: Faults = tuple(
    (
        f"The second pass runs in {FORMATS[second]}, the first in {FORMATS[first]}: see autocast.",
        partial(_recompute, formats=SAME_FORMATS | {first: second}),
    )
    for first, second in itertools.permutations(FORMATS, 2)
)
# fmt: off
RECOMPUTE_FAULTS: Faults = (
    *FORMAT_FAULTS,
    ("The gradient that comes back is ignored: give it to autograd.",
     partial(_recompute, ignore_gradient=True)),
    ("Ask for the gradients outside of autocast.",
     partial(_recompute, differentiate_under_autocast=True)),
)
# fmt: on


@checks_exercise(faults=RECOMPUTE_FAULTS)
def check_recompute_mixed(answer: Callable) -> None:
    """``answer(block, x) -> block(x)``, recomputed under the same autocast."""
    log: list[int] = []
    first_layer = nn.Linear(8, 48)
    layers = (first_layer, nn.GELU(), _Precise(48, 48), nn.Dropout(0.5), nn.Linear(48, 8))
    block = _build(log, 0, *layers)
    inputs = torch.randn(64, 8)
    cases = itertools.product((False, True), FORMATS, (True, False), (False, True))
    for dropout, dtype, wants_gradient, frozen in cases:
        x = inputs.clone().requires_grad_(wants_gradient)
        block.train(dropout)
        first_layer.weight.requires_grad_(not frozen)
        observe = partial(_observe, model=block, log=log, x=x, dtype=dtype)
        plain = observe(block)
        found = observe(partial(answer, block))
        require(found.second, NOT_RECOMPUTED)
        runs = len(found.first + found.second)
        require(runs == 2, f"The block runs {runs} times in all: once forward and once again.")
        _require_same_output(found, plain)
        diagnose(
            found.join_gradients(),
            lambda other: observe(partial(other, block)).join_gradients(),  # noqa: B023
            lambda block, x: block(x),
            RECOMPUTE_FAULTS,
            MASK if dropout else OTHER_GRADIENTS,
            tolerance=0,
        )
        _require_same_state(found, plain)


def _require_calls(found: _Passes, blocks: int, size: int) -> None:
    """Every block runs once in order, and once again in its segment, the last segment first.

    ``size``: how many blocks a segment has; the last one may be shorter.
    """
    numbers = list(range(blocks))
    again = sorted(found.second)
    left = sorted(set(numbers) - set(found.first))
    require(not left, f"Of {blocks} blocks {left} are not run: the last segment may be shorter.")
    require(found.first == numbers, f"The blocks run in the order {found.first}.")
    require(again, NONE_RECOMPUTED)
    left = sorted(set(numbers) - set(again))
    # Some blocks twice and others never: a loop variable had its last value in the second pass.
    repeated = len(again) > len(set(again))
    require(not left or not repeated, CHANGED)
    require(not left, f"Of {blocks} blocks {left} are not recomputed: all should be.")
    require(again == numbers, f"Blocks are recomputed more than once: {found.second}.")
    # A segment begins where a block does not follow the one before it.
    before_first = -9
    pairs = itertools.pairwise([before_first, *found.second])
    starts = [number for last, number in pairs if number != last + 1]
    right = numbers[::size][::-1]
    single = len(starts) == blocks and size > 1
    require(not single, "Each block is a segment of its own: keep fewer.")
    begin = f"Segments of {size} of {blocks} blocks begin at {right[::-1]}, not at {starts[::-1]}."
    require(starts == right, begin)


@checks_exercise()
def check_run_segments(answer: Callable) -> None:
    """``answer(blocks, segments, x)``: all segments recomputed, gradients as without."""
    log: list[int] = []
    shapes = ((8, 4), (7, 3), (3, 1))  # blocks, segments
    cases = itertools.product(shapes, (0.0, 0.5), (False, True), (False, True))
    for (count, segments), dropout, wants_gradient, as_list in cases:
        x = torch.randn(16, 3, 8, 8).requires_grad_(wants_gradient)
        model = nn.Sequential()
        for number in range(count):
            layers = (nn.Conv2d(3, 3, 1), nn.Tanh(), nn.Dropout(dropout))
            model.append(_build(log, number, *layers))
        blocks = list(model) if as_list else model
        plain = _observe(model, model, log, x)
        found = _observe(partial(answer, blocks, segments), model, log, x)
        _require_calls(found, count, count // segments)
        _require_same_output(found, plain)
        same = torch.equal(found.join_gradients(), plain.join_gradients())
        require(same, MASK if dropout else OTHER_GRADIENTS)
        _require_same_state(found, plain)
