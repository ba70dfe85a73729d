"""What lesson 07 reads: the time of a training step in each format, by the processor's parts.

Each level is a process that may use some of this processor's instructions only: all of them, those
of a server without 16-bit arithmetic, those of an older laptop. So the chip, the clock and the
program are the same, and only the instructions differ. In each round every process takes one step
in every format, and the order of formats and processes changes from round to round. A step is a
forward pass, a backward pass and AdamW, on one thread.

What is counted is the time of the processor, not of the clock, and a ratio of two times comes from
one round, so other work on the machine disturbs it little. About 5 minutes on one core. The file is
written at the end:

    .venv/bin/python lesson_code/mixed_precision/study_speed.py --rounds 12 --save
"""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from time import process_time
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn
from torch.optim import AdamW

from course_tools.study.keep import keep
from course_utils.config import load_config
from course_utils.data.load import load_data
from course_utils.models.create import create_model
from course_utils.models.text_small import TextSmall

# Names of environment variables are those of oneDNN, PyTorch and MKL; read when a process starts.
LEVELS: dict[str, dict[str, str]] = {
    "all instructions": {},
    "AVX-512 without bf16 and fp16": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"},
    "AVX2": {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
}
FORMATS = ("fp32", "mixed bf16", "mixed fp16", "pure bf16")
NETWORKS = ("convnet_small", "text_small", "text, width 512")
EXAMPLES = {"convnet_small": 32, "text_small": 32, "text, width 512": 4}
WIDTH, LENGTH = 512, 32  # of the wide transformer; tokens of each of its texts
SLOW = ("convnet_small", "mixed fp16")  # a hundred times as long as fp32 here, so
SLOW_ROUNDS = 2  # only the first rounds have it
LIMIT_S = 300  # a guard against a hang, not a measurement


@cache
def make_batch(network: str) -> tuple[Tensor, Tensor]:
    """The first examples of the photographs or definitions; of the wide network random tokens."""
    count = EXAMPLES[network]
    if network == "text, width 512":
        generator = torch.Generator().manual_seed(0)
        return torch.randint(1, 4096, (count, LENGTH), generator=generator), torch.arange(count)
    dataset = "photos" if network == "convnet_small" else "glosses"
    config = load_config("quick", dataset=dataset, first_seed=0).replace(
        model=network, num_train=count, batch_size=count
    )
    return next(iter(load_data(config).train_loader(seed=0)))


def make_network(network: str) -> nn.Module:
    torch.manual_seed(0)
    if network == "text, width 512":
        return TextSmall(10, width=WIDTH, heads=8).train()
    return create_model(network, 10, pretrained=True).train()


def make_step(network: str, name: str) -> Callable[[], None]:
    """A whole training step of the network in a format."""
    model = make_network(network)
    inputs, targets = make_batch(network)
    dtype = torch.float16 if "fp16" in name else torch.bfloat16
    if name == "pure bf16":
        model.bfloat16()
        inputs = inputs.bfloat16() if inputs.is_floating_point() else inputs
    optimizer = AdamW(model.parameters(), lr=1e-5)
    scaler = torch.amp.GradScaler("cpu", enabled="fp16" in name)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype, enabled=name.startswith("mixed")):
            loss = F.cross_entropy(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


# ---- A process for each level, which takes a step when it is asked for one.


def work(link: Connection) -> None:
    """Send what this process may use, then the processor's milliseconds of each step asked for."""
    torch.set_num_threads(1)
    steps = {(network, name): make_step(network, name) for network in NETWORKS for name in FORMATS}
    for step in steps.values():
        step()  # warm-up
    link.send(torch.backends.cpu.get_cpu_capability())
    while (asked := link.recv()) is not None:
        start = process_time()
        steps[asked]()
        link.send(1000 * (process_time() - start))


def receive(link: Connection):
    if not link.poll(LIMIT_S):
        raise TimeoutError(f"a process sent nothing for {LIMIT_S} s")
    return link.recv()


def start(level: str) -> tuple[multiprocessing.Process, Connection]:
    """A process that has the level's environment variables from its first line on."""
    context = multiprocessing.get_context("spawn")
    own, other = context.Pipe()
    process = context.Process(target=work, args=(other,), daemon=True)
    before = dict(os.environ)
    os.environ.update(LEVELS[level] | {"OMP_NUM_THREADS": "1"})
    try:
        process.start()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return process, own


def list_round(number: int) -> Iterator[tuple[str, str, str]]:
    """All levels, networks and formats, in an order that changes with the round."""
    for network in NETWORKS:
        for name in np.roll(FORMATS, number).tolist():
            if (network, name) == SLOW and number >= SLOW_ROUNDS:
                continue
            for level in np.roll(list(LEVELS), number).tolist():
                yield level, network, name


def measure(rounds: int) -> dict:
    """Milliseconds by level, network and format, one for each round; what each level may use."""
    started = {level: start(level) for level in LEVELS}
    links = {level: link for level, (_, link) in started.items()}
    try:
        vectors = {level: receive(link) for level, link in links.items()}
        times: dict[tuple[str, str, str], list[float]] = {key: [] for key in list_round(0)}
        for number in range(rounds):
            for level, network, name in list_round(number):
                links[level].send((network, name))
                times[level, network, name].append(round(receive(links[level]), 2))
            print(f"round {number + 1} of {rounds}", flush=True)
        for link in links.values():
            link.send(None)
    finally:
        for process, _ in started.values():
            process.join(5)
            process.kill()
    names = ("level", "network", "format")
    rows = [dict(zip(names, key, strict=True)) | {"ms": values} for key, values in times.items()]
    return {"vector_instructions": vectors, "rows": rows}


def main(
    rounds: Annotated[int, typer.Option(min=2, help="one step in each way in each")] = 12,
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Time a step in each format, with all and with some of the processor's instructions."""
    torch.set_num_threads(1)
    found = measure(rounds)
    for row in found["rows"]:
        print(f"{row['level']}, {row['network']}, {row['format']}: {np.median(row['ms']):.1f} ms")
    if save:
        bits = {
            name: value
            for name, value in torch.cpu.get_capabilities().items()
            if name.endswith(("bf16", "fp16")) or name in ("avx2", "avx512_f")
        }
        keep(
            Path(__file__).with_suffix(".json"),
            f"lesson_code/mixed_precision/study_speed.py --rounds {rounds} --save",
            capabilities=bits,
            levels=LEVELS,
            examples=EXAMPLES,
            **found,
        )


if __name__ == "__main__":
    typer.run(main)
