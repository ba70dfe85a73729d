"""What lesson 90 draws first: the curves of its ten scripts, faulty and corrected.

The lesson's own cells are executed, in the profile `quick`, up to the one that trains the pairs.
Left out are checks, measurements and the cell that draws this file. In one thread, about two
minutes on a slow core:

    OMP_NUM_THREADS=1 .venv/bin/python lesson_code/find_the_bug/study.py --save
"""

import os
from pathlib import Path
from typing import Annotated

import matplotlib as mpl
import nbformat
import typer

from course_tools.study.keep import keep
from course_utils.files import ROOT

NOTEBOOK = ROOT / "notebooks" / "90_find_the_bug.ipynb"
FIRST_SEED = 100  # the lesson itself reports other seeds
LEFT_OUT = ("bug_curves", "checks.check_", "take_one(")  # cells with one of these


def read_cells() -> list[str]:
    """The code cells of the lesson that the curves need, in order; the last one makes them."""
    cells = [c.source for c in nbformat.read(NOTEBOOK, as_version=4).cells if c.cell_type == "code"]
    last = next(i for i, source in enumerate(cells) if "\ncurves = {}" in source)
    setting = f"\nFIRST_SEED = {FIRST_SEED}\n"
    needed = []
    for source in cells[: last + 1]:
        kept = not any(part in source for part in LEFT_OUT) or "def take_one(" in source
        if kept:
            needed.append(source + setting * ("PROFILE = " in source))
    return needed


def round_pair(pair: list) -> list:
    """Loss and second curve of the faulty and the corrected script, to four digits."""
    return [[[float(f"{value:.4g}") for value in curve] for curve in curves] for curves in pair]


def main(
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Train the ten pairs, and keep their curves."""
    os.environ |= {"COURSE_PROFILE": "quick", "COURSE_DATASET": "photos"}
    mpl.use("Agg")
    namespace: dict = {"display": print}
    for source in read_cells():
        exec(compile(source, "90_find_the_bug", "exec"), namespace)
    seeds = list(namespace["config"].seeds)
    curves = {
        name: [round_pair(pair) for pair in runs] for name, runs in namespace["curves"].items()
    }
    print(f"{len(curves)} pairs at the seeds {seeds}")
    if save:
        keep(
            Path(__file__).with_suffix(".json"),
            "lesson_code/find_the_bug/study.py --save",
            seeds=seeds,
            curves=curves,
        )


if __name__ == "__main__":
    typer.run(main)
