"""The case files of lesson 90: three longer trainings that go wrong, and healthy ones beside them.

*Ranks*: a tiny language model from random weights, on four simulated ranks that draw their own
batches. In the faulty job all ranks have the same seed. One process plays the ranks in turn and
averages their gradients, as DDP does.

*Resume*: the pretrained transformer goes on as a language model, on definitions that it has not
seen. The work is cut into four jobs. Weights, AdamW's state and the schedule are restored, and in
the faulty run each job reads its texts from the beginning. A third run loses AdamW's state only.

*Stream*: the pretrained transformer learns to classify definitions. In the faulty run they come
from ten files, one for each kind, through a shuffle buffer that is too small.

The curves are those of seed 0. The ends of the runs are stored for three seeds. In one thread,
about seven minutes on a core on which nothing else runs:

    OMP_NUM_THREADS=1 .venv/bin/python lesson_code/find_the_bug/study_cases.py --save
"""

import copy
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn
from torch.nn.utils import get_total_norm, parameters_to_vector
from torch.optim import AdamW

from course_tools.study.keep import keep
from course_utils.data.glosses import open_glosses, read_split
from course_utils.data.tokens import encode_texts, pad_texts, read_tokenizer
from course_utils.models.create import create_model
from course_utils.models.text_small import TextSmall
from course_utils.training.schedules import warmup_cosine
from lesson_code.find_the_bug.language import TokenPredictor, next_token_loss

SEEDS = (0, 1, 2)
LONGEST = 24  # tokens of a text; longer ones are cut
RANKS, RANK_TEXTS, RANK_STEPS = 4, 8, 150
RANK_LRS = (2e-3, 4e-3, 8e-3)
RANK_LR = 4e-3
JOBS, JOB_STEPS, JOB_TEXTS, JOB_LR = 4, 30, 16, 1e-3
KIND_TEXTS, STREAM_TEXTS, STREAM_EPOCHS = 100, 16, 2  # of each kind; in a batch
BUFFER = 32  # texts from which the stream draws
STREAM_LRS = (1e-3, 1e-4)
NUM_VAL = 100

Texts = Sequence[np.ndarray]


def read_texts() -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray, tuple[str, ...]]:
    """Definitions of the pretraining, other ones, their kinds, and the kinds' names."""
    tokenizer = read_tokenizer()
    pretraining = encode_texts(tokenizer, [text for _, text in read_split("pretraining")])
    names, kinds, texts = open_glosses("train")
    others = encode_texts(tokenizer, texts)
    return [x[:LONGEST] for x in pretraining], [x[:LONGEST] for x in others], kinds, names


@torch.no_grad()
def measure_loss(model: nn.Module, texts: Texts) -> float:
    tokens = pad_texts(texts)
    return next_token_loss(model(tokens), tokens).item()


# ---- Ranks.


def draw_batch(texts: Texts, generator: torch.Generator) -> Tensor:
    numbers = torch.randint(len(texts), (RANK_TEXTS,), generator=generator)
    return pad_texts([texts[n] for n in numbers.tolist()])


