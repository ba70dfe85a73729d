"""What lesson 11 reads: how many images per second a training processes with each loader.

Every loader is the lesson's own, and feeds the same training steps on the same JPEG files. Each
round trains with all of them, forth and back in turn, so that what else the machine does hits all
alike. A training is two epochs in a row. Workers stay alive from round to round, and an untimed
epoch with each loader comes first. DALI prepares its next batches beyond the end, two of 24 at
most: a pause before and after each training catches the processor time of this work, so it counts
where it is caused. The processor time of workers counts, too.

About 20 s a round on two cores, on which nothing else may run. The file is written at the end, so
an interrupted measurement leaves the old one:

    .venv/bin/python lesson_code/dali/study_speed.py --rounds 10 --save
"""

import ast
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import nbformat
import psutil
import torch
import typer
from torch.utils.data import DataLoader

from course_tools.study.keep import keep, name_data
from course_tools.study.lesson_code import read_definitions
from course_utils.config import load_config
from course_utils.data.image_data import ImageData
from course_utils.data.load import load_data
from course_utils.files import ROOT
from course_utils.models.create import create_model
from lesson_code.dali.jpegs import draw_scenes, read_jpeg, write_jpegs

LESSON, BASE = "11_dali", "image by image"
GRAPH = ("augment", "read_and_resize", "make_pipeline", "NativeLoader")
IMAGES, EPOCHS = 768, 2
THREADS = 2  # of PyTorch in this process, and of DALI
PAUSE_S = 0.1
Loaders = dict[str, Iterable]


def write_definitions(names: tuple[str, ...], path: Path) -> str:
    """Some functions and classes of the lesson in a file: DALI reads the source of its graphs."""
    notebook = nbformat.read(ROOT / "notebooks" / f"{LESSON}.ipynb", as_version=4)
    nodes = [node for cell in notebook.cells for node in _parse(cell)]
    source = "\n\n".join(
        ast.unparse(node) for node in nodes if getattr(node, "name", None) in names
    )
    path.write_text(source, encoding="utf-8")
    return source


def _parse(cell: nbformat.NotebookNode) -> list[ast.stmt]:
    left_out = "nbgrader" in cell.metadata or "card" in cell.metadata.get("tags", [])
    if cell.cell_type != "code" or left_out:
        return []
    return ast.parse(cell.source).body


def read_lesson(data: ImageData, folder: Path) -> dict[str, Any]:
    """The lesson's functions and classes, and its large and small files in a folder."""
    import albumentations as A  # after course_utils has turned its look for updates off
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali import math as dali_math
    from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

    files = write_jpegs(draw_scenes(data.train), folder / "large")
    names = {"A": A, "fn": fn, "pipeline_def": pipeline_def, "types": types}
    names |= {"dali_math": dali_math, "DALIGenericIterator": DALIGenericIterator}
    names |= {"LastBatchPolicy": LastBatchPolicy, "THREADS": THREADS, "BASE": BASE}
    names |= {"data": data, "files": files}
    names |= {"crop": len(read_jpeg(files.paths[0])) // 2, "size": data.train.images.shape[1]}
    lesson = read_definitions(LESSON, **names)
    path = folder / "graph.py"
    exec(compile(write_definitions(GRAPH, path), path, "exec"), lesson)
    images = (lesson["cut_middle"](read_jpeg(path)) for path in files.paths)
    lesson["small_files"] = write_jpegs(zip(images, files.targets, strict=True), folder / "small")
    return lesson


def make_loaders(lesson: dict[str, Any]) -> Loaders:
    """All loaders by the names that the lesson gives them."""
    data, load_files = lesson["data"], lesson["load_files"]
    workers = {"persistent_workers": True, "worker_init_fn": lesson["seed_worker"]}
    by_batch = lesson["BatchLoader"]
    loaders: Loaders = {
        BASE: load_files(data, 0),
        "one worker": load_files(data, 0, num_workers=1, **workers),
        "two workers": load_files(data, 0, num_workers=2, **workers),
        "DALI": lesson["NativeLoader"](data, 0),
        "batched augmentation": by_batch(lesson["files"], 0),
        "small files": lesson["load_small"](data, 0),
        "small files, batched": by_batch(lesson["small_files"], 0),
    }
    first = next(iter(loaders[BASE]))
    loaders["one batch repeated"] = DataLoader([first] * (IMAGES // len(first[1])), batch_size=None)
    return loaders


def read_processor_s() -> float:
    """Seconds of the processor that this process and its workers have used so far."""
    process = psutil.Process()
    return sum(
        times.user + times.system
        for times in (one.cpu_times() for one in (process, *process.children(recursive=True)))
    )


def measure_training(loader: Iterable, step: Callable, epochs: int = EPOCHS) -> dict:
    """Images per second of a training, and the milliseconds of the processor for each image."""
    time.sleep(PAUSE_S)
    count, spent, start = 0, read_processor_s(), time.perf_counter()
    for _ in range(epochs):
        for batch in loader:
            step(batch)
            count += len(batch[1])
    seconds = time.perf_counter() - start
    time.sleep(PAUSE_S)
    spent = read_processor_s() - spent
    return {
        "images_per_s": round(count / seconds, 1),
        "processor_ms": round(1000 * spent / count, 4),
    }


def measure(rounds: int, data: ImageData) -> list[dict]:
    """A row for each loader and round."""
    torch.set_num_threads(THREADS)
    with tempfile.TemporaryDirectory() as folder:
        lesson = read_lesson(data, Path(folder))
        loaders = make_loaders(lesson)
        torch.manual_seed(0)
        run = partial(
            measure_training,
            step=lesson["make_train_step"](create_model("convnet_small", data.num_classes)),
        )
        for loader in loaders.values():  # warm-up
            run(loader, epochs=1)
        rows = []
        for number in range(rounds):
            for name in list(loaders)[:: 1 if number % 2 == 0 else -1]:
                rows.append({"round": number, "loader": name} | run(loaders[name]))
                print(rows[-1], flush=True)
        loaders.clear()  # and with them their workers, before their files go
    return rows


def main(
    rounds: Annotated[int, typer.Option(min=2, help="each of them trains with all loaders")] = 10,
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Train with all loaders in turn; print, and keep, what was measured."""
    config = load_config("quick", dataset="photos")
    data = load_data(config).take_train(IMAGES)
    rows = measure(rounds, data)
    if save:
        keep(
            Path(__file__).with_suffix(".json"),
            f"lesson_code/dali/study_speed.py --rounds {rounds} --save",
            dataset=name_data("photos"),
            num_train=len(data.train),
            epochs=EPOCHS,
            batch_size=data.batch_size,
            rows=rows,
        )


if __name__ == "__main__":
    typer.run(main)
