"""How long one answer takes in fp32 and in int8, which lesson 24 reads.

The pretrained networks for photographs and for texts answer, because weights do not change how
long a product takes. One photograph or one text of 20 tokens is timed with one and with two
threads, and batches of photographs with one. The machine has to be idle: with a load above 0.3
nothing is measured, unless ``--busy`` is given, and then the file says so. It takes about four
minutes:

    .venv/bin/python lesson_code/deployment/study_latency.py --save
"""

import os
import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from course_tools.study.keep import keep
from course_utils.models.create import create_model
from lesson_code.deployment.latency import PERCENTILES, list_latencies
from lesson_code.deployment.quantized import quantize_convolutions, quantize_linear

CALLS, BATCH_CALLS = 3000, 200
THREADS = (1, 2)
SIZES = (1, 2, 4, 8, 16, 32, 64)
MOST_LOAD = 0.3  # mean number of busy cores in the last minute


def make_networks() -> dict[tuple[str, str], torch.nn.Module]:
    """By kind and form."""
    torch.manual_seed(0)
    network = create_model("convnet_small", 10, pretrained=True).eval()
    reader = create_model("text_small", 10, pretrained=True).eval()
    images = torch.randn(256, 3, 32, 32)
    return {
        ("photographs", "fp32"): network,
        ("photographs", "int8"): quantize_convolutions(network, images.split(64)),
        ("texts", "fp32"): reader,
        ("texts", "int8"): quantize_linear(reader),
    }


def summarize(name: tuple[str, str], threads: int, batch: int, ms: np.ndarray) -> dict:
    kind, form = name
    found = {str(p): round(float(np.percentile(ms, p)), 4) for p in PERCENTILES}
    return {"kind": kind, "form": form, "threads": threads, "batch": batch, "ms": found}


def measure(calls: int, batch_calls: int) -> list[dict]:
    networks = {", ".join(name): network for name, network in make_networks().items()}
    image, text = torch.randn(max(SIZES), 3, 32, 32), torch.randint(4, 4096, (1, 20))
    inputs = {name: text if "texts" in name else image[:1] for name in networks}
    rows = []
    for threads in THREADS:
        for name, ms in list_latencies(networks, inputs, calls, threads).items():
            rows.append(summarize(tuple(name.split(", ")), threads, 1, ms))
    photographs = {name: networks[name] for name in networks if "photographs" in name}
    for size in SIZES[1:]:
        given = dict.fromkeys(photographs, image[:size])
        for name, ms in list_latencies(photographs, given, batch_calls, 1).items():
            rows.append(summarize(tuple(name.split(", ")), 1, size, ms))
    return rows


def main(
    calls: Annotated[int, typer.Option(min=1, help="of each network")] = CALLS,
    batch_calls: Annotated[int, typer.Option(min=1, help="with several photographs")] = BATCH_CALLS,
    busy: Annotated[bool, typer.Option(help="measure beside other programs, and say so")] = False,
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Time all networks; print, and keep, what was found."""
    warnings.filterwarnings("ignore", category=UserWarning)
    load = os.getloadavg()[0]
    if load > MOST_LOAD and not busy:
        raise typer.BadParameter(f"a load of {load:.1f}: end other programs, or give --busy")
    rows = measure(calls, batch_calls)
    for row in rows:
        print(row)
    if save:
        keep(
            Path(__file__).with_suffix(".json"),
            "lesson_code/deployment/study_latency.py --save",
            calls=calls,
            batch_calls=batch_calls,
            load=round(load, 1),
            busy=load > MOST_LOAD,
            rows=rows,
        )


if __name__ == "__main__":
    typer.run(main)
