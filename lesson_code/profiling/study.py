"""What lesson 19 reads: what each fix of a slow training loop saves, for photographs and texts.

Five parts. *Ladder*: the loops of `ladder.py`, in rounds. Each round runs all loops, in a random
order of its own, for a block of steps on the same batches; one untimed step comes before. So a
ratio of two loops is taken within a round, and its interval over the rounds. Which fixes there
are, and what counts as equal, is declared in `ladder.py`, before anything was measured. The median
of the rounds took the place of their mean after the photographs had been measured, because single
blocks were interrupted; it is what exercise 3 of the lesson teaches.
*Overhead*: Lightning's flags, in microseconds per step. *Compiling*: seconds to compile, and
steps before and after. *Roofline*: this machine, and the layers of both networks. *Page faults*:
one training with two settings of the C library.

What is counted is processor time of one thread, in which other programs hardly count. The process
keeps its memory, see `page_faults.py`. A trial with two threads and the clock on the wall had
intervals of ±25 %, because the pages that the system provides took up to half of a step, and at
other times little. Compiling is timed by the clock.

About ten minutes on an idle machine. The file is written after each part, and a part alone
(``--part overhead``) leaves the others as they are. Linux with glibc only:

    .venv/bin/python lesson_code/profiling/study.py --rounds 20 --save
"""

import gc
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Annotated, Any

import numpy as np
import torch
import typer

from course_tools.study.keep import keep
from course_utils.models.create import create_model
from course_utils.results import read_file
from lesson_code.profiling.compiling import (
    count_graphs,
    find_missing_compiler,
    measure_compiling,
    read_kernel,
    warm_up_compiler,
)
from lesson_code.profiling.ladder import (
    BATCH_SIZE,
    BATCHES,
    DATASETS,
    MARGIN,
    NETWORKS,
    NUM_VAL,
    VALIDATE_EVERY,
    SpeedUps,
    TrainingLoop,
    list_comparisons,
    load_examples,
    make_network,
    name_loop,
)
from lesson_code.profiling.overhead import Overhead, measure_overhead
from lesson_code.profiling.page_faults import (
    TUNABLES,
    describe_missing_glibc,
    measure_page_faults,
)
from lesson_code.profiling.roofline import measure_roofline, place_layers

THREADS = 1
OVERHEAD_STEPS = 300
FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16}
DYNAMIC = (None, False, True)
KEPT = ("ladder", "overhead", "roofline", "page_faults", "compiling")  # names in the file
PARTS = (*DATASETS, *KEPT[1:])  # the ladder has one for each kind of examples


# ---- Ladder.


def make_loops(kind: str, log: IO[str]) -> dict[str, TrainingLoop]:
    """Every loop that a comparison needs, by name. Loops with equal networks share one."""
    examples = load_examples(kind)
    networks: dict[frozenset[str], tuple[torch.nn.Module, Any]] = {}
    loops = {}
    for comparison in list_comparisons(kind):
        for fixes in (comparison.without, comparison.with_fix):
            if "compile" in fixes and find_missing_compiler():
                continue
            key = fixes & {"channels last", "no bias", "compile"}
            if key not in networks:
                model = make_network(kind, examples.num_classes, fixes)
                networks[key] = model, torch.compile(model) if "compile" in fixes else None
            model, compiled = networks[key]
            loop = TrainingLoop(examples, fixes, log, model=model, compiled=compiled)
            loops.setdefault(name_loop(fixes), loop)
    return loops


def measure_loops(kind: str, rounds: int, steps: int) -> list[dict[str, Any]]:
    """A row for each loop: milliseconds of a step, one for each round."""
    with TemporaryFile("w") as log:
        loops = make_loops(kind, log)
        for loop in loops.values():  # warm-up: compile, and meet all shapes
            loop.run(BATCHES)
        found: dict[str, list[float]] = {name: [] for name in loops}
        for number in range(rounds):
            gc.collect()
            gc.disable()
            for name in np.random.default_rng(number).permutation(list(loops)).tolist():
                loops[name].run(1)  # untimed: the caches are another loop's
                start = time.process_time()
                loops[name].run(steps)
                found[name].append(round(1000 * (time.process_time() - start) / steps, 4))
            gc.enable()
            print(f"{kind}, round {number + 1} of {rounds}", flush=True)
    return [{"kind": kind, "loop": name, "ms": ms} for name, ms in found.items()]


def measure_ladder(kind: str, rounds: int, steps: int, known: list[dict]) -> dict[str, Any]:
    """The rows of one kind of examples, with those of the other; and how they were measured."""
    rows = [row for row in known if row["kind"] != kind] + measure_loops(kind, rounds, steps)
    about = {"rounds": rounds, "steps": steps, "batch_size": BATCH_SIZE, "num_val": NUM_VAL}
    return about | {"margin": MARGIN, "networks": NETWORKS, "rows": rows}


