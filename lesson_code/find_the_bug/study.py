"""The curves of lesson 90's scripts: each faulty script beside its correction, at ten paired seeds.

Scripts and corrections are read from the notebook, and `Bench` gives both the same start, as in the
profile `quick`. In one thread, about ten minutes on a core on which nothing else runs:

    OMP_NUM_THREADS=1 .venv/bin/python lesson_code/find_the_bug/study.py --save
"""

import ast
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import nbformat
import torch
import typer

from course_tools.study.keep import keep
from course_utils.config import load_config
from course_utils.data.load import load_data
from course_utils.files import ROOT
from lesson_code.find_the_bug.bench import Bench

NOTEBOOK = ROOT / "notebooks" / "90_find_the_bug.ipynb"
SEEDS = range(100, 110)  # the lesson itself trains at others
PAIRS = {
    "1 Ana": ("anas_schedule", "repair_schedule"),
    "2 Noor": ("noors_language_model", "repair_padding"),
    "3 Olu": ("olus_language_model", "repair_labels"),
    "4 Pia": ("pias_adapters", "repair_adapters"),
    "5 Ben": ("bens_accuracy", "repair_accuracy"),
    "6 Chen": ("chens_probabilities", "repair_probabilities"),
    "7 Dana": ("danas_accumulation", "repair_accumulation"),
    "8 Emil": ("emils_smoothing", "repair_smoothing"),
    "9 Femi": ("femis_probe", "repair_probe"),
    "10 Hugo": ("hugos_shards", "repair_shards"),
    "11 Kai": ("kais_folder", "repair_folder"),
    "12 Lea": ("leas_sessions", "repair_sessions"),
    "13 Jun": ("juns_search", "repair_search"),
}


def read_functions() -> dict[str, Callable]:
    """All functions of the notebook, solutions included; nothing but its imports is executed."""
    cells = [c for c in nbformat.read(NOTEBOOK, as_version=4).cells if c.cell_type == "code"]
    namespace: dict = {}
    exec(next(c.source for c in cells if "imports" in c.metadata.get("tags", [])), namespace)
    nodes = [node for cell in cells for node in ast.parse(cell.source).body]
    functions: list[ast.stmt] = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    exec(compile(ast.Module(functions, type_ignores=[]), NOTEBOOK.stem, "exec"), namespace)
    return namespace


def make_bench() -> Bench:
    """As the lesson makes it in `quick`."""
    config = load_config("quick", dataset="photos").replace(num_train=512, num_val=400)
    texts = load_data(config.replace(dataset="glosses", model="text_small"))
    data = load_data(config)
    return Bench(data, texts, epochs=config.epochs, batch_size=16, lr=0.1, repeats=16)


def round_pair(pair: list) -> list:
    """Loss and second curve of the faulty and the corrected script, to four digits."""
    return [[[float(f"{value:.4g}") for value in curve] for curve in curves] for curves in pair]


def main(
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Train the pairs, and keep their curves."""
    torch.set_num_threads(1)
    functions, bench, began = read_functions(), make_bench(), time.process_time()
    curves: dict[str, list] = {name: [] for name in PAIRS}
    for seed in SEEDS:
        for name, pair in PAIRS.items():
            looks = [bench.look(name, functions[part], seed) for part in pair]
            curves[name].append(round_pair(looks))
        seconds = round(time.process_time() - began)
        print(f"seed {seed}: {seconds} s", flush=True)
        if save:
            path = Path(__file__).with_suffix(".json")
            seeds = list(range(SEEDS[0], seed + 1))
            command = "lesson_code/find_the_bug/study.py --save"
            keep(path, command, cpu_seconds=seconds, seeds=seeds, curves=curves)


if __name__ == "__main__":
    typer.run(main)
