"""What lesson 24 reads: what int8, other preprocessing and smaller networks cost in accuracy.

Ten networks for photographs and ten for texts, of seeds 0 to 9, are trained as the best full
fine-tuning of lesson 21's study. Nothing about them is tuned here. Each network is then changed in
the ways that `judge_photographs` and `judge_texts` name, and judged on the same validation
examples, so that all differences are paired. Every change uses the defaults of its library; the
number of calibration images, 256, was set beforehand.

What makes a network smaller in other ways stands beside it, for the same ten networks: weights of
fewer bits, pruned ones, and two *students* with a sixteenth of the weights, which learn from labels
or from the network of the same seed. The students' learning rates were chosen at seed 100, from the
same three for both.

Each job is kept in ``build/deployment.jsonl`` when it has ended. One thread takes about half an
hour:

    .venv/bin/python lesson_code/deployment/study.py --save
"""

import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor, nn
from torch.optim import AdamW

from course_tools.study.jobs import run_missing
from course_tools.study.keep import keep
from course_utils.config import load_config
from course_utils.data.load import Data, load_data
from course_utils.data.tokens import pad_texts
from course_utils.measure.calibration import calibration_error
from course_utils.training.fit import fit
from course_utils.training.schedules import warmup_cosine
from lesson_code.deployment.preprocessing import AS_TRAINED, list_image_faults, list_text_faults
from lesson_code.deployment.quantized import (
    count_file_bytes,
    quantize_convolutions,
    quantize_linear,
    round_weights,
)
from lesson_code.deployment.smaller import Distillation, make_student, prune_smallest

DONE = Path("build") / "deployment.jsonl"
KINDS = {
    "photographs": ("photos", "convnet_small", 0.002),
    "texts": ("glosses", "text_small", 5e-4),
}
SEEDS, SEARCH_SEED = range(10), 100
NUM_TRAIN, NUM_VAL, EPOCHS = 1000, 1000, 5
CALIBRATION = 256  # photographs
BITS = (2, 3, 4, 6, 8)
PRUNED = (0.3, 0.5, 0.7, 0.9)
STUDENT_EPOCHS, STUDENT_LRS = 12, (0.002, 0.005, 0.0125)
STUDENTS = ("labels", "teacher")
ANSWERED = {"photographs": 256, "texts": 32}  # examples of a batch; texts are padded to its longest


@cache
def load(kind: str) -> Data:
    dataset, model, _ = KINDS[kind]
    config = load_config("quick", dataset=dataset, first_seed=0).replace(
        model=model, num_train=NUM_TRAIN, num_val=NUM_VAL, batch_size=32, progress=False
    )
    return load_data(config)


def make_config(kind: str, epochs: int):
    dataset, model, _ = KINDS[kind]
    return load_config("quick", dataset=dataset, first_seed=0).replace(
        model=model, epochs=epochs, batch_size=32, progress=False
    )


def warm_up_tenth(optimizer, total_steps: int):
    return warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 10)


def train(kind: str, seed: int, epochs: int = EPOCHS, lr: float | None = None, **options):
    """A network of this kind, in eval mode."""
    run = fit(
        make_config(kind, epochs),
        load(kind),
        seed=seed,
        make_optimizer=partial(AdamW, lr=lr or KINDS[kind][2]),
        make_schedule=warm_up_tenth,
        trainer={"check_val_every_n_epoch": epochs},
        save=False,
        **({"pretrained": True} | options),
    )
    return run.model.eval()


# ---- How a network is judged.


@torch.inference_mode()
def answer(model: Callable[[Tensor], Tensor], batches: Iterator[Tensor]) -> Tensor:
    return torch.cat([model(batch).float() for batch in batches])


def judge(logits: Tensor, targets: Tensor, reference: Tensor) -> dict[str, float]:
    """Accuracy and calibration error, and the share of answers that are those of ``reference``."""
    chosen = logits.argmax(dim=1)
    return {
        "accuracy": round((chosen == targets).float().mean().item(), 6),
        "calibration_error": round(calibration_error(logits, targets), 6),
        "confidence": round(logits.softmax(dim=1).amax(dim=1).mean().item(), 6),
        "agreement": round((chosen == reference.argmax(dim=1)).float().mean().item(), 6),
        "largest_difference": round((logits - reference).abs().max().item(), 5),
    }


def split_pixels(data) -> list[Tensor]:
    """The validation photographs ``(256, 3, H, W)`` uint8."""
    return list(
        torch.from_numpy(data.val.images).permute(0, 3, 1, 2).split(ANSWERED["photographs"])
    )


def take_calibration(data) -> list[Tensor]:
    """Training photographs, preprocessed as in validation."""
    pixels = torch.from_numpy(data.train.images[:CALIBRATION]).permute(0, 3, 1, 2)
    return list(list_image_faults(data.mean, data.std)[AS_TRAINED](pixels).split(64))


def judge_photographs(model: nn.Module) -> dict[str, dict]:
    """Of each change its accuracy and more, and the bytes of its file where it has one."""
    data = load("photographs")
    targets = torch.from_numpy(data.val.targets)
    faults = list_image_faults(data.mean, data.std)
    pixels = split_pixels(data)
    inputs = [faults[AS_TRAINED](batch) for batch in pixels]
    reference = answer(model, inputs)
    calibration = take_calibration(data)
    torch.manual_seed(0)
    noise = [torch.randn_like(batch) for batch in calibration]
    changed = {
        "fp32": model,
        "int8": quantize_convolutions(model, calibration),
        "int8, one scale per weight": quantize_convolutions(model, calibration, per_channel=False),
        "int8, calibrated on 8": quantize_convolutions(model, [calibration[0][:8]]),
        "int8, calibrated on noise": quantize_convolutions(model, noise),
        "mirrored, too": lambda x: (model(x).softmax(1) + model(x.flip(3)).softmax(1)).log(),
    }
    found = judge_all(changed, inputs, targets, reference)
    for name, fault in list(faults.items())[1:]:
        logits = answer(model, [fault(batch) for batch in pixels])
        found[f"fault: {name}"] = judge(logits, targets, reference)
    return found | judge_smaller(model, inputs, targets, reference)


