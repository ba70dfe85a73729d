"""What lesson 16 reads: optimizers after the same number of tuning trials, on fresh seeds.

1,000 photographs, the small network from random weights, batches of 64. *Scientific* is the
optimizer. *Nuisance* are its learning rate and weight decay: 12 trials for each optimizer from its
declared space, the same quasi-random points for all of them. *Fixed* is all the rest: the network,
the batch size, a warm-up of a tenth of the steps, then a cosine to zero (schedule-free: none).
Once for a short and once for a long training. The best trial of each is then trained at seeds that
no trial has seen, beside AdamW at its default settings, and beside the best AdamW and SAM with
BatchNorm statistics computed anew, as schedule-free has them. Last, sweeps of SAM's rho and of the
weight decay at the settings of the best trials.

To add an optimizer, add a line to ``CANDIDATES``.

Each training is kept in ``build/optimizers.jsonl`` when it has ended. A second call goes on from
there. Two processes with one thread each take about 40 minutes on two cores on which nothing else
runs:

    .venv/bin/python lesson_code/optimizers/study_trials.py --save
"""

import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import lightning as L
import timm.optim
import typer
from schedulefree import AdamWScheduleFree
from torch.optim import SGD, Adafactor, AdamW, Optimizer
from torch.optim.swa_utils import update_bn
from torch.utils.data import DataLoader

from course_tools.study.jobs import run_missing
from course_tools.study.keep import keep, name_data
from course_tools.study.lesson_code import read_definitions
from course_utils.config import Config, load_config
from course_utils.data.image_data import ImageData
from course_utils.data.load import load_data
from course_utils.measure.provenance import read_commit
from course_utils.training.fit import fit
from course_utils.training.parameter_groups import make_grouped
from course_utils.training.schedules import warmup_cosine

LESSON = read_definitions("16_optimizers")
DONE = Path("build") / "optimizers.jsonl"
EPOCHS = (4, 10)
TRIALS = 12
FIRST_TRIAL_SEED = 100  # trial number i of every optimizer has seed 100 + i
SEEDS = range(5)
SWEEP_SEEDS = range(3)
WARMUP = 0.1  # share of the steps


class Candidate(NamedTuple):
    """An optimizer and the space of its trials, log-uniform in both."""

    make: Callable[..., Optimizer]
    lr: tuple[float, float]
    weight_decay: tuple[float, float]


def make_lookahead(named_parameters: list, **options: Any) -> Optimizer:
    return timm.optim.Lookahead(AdamW(named_parameters, **options))


def make_centralized(named_parameters: list, **options: Any) -> Optimizer:
    LESSON["centralize_gradients"](parameter for _, parameter in named_parameters)
    return AdamW(named_parameters, **options)


NESTEROV = partial(SGD, momentum=0.9, nesterov=True)
COUPLED, DECOUPLED = (1e-5, 1e-2), (1e-3, 1.0)  # L2 in the gradient; applied to the weights
CANDIDATES = {
    "SGD": Candidate(NESTEROV, (1e-3, 0.1), COUPLED),
    "AdamW": Candidate(AdamW, (3e-4, 3e-2), DECOUPLED),
    "SAM": Candidate(partial(LESSON["SAM"], base=NESTEROV), (1e-3, 0.1), COUPLED),
    "Lion": Candidate(timm.optim.Lion, (3e-5, 3e-3), (3e-3, 3.0)),
    "Muon": Candidate(timm.optim.Muon, (3e-4, 3e-2), DECOUPLED),
    "schedule-free": Candidate(AdamWScheduleFree, (3e-4, 3e-2), DECOUPLED),
    "AdamW, Lookahead": Candidate(make_lookahead, (3e-4, 3e-2), DECOUPLED),
    "AdamW, centralized": Candidate(make_centralized, (3e-4, 3e-2), DECOUPLED),
    "MADGRAD": Candidate(timm.optim.MADGRAD, (1e-4, 1e-2), (1e-6, 1e-3)),
    "Adafactor": Candidate(Adafactor, (1e-3, 0.1), DECOUPLED),
}
RHOS = (0.0, 0.005, 0.02, 0.05, 0.1)
SWEPT = {"SGD": (0.0, 5e-4, 5e-3, 5e-2), "AdamW": (0.0, 0.01, 0.1, 1.0, 10.0)}


class NewStatistics(L.Callback):
    """Before each validation, BatchNorm statistics of the weights as they are then."""

    def __init__(self, loader: DataLoader):
        self.loader = loader

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        update_bn(self.loader, pl_module.get_submodule("model"), pl_module.device)


def list_points(candidate: Candidate) -> list[tuple[float, float]]:
    """Learning rate and weight decay of each trial."""
    points = LESSON["draw_points"](*zip(*candidate[1:], strict=True), trials=TRIALS)
    return [(float(f"{lr:.3g}"), float(f"{decay:.3g}")) for lr, decay in points.tolist()]


def list_trials() -> Iterator[dict]:
    for epochs, (name, candidate) in itertools.product(EPOCHS, CANDIDATES.items()):
        for number, (lr, weight_decay) in enumerate(list_points(candidate)):
            yield {
                "kind": "trial",
                "optimizer": name,
                "epochs": epochs,
                "lr": lr,
                "weight_decay": weight_decay,
                "seed": FIRST_TRIAL_SEED + number,
            }


