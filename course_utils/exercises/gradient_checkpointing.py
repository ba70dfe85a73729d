"""Checks of the exercises of lesson 10."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError

from course_utils.exercises.checking import checks_exercise, fail, require
from course_utils.measure.memory import count_saved_bytes

__all__ = ["check_choose_segments", "check_recompute_mixed", "check_run_segments"]

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

UNSEEN = "Parameters get no gradient if x wants none: make them arguments (or use_reentrant=False)."
CHANGED = "The second pass is not the first: has a loop variable moved on? Make it an argument."
IGNORED = "The gradient that comes back is ignored: give it to autograd."
UNDER_AUTOCAST = "Ask for the gradients outside of autocast."
MASK = "Dropout draws another mask in the second pass: restore the random state."
DRAWN = "After the forward pass the random state is not the one that the blocks leave."
FORKED = "The backward pass changes the random state: put it back (torch.random.fork_rng)."
NOT_RECOMPUTED = "The block does not run in the backward pass: nothing is recomputed."
NONE_RECOMPUTED = "No block runs in the backward pass: nothing is recomputed."


def _count_bytes(segments: int, blocks: int, block_bytes: int, input_bytes: int) -> int:
    """The inputs of all segments, and the activations of the longest segment."""
    longest = -(-blocks // segments)  # rounded up
    return segments * input_bytes + longest * block_bytes


# What a choice with a fault makes least, in place of the bytes. All take the same arguments.


def _bytes_then_largest(
    segments: int, blocks: int, block_bytes: int, input_bytes: int
) -> tuple[int, int]:
    return _count_bytes(segments, blocks, block_bytes, input_bytes), -segments


def _bytes_of_divisors(
    segments: int, blocks: int, block_bytes: int, input_bytes: int
) -> tuple[bool, int]:
    divides = blocks % segments == 0
    return not divides, _count_bytes(segments, blocks, block_bytes, input_bytes)


def _bytes_with_floor(segments: int, blocks: int, block_bytes: int, input_bytes: int) -> int:
    return segments * input_bytes + blocks // segments * block_bytes


def _bytes_with_fraction(segments: int, blocks: int, block_bytes: int, input_bytes: int) -> float:
    return segments * input_bytes + blocks / segments * block_bytes


def _bytes_exchanged(segments: int, blocks: int, block_bytes: int, input_bytes: int) -> int:
    return _count_bytes(segments, blocks, input_bytes, block_bytes)


def _distance_to_root(segments: int, blocks: int, block_bytes: int, input_bytes: int) -> float:
    return abs(segments - blocks**0.5)


def _distance_to_weighted_root(
    segments: int, blocks: int, block_bytes: int, input_bytes: int
) -> float:
    return abs(segments - (blocks * block_bytes / input_bytes) ** 0.5)


FAULTS = {
    "Of equal ones this is the largest: return the smallest.": _bytes_then_largest,
    "Not only divisors: the longest segment counts.": _bytes_of_divisors,
    "The longest segment has ⌈n/s⌉ blocks, not ⌊n/s⌋.": _bytes_with_floor,
    "The longest segment has ⌈n/s⌉ blocks, not n/s.": _bytes_with_fraction,
    "The bytes of block and input are exchanged.": _bytes_exchanged,
    "√n is right only where a = b: take √(n·a/b).": _distance_to_root,
    "The rounded root is not always best: try all.": _distance_to_weighted_root,
}


def _choose(cost: Callable, blocks: int, block_bytes: int, input_bytes: int) -> int:
    """The number of segments with the least ``cost``, of equal ones the smallest."""
    return min(
        range(1, blocks + 1),
        key=lambda segments: cost(segments, blocks, block_bytes, input_bytes),
    )


@checks_exercise()
def check_choose_segments(answer: Callable) -> None:
    """``answer(num_blocks, block_bytes, input_bytes) -> segments`` with the least memory."""
    found = [answer(*costs) for costs in COSTS]
    best = [_choose(_count_bytes, *costs) for costs in COSTS]
    cases = [f"{n} blocks of {a} bytes, inputs of {b}" for n, a, b in COSTS]
    for case, (blocks, _, _), segments in zip(cases, COSTS, found, strict=True):
        whole = isinstance(segments, Integral)
        require(whole, f"Return the number of segments, a whole number, not {segments!r}.")
        possible = 1 <= segments <= blocks
        require(possible, f"{case}: {segments} segments, where 1 to {blocks} are possible.")
    if found == best:
        return
    for sentence, cost in FAULTS.items():
        require(found != [_choose(cost, *costs) for costs in COSTS], sentence)
    for case, costs, segments, right in zip(cases, COSTS, found, best, strict=True):
        more = f"{segments} segments need {_count_bytes(segments, *costs)} bytes"
        less = f"{right} need {_count_bytes(right, *costs)}"
        require(segments == right, f"{case}: {more}, {less}.")


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


def _all_equal(one: Iterable, other: Iterable) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def _require_same(
    found: _Passes,
    plain: _Passes,
    dropout: float,
    faults: Iterable[tuple[str, Sequence[Tensor]]] = (),
) -> None:
    """As without checkpointing, to the last bit, and with fewer saved bytes.

    ``faults``: each sentence with the gradients that the fault gives.
    """
    same = found.out.dtype == plain.out.dtype and torch.equal(found.out, plain.out)
    require(same, "The output is not that of the plain forward pass.")
    missing = ", ".join(name for name, gradient in found.gradients.items() if gradient is None)
    require(not missing, f"Without a gradient: {missing}; is each an argument of the Function?")
    require(found.gradients.keys() == plain.gradients.keys(), "x is changed: detach it first.")
    gradients = found.gradients.values()
    if not _all_equal(gradients, plain.gradients.values()):
        for sentence, faulty in faults:
            require(not _all_equal(gradients, faulty), sentence)
        # Under dropout another mask gives other gradients, whatever else is wrong.
        fail(MASK if dropout else "The gradients are not those of the plain forward pass.")
    require(torch.equal(found.drawn[0], plain.drawn[0]), DRAWN)
    require(torch.equal(found.drawn[1], plain.drawn[1]), FORKED)
    kept = f"{found.saved_bytes} bytes are kept, and {plain.saved_bytes} with nothing recomputed"
    less = 2 * found.saved_bytes <= plain.saved_bytes
    require(less, f"{kept}: keep inputs and nothing else.")


def _list_faults(
    block: nn.Module, x: Tensor, dtype: torch.dtype | None
) -> Iterator[tuple[str, Sequence[Tensor]]]:
    """Sentence and the gradients that a second pass with this fault gives, without dropout.

    ``dtype``: the autocast of the first pass.
    """
    x = x.detach().requires_grad_(x.requires_grad)
    tensors = [tensor for tensor in (x, *block.parameters()) if tensor.requires_grad]
    for other, name in FORMATS.items():
        with _autocast(other):
            out = block(x)
        if other != dtype:
            sentence = (
                f"The second pass runs in {name}, the first in {FORMATS[dtype]}: see autocast."
            )
            # The gradient that comes back has the dtype of the first pass.
            weights = _weigh(out.to(dtype or x.dtype))
            yield sentence, torch.autograd.grad(out, tensors, weights)
            continue
        ones = torch.ones_like(out)
        yield IGNORED, torch.autograd.grad(out, tensors, ones, retain_graph=True)
        with _autocast(dtype):
            gradients = torch.autograd.grad(out, tensors, _weigh(out))
        yield UNDER_AUTOCAST, gradients


@checks_exercise()
@torch.random.fork_rng(devices=[])
def check_recompute_mixed(answer: Callable) -> None:
    """``answer(block, x) -> block(x)``, computed again under the same autocast."""
    torch.default_generator.manual_seed(0)
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
        plain = _observe(block, block, log, x, dtype)
        found = _observe(partial(answer, block), block, log, x, dtype)
        require(found.second, NOT_RECOMPUTED)
        runs = len(found.first + found.second)
        require(runs == 2, f"The block runs {runs} times in all: once forward and once again.")
        _require_same(found, plain, dropout, _list_faults(block, x, dtype))


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
    require(not left, f"Of {blocks} blocks {left} are not computed again: all should be.")
    require(again == numbers, f"Blocks are computed again more than once: {found.second}.")
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
@torch.random.fork_rng(devices=[])
def check_run_segments(answer: Callable) -> None:
    """``answer(blocks, segments, x)``: all segments recomputed, gradients as without."""
    torch.default_generator.manual_seed(0)
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
        _require_same(found, plain, dropout)