def judge_texts(model: nn.Module) -> dict[str, dict]:
    """As `judge_photographs`."""
    data = load("texts")
    targets = torch.from_numpy(data.val.targets)
    size = ANSWERED["texts"]
    groups = [data.val.tokens[n : n + size] for n in range(0, len(data.val), size)]
    inputs = [pad_texts(group) for group in groups]
    reference = answer(model, inputs)
    changed = {
        "fp32": model,
        "int8": quantize_linear(model),
        "int8, embeddings too": quantize_linear(model, embeddings=["tokens"]),
    }
    found = judge_all(changed, inputs, targets, reference)
    for name, fault in list(list_text_faults().items())[1:]:
        logits = answer(model, [fault(group) for group in groups])
        found[f"fault: {name}"] = judge(logits, targets, reference)
    return found | judge_smaller(model, inputs, targets, reference)


def judge_all(changed, inputs, targets, reference) -> dict[str, dict]:
    found = {}
    for name, network in changed.items():
        found[name] = judge(answer(network, inputs), targets, reference)
        if isinstance(network, nn.Module):
            found[name]["bytes"] = count_file_bytes(network)
    return found


def judge_smaller(model, inputs, targets, reference) -> dict[str, dict]:
    """Pruned networks, and weights of few bits with one scale per row or per weight."""
    pruned = {f"pruned, {share:.0%}": prune_smallest(model, share) for share in PRUNED}
    found = judge_all(pruned, inputs, targets, reference)
    for bits, per_channel in itertools.product(BITS, (True, False)):
        logits = answer(round_weights(model, bits, per_channel), inputs)
        name = f"{bits} bits, one scale per {'row' if per_channel else 'weight'}"
        found[name] = judge(logits, targets, reference)
    return found


JUDGES = {"photographs": judge_photographs, "texts": judge_texts}


# ---- Students.


def train_student(source: str, seed: int, lr: float, teacher: nn.Module) -> dict[str, float]:
    """Accuracy of a student that learns from labels or from a teacher."""
    data = load("photographs")
    options = {}
    if source == "teacher":
        distillation = Distillation(teacher)
        options = {"batch_transform": distillation, "loss": distillation.loss}
    model = train(
        "photographs",
        seed,
        STUDENT_EPOCHS,
        lr,
        model=make_student,
        pretrained=False,
        **options,
    )
    finish = list_image_faults(data.mean, data.std)[AS_TRAINED]
    logits = answer(model, [finish(batch) for batch in split_pixels(data)])
    found = judge(logits, torch.from_numpy(data.val.targets), logits)
    return {name: found[name] for name in ("accuracy", "calibration_error")} | {
        "bytes": count_file_bytes(model)
    }


def find_student_lr(source: str) -> dict:
    """The best of `STUDENT_LRS` at the search seed, and the accuracy of each; a job of its own."""
    teacher = train("photographs", SEARCH_SEED)
    tried = {lr: train_student(source, SEARCH_SEED, lr, teacher)["accuracy"] for lr in STUDENT_LRS}
    best = max(tried, key=lambda lr: tried[lr])
    return {"lr": best, "tried": {f"{lr:g}": x for lr, x in tried.items()}}


@cache
def read_student_lrs() -> dict[str, dict]:
    """What `find_student_lr` found for each source; searched if it is not in the file of jobs."""
    jobs = [{"part": "search", "source": source} for source in STUDENTS]
    rows = run_missing(jobs, lambda job: job | find_student_lr(job["source"]), DONE)
    return {row["source"]: {"lr": row["lr"], "tried": row["tried"]} for row in rows}


# ---- Jobs.


def list_jobs() -> Iterator[dict]:
    for seed, kind in itertools.product(reversed(SEEDS), KINDS):
        yield {"part": "networks", "kind": kind, "seed": seed}


def run(job: dict) -> dict:
    """A network with all that is changed of it, and those of photographs with their students."""
    start = time.perf_counter()
    model = train(job["kind"], job["seed"])
    found = JUDGES[job["kind"]](model)
    if job["kind"] == "photographs":
        for source in STUDENTS:
            lr = read_student_lrs()[source]["lr"]
            found[f"student, {source}"] = train_student(source, job["seed"], lr, model)
    return job | {"found": found, "seconds": round(time.perf_counter() - start, 1)}


def main(
    seeds: Annotated[int, typer.Option(min=1, help="of the ten")] = len(SEEDS),
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Train and judge all networks; print, and keep, what was found."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=UserWarning)
    rows = run_missing([job for job in list_jobs() if job["seed"] < seeds], run, DONE)
    if save:
        keep(
            Path(__file__).with_suffix(".json"),
            "lesson_code/deployment/study.py --save",
            num_train=NUM_TRAIN,
            num_val=NUM_VAL,
            epochs=EPOCHS,
            threads_per_training=1,
            calibration=CALIBRATION,
            student_epochs=STUDENT_EPOCHS,
            student_lr=read_student_lrs(),
            rows=sorted(rows, key=lambda row: (row["kind"], row["seed"])),
        )


if __name__ == "__main__":
    typer.run(main)