def choose_best(trials: list[dict]) -> dict[tuple[int, str], dict]:
    """The best trial of each optimizer at each length, by the accuracy at the end."""
    best = {}
    for epochs, name in itertools.product(EPOCHS, CANDIDATES):
        own = [row for row in trials if (row["epochs"], row["optimizer"]) == (epochs, name)]
        best[epochs, name] = max(own, key=lambda row: row["accuracies"][-1])
    return best


def list_fresh(best: dict[tuple[int, str], dict]) -> Iterator[dict]:
    for seed, row in itertools.product(SEEDS, best.values()):
        kept = {key: row[key] for key in ("optimizer", "epochs", "lr", "weight_decay")}
        yield {"kind": "fresh", **kept, "seed": seed}


def list_controls(best: dict[tuple[int, str], dict]) -> Iterator[dict]:
    """AdamW as PyTorch has it; the best AdamW and SAM with BatchNorm statistics computed anew."""
    for seed, epochs in itertools.product(SEEDS, EPOCHS):
        row = {"epochs": epochs, "seed": seed}
        default = {"kind": "default", "optimizer": "AdamW", "lr": 1e-3, "weight_decay": 1e-2}
        yield row | default
        for name in ("AdamW", "SAM"):
            tuned = {key: best[epochs, name][key] for key in ("lr", "weight_decay")}
            yield row | {"kind": "new statistics", "optimizer": name} | tuned


def list_distances(best: dict[tuple[int, str], dict]) -> Iterator[dict]:
    """SAM's rho at the settings of its best trial; 0 is SGD."""
    kept = {key: best[EPOCHS[-1], "SAM"][key] for key in ("optimizer", "lr", "weight_decay")}
    for seed, rho in itertools.product(SWEEP_SEEDS, RHOS):
        yield {"kind": "rho", **kept, "epochs": EPOCHS[-1], "rho": rho, "seed": seed}


def list_decays(best: dict[tuple[int, str], dict]) -> Iterator[dict]:
    """The decay at the learning rate of the best trial; AdamW also without that of norms."""
    for seed, (name, decays) in itertools.product(SWEEP_SEEDS, SWEPT.items()):
        for decay, norms in itertools.product(decays, (True, False)):
            if norms or (name == "AdamW" and decay):
                yield {
                    "kind": "decay",
                    "optimizer": name,
                    "epochs": EPOCHS[-1],
                    "lr": best[EPOCHS[-1], name]["lr"],
                    "weight_decay": decay,
                    "decay_norms": norms,
                    "seed": seed,
                }


def train(job: dict, config: Config, data: ImageData) -> dict:
    """The job with the validation accuracy after each epoch."""
    free = job["optimizer"] == "schedule-free"
    config = config.replace(epochs=job["epochs"])
    steps = job["epochs"] * len(data.train_loader())
    warmup = round(WARMUP * steps)
    callbacks: list[L.Callback] = []
    if free:
        callbacks = [LESSON["ScheduleFreeModes"](data.train_loader())]
    if job["kind"] == "new statistics":
        callbacks = [NewStatistics(data.train_loader())]
    make = partial(
        CANDIDATES[job["optimizer"]].make, lr=job["lr"], weight_decay=job["weight_decay"]
    )
    if free:
        make = partial(make, warmup_steps=warmup)
    if "rho" in job:
        make = partial(make, rho=job["rho"])
    if not job.get("decay_norms", True):
        make = partial(
            make_grouped, AdamW, lr=job["lr"], weight_decay=job["weight_decay"], decay_norms=False
        )
    run = fit(
        config,
        data,
        seed=job["seed"],
        make_optimizer=make,
        make_schedule=None if free else partial(warmup_cosine, warmup_steps=warmup),
        trainer={"callbacks": callbacks},
        save=False,
    )
    accuracies = [round(epoch["val_accuracy"], 4) for epoch in run.history]
    return job | {"accuracies": accuracies, "commit": read_commit()}


def main(
    save: Annotated[bool, typer.Option(help="write the JSON file beside this one")] = False,
) -> None:
    """Run the trials, then the best of them at fresh seeds, then the sweep of the decay."""
    config = load_config("quick", dataset="photos").replace(progress=False)
    data = load_data(config)
    run = partial(train, config=config, data=data)
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes below
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        trials = run_missing(list_trials(), run, DONE, pool)
        best = choose_best(trials)
        checks = (list_fresh, list_controls, list_distances, list_decays)
        later = [job for list_jobs in checks for job in list_jobs(best)]
        rows = trials + run_missing(later, run, DONE, pool)
    if save:
        keep(
            Path(__file__).with_suffix(".json"),
            "lesson_code/optimizers/study_trials.py --save",
            dataset=name_data("photos"),
            num_train=len(data.train),
            num_val=len(data.val),
            threads_per_training=1,
            warmup=WARMUP,
            spaces={name: candidate[1:] for name, candidate in CANDIDATES.items()},
            rows=rows,
        )


if __name__ == "__main__":
    typer.run(main)