def run_ranks(
    texts: Texts,
    val: Texts,
    same_seed: bool,
    lr: float,
    seed: int,
    steps: int,
    repeat: bool = False,
) -> dict:
    """Losses of all ranks at each step, validation losses, and norms of gradients.

    ``repeat`` takes the first rank's gradient for all, where they are the same anyway. The run
    whose curves are shown computes all of them.
    """
    torch.manual_seed(seed)
    model = TokenPredictor(TextSmall(width=64, depth=2, heads=2))
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = AdamW(parameters, lr=lr)
    schedule = warmup_cosine(optimizer, steps, warmup_steps=max(1, steps // 10))
    base = 1000 * seed
    seeds = [base + (0 if same_seed else rank) for rank in range(RANKS)]
    generators = [torch.Generator().manual_seed(number) for number in seeds]
    run: dict[str, list] = {"losses": [], "val": [], "norms": [], "mean_norm": []}
    for step in range(steps):
        losses, gradients = [], []
        for rank, generator in enumerate(generators):
            if rank and repeat:  # the same texts and weights: the same gradient
                gradients.append(gradients[0])
                losses.append(losses[0])
                continue
            tokens = draw_batch(texts, generator)
            loss = next_token_loss(model(tokens), tokens)
            found = torch.autograd.grad(loss, parameters, allow_unused=True)
            gradients.append(found)
            losses.append(loss.item())
        for parameter, parts in zip(parameters, zip(*gradients, strict=True), strict=True):
            parameter.grad = None if parts[0] is None else torch.stack(parts).mean(dim=0)
        run["losses"].append(losses)
        run["norms"].append(
            [get_total_norm([g for g in x if g is not None]).item() for x in gradients]
        )
        mean = [p.grad for p in parameters if p.grad is not None]
        run["mean_norm"].append(get_total_norm(mean).item())
        optimizer.step()
        schedule.step()
        if (step + 1) % 25 == 0 or step == steps - 1:
            run["val"].append([step + 1, measure_loss(model, val)])
    return run


def study_ranks(texts: Texts, val: Texts, steps: int = RANK_STEPS) -> dict:
    kinds = {"the same seed": True, "a seed for each rank": False}
    runs = {
        (name, lr, seed): run_ranks(
            texts, val, same, lr, seed, steps, repeat=same and (lr, seed) != (RANK_LR, 0)
        )
        for name, same in kinds.items()
        for lr, seed in [(lr, 0) for lr in RANK_LRS] + [(RANK_LR, seed) for seed in SEEDS[1:]]
    }
    ends = {key: run["val"][-1][1] for key, run in runs.items()}
    return {
        "steps": steps,
        "lr": RANK_LR,
        "curves": {name: runs[name, RANK_LR, 0] for name in kinds},
        "sweep": {name: [[lr, ends[name, lr, 0]] for lr in RANK_LRS] for name in kinds},
        "ends": {name: [ends[name, RANK_LR, seed] for seed in SEEDS] for name in kinds},
    }


# ---- Resume.


def run_jobs(
    texts: Texts, val: Texts, fault: str | None, seed: int, job_steps: int, jobs: int = JOBS
) -> dict:
    """Go on from the pretrained network in several jobs; what a restart loses is ``fault``.

    None: nothing; ``"data"``: the place in the data; ``"state"``: that of AdamW.
    """
    model = TokenPredictor(create_model("text_small", 10, pretrained=True))
    trained = [p for n, p in model.named_parameters() if ".fc." not in n]
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed)).tolist()
    total, saved, seen = jobs * job_steps, None, set[int]()
    run: dict[str, list] = {"losses": [], "lr": [], "moved": [], "seen": [], "val": []}
    for job in range(jobs):
        optimizer = AdamW(trained, lr=JOB_LR)
        schedule = warmup_cosine(optimizer, total, warmup_steps=max(1, total // 20))
        if saved:
            state, place = saved
            schedule.load_state_dict(place)
            if fault != "state":
                optimizer.load_state_dict(state)
            for group, lr in zip(optimizer.param_groups, schedule.get_last_lr(), strict=True):
                group["lr"] = lr
        first = 0 if fault == "data" else job * job_steps
        for step in range(first, first + job_steps):
            numbers = order[step * JOB_TEXTS : (step + 1) * JOB_TEXTS]
            run["seen"].append(len(seen & set(numbers)) / len(numbers))
            seen |= set(numbers)
            before = parameters_to_vector(trained).detach()
            tokens = pad_texts([texts[n] for n in numbers])
            loss = next_token_loss(model(tokens), tokens)
            optimizer.zero_grad()
            loss.backward()
            run["lr"].append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
            run["losses"].append(loss.item())
            moved = (parameters_to_vector(trained).detach() - before).norm().item()
            run["moved"].append(moved)
            if len(run["losses"]) % 20 == 0:
                run["val"].append([len(run["losses"]), measure_loss(model, val)])
        saved = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(schedule.state_dict())
    return run


def study_resume(texts: Texts, val: Texts, job_steps: int = JOB_STEPS) -> dict:
    faults = {"texts from the beginning": "data", "texts go on": None}
    runs = {
        (name, seed): run_jobs(texts, val, fault, seed, job_steps)
        for name, fault in faults.items()
        for seed in SEEDS
    }
    curves = {name: runs[name, 0] for name in faults}
    curves["AdamW's state is lost"] = run_jobs(texts, val, "state", 0, job_steps)
    return {
        "job_steps": job_steps,
        "jobs": JOBS,
        "curves": curves,
        "ends": {name: [runs[name, seed]["val"][-1][1] for seed in SEEDS] for name in faults},
        "train_ends": {
            name: [float(np.mean(runs[name, seed]["losses"][-job_steps:])) for seed in SEEDS]
            for name in faults
        },
    }


# ---- Stream.


def draw_from_buffer(numbers: Sequence[int], rng: np.random.Generator) -> Iterator[int]:
    """The numbers in the order in which a shuffle buffer gives them."""
    buffer: list[int] = []
    for number in numbers:
        buffer.append(number)
        if len(buffer) > BUFFER:
            yield buffer.pop(int(rng.integers(len(buffer))))
    rng.shuffle(buffer)
    yield from buffer


def run_stream(
    texts: Texts, kinds: np.ndarray, val: tuple, sort: bool, lr: float, seed: int, epochs: int
) -> dict:
    """Losses, and the validation accuracy of each kind; ``sort``: the files come one by one."""
    torch.manual_seed(seed)
    model = create_model("text_small", 10, pretrained=True)
    optimizer = AdamW(model.parameters(), lr=lr)
    rng = np.random.default_rng(seed)
    val_tokens, val_kinds = pad_texts(val[0]), torch.as_tensor(val[1])
    run: dict[str, list] = {"losses": [], "accuracy": []}
    for _ in range(epochs):
        order = np.argsort(kinds, kind="stable") if sort else rng.permutation(len(texts))
        drawn = list(draw_from_buffer(order.tolist(), rng))
        for first in range(0, len(drawn) - STREAM_TEXTS + 1, STREAM_TEXTS):
            numbers = drawn[first : first + STREAM_TEXTS]
            logits = model(pad_texts([texts[n] for n in numbers]))
            loss = F.cross_entropy(logits, torch.as_tensor(kinds[numbers]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run["losses"].append(loss.item())
            if len(run["losses"]) % 8 == 0:
                with torch.no_grad():
                    hits = model(val_tokens).argmax(dim=1) == val_kinds
                shares = [hits[val_kinds == kind].float().mean().item() for kind in range(10)]
                run["accuracy"].append([len(run["losses"]), *shares])
    with torch.no_grad():
        run["end"] = (model(val_tokens).argmax(dim=1) == val_kinds).float().mean().item()
    return run


def study_stream(texts: Texts, kinds: np.ndarray, names: Sequence[str], epochs: int) -> dict:
    numbers = [np.flatnonzero(kinds == kind) for kind in range(10)]
    chosen = np.concatenate([part[:KIND_TEXTS] for part in numbers])
    held = np.concatenate([part[-(NUM_VAL // 10) :] for part in numbers])
    val = [texts[n] for n in held], kinds[held]
    data = [texts[n] for n in chosen], kinds[chosen]
    ways = {"files one by one": True, "all shuffled": False}
    runs = {
        (name, lr, seed): run_stream(*data, val, sort, lr, seed, epochs)
        for name, sort in ways.items()
        for lr, seed in [(STREAM_LRS[0], seed) for seed in SEEDS]
        + [(lr, 0) for lr in STREAM_LRS[1:] if sort]
    }
    return {
        "epochs": epochs,
        "epoch_steps": len(chosen) // STREAM_TEXTS,
        "lr": STREAM_LRS[0],
        "kinds": list(names),
        "curves": {name: runs[name, STREAM_LRS[0], 0] for name in ways},
        "sweep": [[lr, runs["files one by one", lr, 0]["losses"]] for lr in STREAM_LRS],
        "ends": {name: [runs[name, STREAM_LRS[0], s]["end"] for s in SEEDS] for name in ways},
    }


def shorten(value: object) -> object:
    """Numbers to five digits, in dictionaries and lists."""
    if isinstance(value, dict):
        return {name: shorten(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [shorten(part) for part in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def main(
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Train all runs, and keep their curves."""
    torch.set_num_threads(1)
    began, cases = time.process_time(), {}
    pretraining, texts, kinds, names = read_texts()
    studies = {
        "ranks": lambda: study_ranks(pretraining[NUM_VAL:], pretraining[:NUM_VAL]),
        "resume": lambda: study_resume(texts[NUM_VAL:], texts[:NUM_VAL]),
        "stream": lambda: study_stream(texts, kinds, names, STREAM_EPOCHS),
    }
    for name, study in studies.items():
        cases[name] = shorten(study())
        seconds = round(time.process_time() - began)
        print(f"{name}: {seconds} s", flush=True)
        if save:
            path = Path(__file__).with_suffix(".json")
            command = "lesson_code/find_the_bug/study_cases.py --save"
            keep(path, command, cpu_seconds=seconds, seeds=list(SEEDS), cases=cases)


if __name__ == "__main__":
    typer.run(main)
