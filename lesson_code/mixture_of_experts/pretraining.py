"""What ``study_pretraining.json`` holds, paired by seeds, and what live trainings record."""

from collections.abc import Mapping
from typing import Any

import lightning as L
import numpy as np
from scipy import stats

from course_utils.measure.paired import PairedDifference, paired_difference
from course_utils.training.schedules import warmup_cosine
from lesson_code.mixture_of_experts.experts import list_experts

VARIANTS = ("dense", "experts", "wide", "dense, as long")

__all__ = ["ExpertUse", "Pretraining", "explain_choices", "warm_up_tenth"]


class Pretraining:
    """The reported trainings of the study of pretraining.

    Args:
        content: of its JSON file.
    """

    def __init__(self, content: Mapping[str, Any]):
        self.margin: float = content["margin"]
        self.recipe: dict[str, Any] = content["recipe"]
        self.hardware: dict[str, Any] = content["hardware"]
        self.made: str = content["made"]
        reported = [row for row in content["rows"] if row["seed"] in content["seeds"]]
        self.variants = list(VARIANTS)
        done = {(row["variant"], row["seed"]) for row in reported}
        # while the study is trained, those that every variant has
        self.seeds = [x for x in content["seeds"] if all((v, x) in done for v in VARIANTS)]
        self.rows: list[dict[str, Any]] = [row for row in reported if row["seed"] in self.seeds]

    def values(self, variant: str, metric: str = "loss") -> np.ndarray:
        """One value for each seed ``(S,)``: loss in nats per token, accuracy, seconds …"""
        found = {x["seed"]: x[metric] for x in self.rows if x["variant"] == variant}
        return np.array([found[seed] for seed in self.seeds], dtype=float)

    def difference(self, treated: str, baseline: str, metric: str = "loss") -> PairedDifference:
        """Treated minus baseline over the same seeds."""
        return paired_difference(self.values(baseline, metric), self.values(treated, metric))

    def describe_verdict(self, treated: str, baseline: str) -> str:
        """Of the loss, as the course's verdicts: less is better."""
        found = self.difference(treated, baseline)
        return found.describe_verdict(False, self.margin, 1, "nats")

    def time_ratio(self, treated: str, baseline: str = "dense") -> float:
        """Processor time of a training, as a multiple: the median over the seeds."""
        ratios = self.values(treated, "seconds") / self.values(baseline, "seconds")
        return float(np.median(ratios))

    def describe_provenance(self) -> str:
        about = self.hardware
        return (
            f"{len(self.seeds)} paired seeds; {about['cpu']}, {about['cores']} cores; 1 thread "
            f"for each training; {self.made}"
        )


def warm_up_tenth(optimizer, total_steps: int):
    return warmup_cosine(optimizer, total_steps, warmup_steps=total_steps // 10)


class ExpertUse(L.Callback):
    """Record after each step which share of its choices each expert got.

    ``shares`` has an entry for each step: for each layer a list of n shares.
    """

    def __init__(self) -> None:
        self.shares: list[list[list[float]]] = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        sizes = [layer.sizes for layer in list_experts(pl_module)]
        self.shares.append([[count / sum(layer) for count in layer] for layer in sizes])


def explain_choices(chosen: np.ndarray, known: np.ndarray) -> float:
    """The share of the choice's uncertainty that something known about a token explains.

    The mutual information of both, divided by the entropy of the choice: 0 if they are
    independent, 1 if what is known decides the choice. With many kinds and few tokens it is above
    0 by chance alone, so compare it with what shuffled choices give.

    Args:
        chosen: the expert of each token ``(M,)``, integers.
        known: something else about each token ``(M,)``, integers.
    """
    _, columns = np.unique(known, return_inverse=True)
    table = np.zeros((chosen.max() + 1, columns.max() + 1))
    np.add.at(table, (chosen, columns), 1)
    marginal = stats.entropy(table.sum(axis=1))
    if marginal == 0:
        return 0.0
    joint = stats.entropy(table.ravel())
    return float((marginal + stats.entropy(table.sum(axis=0)) - joint) / marginal)
