"""Checks of the exercises of lesson 10."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from numbers import Integral
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError

from course_utils.exercises.checking import checks_exercise, require
from course_utils.measure.memory import count_saved_bytes

__all__ = ["check_choose_segments", "check_recompute_mixed", "check_run_segments"]

# (blocks, bytes of a block, of an input): whole and other roots, ties, both ends
COSTS = [(16, 3, 3), (48, 48, 1), (10, 30, 10), (7, 5, 5), (31, 1, 5), (23, 9, 2), (11, 8, 1)]
COSTS += [(5, 1, 100), (5, 1000, 1), (1, 4, 4)]
FORMATS = {None: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}  # None: autocast is off
UNSEEN = "Parameters get no gradient if x wants none: make them arguments (or use_reentrant=False)."
CHANGED = "The second pass is not the first: has a loop variable moved on? Make it an argument."
IGNORED = "The gradient that comes back is ignored: give it to autograd."
MASK = "Dropout draws another mask in the second pass: restore the random state."
DRAWN = "After the forward pass the random state is not the one that the blocks leave."
FORKED = "The backward pass changes the random state: put it back (torch.random.fork_rng)."


def _need(segments: int, blocks: int, block: int, given: int) -> int:
    return segments * given + -(-blocks // segments) * block


# sentence to what a choice with this fault makes least
FAULTS = {
    "Of equal ones this is the largest: return the smallest.": lambda s, *c: (_need(s, *c), -s),
    "Not only divisors: the longest segment counts.": lambda s, *c: (c[0] % s > 0, _need(s, *c)),
    "The longest segment has ⌈n/s⌉ blocks, not ⌊n/s⌋.": lambda s, n, a, b: s * b + n // s * a,
    "The longest segment has ⌈n/s⌉ blocks, not n/s.": lambda s, n, a, b: s * b + n / s * a,
    "The bytes of block and input are exchanged.": lambda s, n, a, b: _need(s, n, b, a),
    "√n is right only where a = b: take √(n·a/b).": lambda s, n, *_: abs(s - n**0.5),
    "The rounded root is not always best: try all.": lambda s, n, a, b: abs(s - (n * a / b) ** 0.5),
}


@checks_exercise
def check_choose_segments(answer: Callable) -> None:
    """``answer(num_blocks, block_bytes, input_bytes) -> segments`` with the least memory."""

    def choose(need: Callable) -> list[int]:
        return [min(range(1, c[0] + 1), key=lambda s: need(s, *c)) for c in COSTS]

    found, best = [answer(*costs) for costs in COSTS], choose(_need)
    names = [f"{n} blocks of {a} bytes, inputs of {b}" for n, a, b in COSTS]
    for case, costs, s in zip(names, COSTS, found, strict=True):
        whole = isinstance(s, Integral)
        require(whole, f"Return the number of segments, a whole number, not {s!r}.")
        require(1 <= s <= costs[0], f"{case}: {s} segments, where 1 to {costs[0]} are possible.")
    for sentence, need in FAULTS.items():
        require(found == best or found != choose(need), sentence)
    for case, costs, s, right in zip(names, COSTS, found, best, strict=True):
        more = f"{s} segments need {_need(s, *costs)} bytes"
        require(s == right, f"{case}: {more}, {right} need {_need(right, *costs)}.")


def _build(log: list[int], number: int, *layers: nn.Module) -> nn.Sequential:
    """A block; each call adds its number to the log."""
    layers[0].register_forward_pre_hook(lambda *_: log.append(number))
    return nn.Sequential(*layers)


def _autocast(dtype: torch.dtype | None) -> torch.autocast:
    return torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None)


class _Precise(nn.Linear):
    """A linear layer in fp32 under any autocast, as a sensitive layer would be."""

    def forward(self, x: Tensor) -> Tensor:
        with _autocast(None):
            return super().forward(x.float())


def _weigh(out: Tensor) -> Tensor:
    return torch.linspace(-1, 1, out.numel()).view_as(out).to(out.dtype)


def _observe(run: Callable, model: nn.Module, log: list, x: Tensor, dtype=None) -> SimpleNamespace:
    """``run(x)``, forward and back: what it returns, keeps, calls (the log) and draws."""
    x = x.detach().requires_grad_(x.requires_grad)
    model.zero_grad()
    log.clear()
    torch.default_generator.manual_seed(1)
    with _autocast(dtype), count_saved_bytes(model) as saved:
        out = run(x)
    require(isinstance(out, Tensor), "Return the output, a tensor.")
    require(out.requires_grad, UNSEEN)
    first, drawn = len(log), [torch.rand(1)]
    try:
        out.backward(_weigh(out))
    except CheckpointError:
        require(False, CHANGED)
    drawn.append(torch.rand(1))
    wanted = {"x": x, **dict(model.named_parameters())}
    gradients = {name: p.grad for name, p in wanted.items() if p.requires_grad}
    calls = {"first": log[:first], "second": log[first:]}
    return SimpleNamespace(out=out, saved=saved.total, drawn=drawn, gradients=gradients, **calls)


def _require_same(found: SimpleNamespace, plain, dropout: float, faults: Iterable = ()) -> None:
    """As ``plain`` to the last bit, with less kept; ``faults``: sentences and their gradients."""
    same = found.out.dtype == plain.out.dtype and torch.equal(found.out, plain.out)
    require(same, "The output is not that of the plain forward pass.")
    missing = ", ".join(name for name, gradient in found.gradients.items() if gradient is None)
    require(not missing, f"Without a gradient: {missing}; is each an argument of the Function?")
    require(found.gradients.keys() == plain.gradients.keys(), "x is changed: detach it first.")
    gradients = found.gradients.values()
    if not all(map(torch.equal, gradients, plain.gradients.values())):
        for sentence, faulty in faults:
            require(not all(map(torch.equal, gradients, faulty)), sentence)
        require(not dropout, MASK)
        require(False, "The gradients are not those of the plain forward pass.")
    require(torch.equal(found.drawn[0], plain.drawn[0]), DRAWN)
    require(torch.equal(found.drawn[1], plain.drawn[1]), FORKED)
    kept = f"{found.saved} bytes are kept, and {plain.saved} with nothing recomputed"
    require(2 * found.saved <= plain.saved, f"{kept}: keep inputs and nothing else.")


def _list_faults(block: nn.Module, x: Tensor, dtype: torch.dtype) -> Iterator[tuple[str, tuple]]:
    """Sentence and the gradients that a second pass with this fault gives, without dropout."""
    x = x.detach().requires_grad_(x.requires_grad)
    wanted = [p for p in (x, *block.parameters()) if p.requires_grad]
    for other, name in FORMATS.items():
        with _autocast(other):
            out = block(x)
        if other != dtype:
            said = f"The second pass runs in {name}, the first in {FORMATS[dtype]}: see autocast."
            yield said, torch.autograd.grad(out, wanted, _weigh(out.to(dtype or x.dtype)))
            continue
        yield IGNORED, torch.autograd.grad(out, wanted, torch.ones_like(out), retain_graph=True)
        with _autocast(dtype):
            gradients = torch.autograd.grad(out, wanted, _weigh(out))
        yield "Ask for the gradients outside of autocast.", gradients


@checks_exercise
@torch.random.fork_rng(devices=[])
def check_recompute_mixed(answer: Callable) -> None:
    """``answer(block, x) -> block(x)``, computed again under the same autocast."""
    torch.default_generator.manual_seed(0)
    log: list[int] = []
    layers = (nn.Linear(8, 48), nn.GELU(), _Precise(48, 48), nn.Dropout(0.5), nn.Linear(48, 8))
    block, images = _build(log, 0, *layers), torch.randn(64, 8)
    cases = itertools.product((False, True), FORMATS, (True, False), (False, True))
    for dropout, dtype, wants, frozen in cases:
        x = images.clone().requires_grad_(wants)
        block.train(dropout)[0].weight.requires_grad_(not frozen)
        plain = _observe(block, block, log, x, dtype)
        found = _observe(partial(answer, block), block, log, x, dtype)
        require(found.second, "The block does not run in the backward pass: nothing is recomputed.")
        runs = len(found.first + found.second)
        require(runs == 2, f"The block runs {runs} times in all: once forward and once again.")
        _require_same(found, plain, dropout, _list_faults(block, x, dtype))


def _require_calls(found: SimpleNamespace, blocks: int, size: int) -> None:
    """Every block runs once in order, and once again in its segment, the last segment first."""
    numbers, again = list(range(blocks)), sorted(found.second)
    left = sorted(set(numbers) - set(found.first))
    require(not left, f"Of {blocks} blocks {left} are not run: the last segment may be shorter.")
    require(found.first == numbers, f"The blocks run in the order {found.first}.")
    require(again, "No block runs in the backward pass: nothing is recomputed.")
    left = sorted(set(numbers) - set(again))
    require(not left or len(again) == len(set(again)), CHANGED)
    require(not left, f"Of {blocks} blocks {left} are not computed again: all should be.")
    require(again == numbers, f"Blocks are computed again more than once: {found.second}.")
    starts = [n for last, n in itertools.pairwise([-9, *found.second]) if n != last + 1]
    right = numbers[::size][::-1]
    require(len(starts) < blocks or size == 1, "Each block is a segment of its own: keep fewer.")
    said = f"Segments of {size} of {blocks} blocks begin at {right[::-1]}, not at {starts[::-1]}."
    require(starts == right, said)


@checks_exercise
@torch.random.fork_rng(devices=[])
def check_run_segments(answer: Callable) -> None:
    """``answer(blocks, segments, x)``: all segments recomputed, gradients as without."""
    torch.default_generator.manual_seed(0)
    log: list[int] = []
    cases = itertools.product(((8, 4), (7, 3), (3, 1)), (0.0, 0.5), (False, True), (0, 1))
    for (count, segments), dropout, wants, as_list in cases:
        x = torch.randn(16, 3, 8, 8).requires_grad_(wants)
        layers = ((nn.Conv2d(3, 3, 1), nn.Tanh(), nn.Dropout(dropout)) for _ in range(count))
        model = nn.Sequential(*(_build(log, n, *three) for n, three in enumerate(layers)))
        blocks = list(model) if as_list else model
        plain = _observe(model, model, log, x)
        found = _observe(partial(answer, blocks, segments), model, log, x)
        _require_calls(found, count, count // segments)
        _require_same(found, plain, dropout)
