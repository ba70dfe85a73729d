"""What lesson 10 reads: the bytes and the time of a step, when activations are recomputed.

Two networks of 6, 12 and 24 equal blocks, one for images and one for text, on several batches. For
each of them and for each way to run the blocks: the bytes that the forward pass saves for the
backward pass, those in use at the worst moment of a step, and the seconds of the step, round by
round with the ways in turn. For the network of six blocks and the usual batch `torch.compile`
compiles the same ways, and chooses by itself what to recompute, under two memory budgets. One way
more compiles each block alone and recomputes it from outside, which is the wrong order.

The bytes are counted, so that they are the same in every run. The seconds are those of processor
time of one thread, in which other programs do not count, so only their ratios within a round are
read. All ways have the gradients of the plain one, which is checked here.

About half an hour on one core, most of it for compiling. Needs a C++ compiler. The file is written
at the end, so an interrupted measurement leaves the old one:

    .venv/bin/python lesson_code/gradient_checkpointing/study_memory.py --rounds 20 --save
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
import torch._functorch.config
import typer
from torch import Tensor, nn

from course_tools.study.keep import keep as keep_results
from course_utils.config import load_config
from course_utils.data.load import load_data
from course_utils.results import read_file
from lesson_code.gradient_checkpointing.counting import count_saved, measure_peak, time_rounds
from lesson_code.gradient_checkpointing.networks import (
    CONVOLUTIONS,
    PRODUCTS,
    DeepNetwork,
    DeepTransformer,
    Run,
    cut,
    cut_texts,
    keep,
    run_each,
    run_plain,
)

DEPTHS = (6, 12, 24)
COMPILED_DEPTH = 6  # a compiler needs minutes for each way of a deeper network
TOKENS = 128  # of each text
BUDGETS = (0.5, 0.2)  # of the bytes that torch.compile may keep, as a share
SEED = 0
CPU = torch.device("cpu")
Batch = tuple[Tensor, Tensor]


class Network(NamedTuple):
    """One of the two networks: how it is made, which batches it gets, what is kept selectively."""

    make: Callable[..., nn.Module]
    batches: tuple[int, ...]
    usual_batch: int
    kept: list
    make_batch: Callable[[int], Batch]
    count_input_bytes: Callable[[int], int]  # of a block, for a batch


def load_images(count: int) -> Batch:
    data = load_data(load_config("quick", dataset="photos"))
    images, targets = next(iter(data.train_loader(SEED, batch_size=count)))
    return images, targets


def load_texts(count: int) -> Batch:
    return cut_texts(load_data(load_config("quick", dataset="glosses")), count, TOKENS)


NETWORKS = {
    "images": Network(
        DeepNetwork, (8, 16, 32, 64), 32, CONVOLUTIONS, load_images, lambda n: 4 * n * 32 * 16 * 16
    ),
    "text": Network(
        DeepTransformer, (2, 4, 8, 16), 8, PRODUCTS, load_texts, lambda n: 4 * n * TOKENS * 128
    ),
}


def choose_divisor(depth: int, wanted: float) -> int:
    """The number of equal segments that is nearest to the wanted one."""
    divisors = [number for number in range(1, depth + 1) if depth % number == 0]
    return min(divisors, key=lambda number: abs(number - wanted))


def count_block_bytes(network: Network, batch: Batch) -> int:
    """Bytes that one block more saves."""
    one, two = (network.make(run_plain, depth=depth) for depth in (1, 2))
    return count_saved(partial(two.compute_loss, *batch), two) - count_saved(
        partial(one.compute_loss, *batch), one
    )


def list_ways(network: Network, depth: int, ratio: float) -> dict[str, tuple[Run, int | None]]:
    """How the blocks are run, and in how many segments; ``ratio``: a block's bytes by its input's.

    The first one is the plain way.
    """
    root, best = (choose_divisor(depth, math.sqrt(depth * r)) for r in (1, ratio))
    return {
        "nothing": (run_plain, None),
        "each block": (run_each, depth),
        "√n segments": (cut(root), root),
        "√(n a/b) segments": (cut(best), best),
        "selective": (keep(network.kept), None),
    }


class Step:
    """One forward and backward pass of a network, compiled or not."""

    def __init__(self, network: nn.Module, batch: Batch):
        self.network = network
        self.forward: Callable[[], Tensor] = partial(network.compute_loss, *batch)
        self.is_compiled = False

    def compile(self, budget: float = 1.0) -> "Step":
        """The whole forward pass; ``budget``: of the bytes that it may save."""
        # a class of its own, or the code that was compiled for an equal network would serve it
        self.network.__class__ = type("Compiled", (type(self.network),), {})
        self.forward, self.is_compiled = torch.compile(self.forward, fullgraph=True), True
        with torch._functorch.config.patch(activation_memory_budget=budget):
            self()  # compiles both passes
        return self

    def compile_blocks(self) -> "Step":
        """Each block alone, so that what recomputes it does so from outside."""
        for block in self.network.blocks:
            block.compile(fullgraph=True)
        self.is_compiled = True
        self()
        return self

    def __call__(self) -> None:
        self.network.zero_grad()
        self.forward().backward()

    def count_saved(self) -> int:
        return count_saved(self.forward, self.network)

    def read_gradient(self) -> Tensor:
        self()
        gradients = [p.grad for p in self.network.parameters() if p.grad is not None]
        return torch.cat([gradient.flatten() for gradient in gradients])


def make_steps(
    network: Network, depth: int, batch: Batch, ratio: float, compiled: bool
) -> dict[str, Step]:
    ways = list_ways(network, depth, ratio)
    steps = {way: Step(network.make(run, depth=depth), batch) for way, (run, _) in ways.items()}
    if compiled:
        torch._dynamo.reset()
        for way in ("nothing", "each block", "selective"):
            print(f"compile {way}", flush=True)
            step = Step(network.make(ways[way][0], depth=depth), batch)
            steps[f"{way}, compiled"] = step.compile()
        for budget in BUDGETS:
            print(f"compile with budget {budget}", flush=True)
            step = Step(network.make(run_plain, depth=depth), batch)
            steps[f"budget {budget}, compiled"] = step.compile(budget)
        step = Step(network.make(ways["selective"][0], depth=depth), batch)
        steps["selective around compiled blocks"] = step.compile_blocks()
    return steps


def check_gradients(steps: dict[str, Step]) -> None:
    """Those of the plain way: bit for bit, or if compiled nearly so.

    Raises:
        AssertionError: another network is trained.
    """
    expected = steps["nothing"].read_gradient()
    for way, step in steps.items():
        found = step.read_gradient()
        if not step.is_compiled:
            assert torch.equal(found, expected), way
        else:
            assert (found - expected).norm() < 1e-4 * expected.norm(), way


def measure_point(name: str, depth: int, size: int, rounds: int) -> Iterator[dict]:
    """A row for each way; with seconds only at the deepest network or the usual batch."""
    network = NETWORKS[name]
    batch = network.make_batch(size)
    ratio = count_block_bytes(network, batch) / network.count_input_bytes(size)
    deepest, usual = depth == DEPTHS[-1], size == network.usual_batch
    compiled = depth == COMPILED_DEPTH and usual
    steps = make_steps(network, depth, batch, ratio, compiled)
    check_gradients(steps)
    segments = {way: n for way, (_, n) in list_ways(network, depth, ratio).items()}
    seconds = time_rounds(steps, rounds, CPU) if deepest or usual else {}
    for way, step in steps.items():
        yield {
            "network": name,
            "depth": depth,
            "batch": size,
            "way": way,
            "segments": segments.get(way),
            "saved_bytes": step.count_saved(),
            "peak_bytes": None if step.is_compiled else measure_peak(step),
            "seconds": [round(x, 4) for x in seconds[way]] if seconds else None,
        }


def measure(rounds: int, depths: Iterable[int] = DEPTHS) -> list[dict]:
    torch.set_num_threads(1)
    rows: list[dict] = []
    for name, network in NETWORKS.items():
        for depth in depths:
            for size in network.batches:
                print(f"{name}, {depth} blocks, batch of {size}", flush=True)
                rows += measure_point(name, depth, size, rounds)
    return rows


def main(
    rounds: Annotated[int, typer.Option(min=2, help="each of them runs all ways")] = 20,
    depth: Annotated[
        int | None, typer.Option(help="only this one; stored rows of others stay")
    ] = None,
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Count the bytes of all ways and time their steps; print, and keep, what was found."""
    path = Path(__file__).with_suffix(".json")
    rows = measure(rounds, DEPTHS if depth is None else [depth])
    for row in rows:
        print(row)
    if depth is not None and path.is_file():
        rows += [row for row in read_file(path)["rows"] if row["depth"] != depth]
    if save:
        keep_results(
            path,
            f"lesson_code/gradient_checkpointing/study_memory.py --rounds {rounds} --save",
            rounds=rounds,
            tokens=TOKENS,
            threads=1,
            usual_batch={name: network.usual_batch for name, network in NETWORKS.items()},
            rows=rows,
        )


if __name__ == "__main__":
    typer.run(main)