# ---- Compiling, and the roofline.


def make_plain(kind: str) -> tuple[torch.nn.Module, list[tuple[torch.Tensor, torch.Tensor]]]:
    """The network as the course has it, in train mode, and all batches of the loops."""
    examples = load_examples(kind)
    torch.manual_seed(0)
    model = create_model(NETWORKS[kind], examples.num_classes).train()
    return model, [examples.stack(index) for index in examples.batches]


def fuse(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Three operations, each of which reads and writes the whole tensor when it runs eagerly."""
    return torch.relu(x + bias) * 0.5


def measure_compiled(rounds: int) -> dict[str, Any]:
    """For each network and format, the price of compiling; graphs by shapes; one kernel."""
    if missing := find_missing_compiler():
        return {"missing": missing, "rows": []}
    start_s = warm_up_compiler()
    rows = []
    for kind in DATASETS:
        model, batches = make_plain(kind)
        for name, dtype in FORMATS.items():
            row = {"kind": kind, "format": name, "batches": len(batches)}
            rows.append(row | measure_compiling(model, batches, rounds, dtype))
            print(rows[-1], flush=True)
    model, batches = make_plain("texts")
    inputs = [tokens for tokens, _ in batches]
    return {
        "missing": "",
        "start_s": round(start_s, 2),
        "rounds": rounds,
        "rows": rows,
        "lengths": [tokens.shape[1] for tokens in inputs],
        "graphs": {str(dynamic): count_graphs(model, inputs, dynamic) for dynamic in DYNAMIC},
        "kernel": read_kernel(fuse, torch.randn(64, 256), torch.randn(256)),
    }


def measure_placed() -> dict[str, Any]:
    """Both limits of this machine by format, and the layers of both networks in fp32."""
    found = {name: measure_roofline(dtype) for name, dtype in FORMATS.items()}
    limits = {
        name: {key: round(x) for key, x in one._asdict().items()} for name, one in found.items()
    }
    layers = {}
    for kind in DATASETS:
        model, batches = make_plain(kind)
        inputs = batches[0][0]
        placed = place_layers(model, inputs)
        layers[kind] = [x._replace(seconds=round(x.seconds, 8))._asdict() for x in placed]
    return {"limits": limits, "layers": layers}


def measure_part(part: str, rounds: int) -> dict[str, Any]:
    """One of `PARTS` that is not a ladder."""
    if part == "overhead":
        rows = measure_overhead(rounds, OVERHEAD_STEPS)
        found = {"rounds": rounds, "steps": OVERHEAD_STEPS, "rows": rows}
    elif part == "compiling":
        found = measure_compiled(rounds)
    elif part == "roofline":
        found = measure_placed()
    else:
        missing = describe_missing_glibc()
        rows = [] if missing else measure_page_faults(rounds, threads=torch.get_num_threads())
        found = {"missing": missing, "rounds": rounds, "tunables": TUNABLES, "rows": rows}
    return found


def main(
    rounds: Annotated[int, typer.Option(min=2, help="each of them has all loops")] = 20,
    steps: Annotated[int, typer.Option(min=1, help="of a block")] = VALIDATE_EVERY,
    threads: Annotated[int, typer.Option(min=1, help="of PyTorch")] = THREADS,
    part: Annotated[list[str] | None, typer.Option(help="only these; stored others stay")] = None,
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Measure all parts; print, and keep, what was found."""
    if "GLIBC_TUNABLES" not in os.environ:  # it is read when a process starts
        os.environ["GLIBC_TUNABLES"] = TUNABLES
        os.execv(sys.executable, [sys.executable, *sys.argv])
    for kind in DATASETS:  # before the threads are set: loading chooses a number itself
        load_examples(kind)
    torch.set_num_threads(threads)
    path = Path(__file__).with_suffix(".json")
    found: dict[str, Any] = {}
    if part and path.is_file():
        found = {name: value for name, value in read_file(path).items() if name in KEPT}
    for name in part or PARTS:
        start = time.perf_counter()
        if name in DATASETS:
            known = found.get("ladder", {}).get("rows", [])
            found["ladder"] = measure_ladder(name, rounds, steps, known)
        else:
            found[name] = measure_part(name, rounds)
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
        if save:  # so that an interrupted measurement leaves the parts that it has
            keep(
                path,
                f"lesson_code/profiling/study.py --rounds {rounds} --save",
                **{name: found[name] for name in KEPT if name in found},
            )
    if "ladder" in found:
        for kind in {row["kind"] for row in found["ladder"]["rows"]}:
            print(SpeedUps(found).table(kind).to_string())
    if "overhead" in found:
        print(Overhead(found).table().to_string())


if __name__ == "__main__":
    typer.run(main)
