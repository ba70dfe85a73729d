"""What the checks of ☆ experiments share: the interval is recomputed from the accuracies."""

import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course_utils.checking.checking import Faults, diagnose, fail, require
from course_utils.config import Config, load_config
from course_utils.data import load_data
from course_utils.measure.paired import paired_difference

__all__ = ["judge_experiment", "read_accuracies", "run_experiment"]

MIN_SEEDS = 3


def run_experiment(answer: Callable[[Config, Any], Any], **changes: Any) -> Any:
    """What the student's experiment returns on tiny data, where a training takes about a second.

    Its runs are recorded in a temporary folder: they are no results of the lesson. Each training
    seeds PyTorch by itself, and the random state outside stays as it was.

    Args:
        answer: ``(config, data) -> found``.
        changes: of the config, for a lesson that is not about drawings, for instance
            ``dataset="glosses", model="text_small"``. They should not make a training longer.
    """
    tiny = {"num_train": 192, "num_val": 200, "batch_size": 16, "epochs": 2}
    # its trainings take seconds altogether, so a person sees the bar of `compare`
    config = load_config("smoke", dataset="shapes", first_seed=0).replace(**tiny | changes)
    before = os.environ.get("COURSE_RUNS_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["COURSE_RUNS_DIR"] = folder
        try:
            with torch.random.fork_rng(devices=[]):
                data = load_data(config)
                before_labels = [part.targets.copy() for part in (data.train, data.val)]
                found = answer(config, data)
        finally:
            if before is None:
                del os.environ["COURSE_RUNS_DIR"]
            else:
                os.environ["COURSE_RUNS_DIR"] = before
    for labels, part in zip(before_labels, (data.train, data.val), strict=True):
        require(
            np.array_equal(labels, part.targets),
            "The labels in data have changed: change a copy, and use replace.",
        )
    return found


def judge_experiment(found: Any) -> None:
    """Recompute what a student's experiment found, and print its verdict.

    Args:
        found: ``(baseline, changed, low, high)``: one accuracy in [0, 1] per seed of each variant,
            and the edges of the 95 % interval of the mean difference, changed minus baseline.

    Raises:
        CheckFailed: it is not that, or the interval is not that of the accuracies.
    """
    require(
        isinstance(found, tuple | list) and len(found) == 4,
        "Return four things: the accuracies of the baseline, those of the change, low and high.",
    )
    baseline, changed = (read_accuracies(values) for values in found[:2])
    require(
        len(baseline) == len(changed),
        f"There are {len(baseline)} and {len(changed)} accuracies: train both at the same seeds.",
    )
    require(
        len(baseline) >= MIN_SEEDS,
        f"With {len(baseline)} paired seeds the interval says little: take {MIN_SEEDS} or more.",
    )
    if np.array_equal(baseline, changed):  # possible after so short a training
        print("Both columns are equal: has the change reached the training?")
    _compare_edges(found[2], found[3], baseline, changed)
    difference = paired_difference(baseline, changed)
    print(
        f"{100 * difference.mean:+.2f} points over {difference.n} paired seeds, 95 % interval "
        f"{difference.format_interval(100)}: {difference.describe_verdict()}"
    )


def read_accuracies(values: Any) -> np.ndarray:
    """One accuracy per seed, if it is that."""
    try:
        accuracies = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        fail("The accuracies have to be numbers: comparison.values(…) gives them.")
    require(accuracies.ndim == 1, "Give one accuracy per seed: comparison.values(…) does.")
    require(np.isfinite(accuracies).all(), "An accuracy is not a finite number: look at its run.")
    require(
        (accuracies >= 0).all() and (accuracies <= 1).all(),
        "Give accuracies from 0 to 1, not percent.",
    )
    return accuracies


def _find_edges(baseline: np.ndarray, changed: np.ndarray) -> tuple[float, float]:
    difference = paired_difference(baseline, changed)
    return difference.low, difference.high


EDGE_FAULTS: Faults = (
    ("The edges are swapped: low comes first.", lambda b, c: _find_edges(b, c)[::-1]),
    (
        "The sign is turned round: a difference is changed minus baseline.",
        lambda b, c: _find_edges(c, b),
    ),
    (
        "The edges are in points: give them in the unit of the accuracies, from -1 to 1.",
        lambda b, c: [100 * edge for edge in _find_edges(b, c)],
    ),
    (
        "That is the interval of the changed accuracies alone: subtract the baseline.",
        lambda b, c: _find_edges(np.zeros_like(c), c),
    ),
)


def _compare_edges(low: Any, high: Any, baseline: np.ndarray, changed: np.ndarray) -> None:
    """Fail unless ``low`` and ``high`` are the edges of the paired 95 % interval."""
    try:
        edges = [float(low), float(high)]
    except (TypeError, ValueError):
        fail("low and high have to be numbers: comparison.difference(…) has both.")
    right_low, right_high = _find_edges(baseline, changed)
    diagnose(
        edges,
        lambda other: other(baseline, changed),
        _find_edges,
        EDGE_FAULTS,
        f"The 95 % interval of these accuracies is {right_low:+.6f} to {right_high:+.6f}, and "
        f"yours is {edges[0]:+.6f} to {edges[1]:+.6f}: take both, not rounded, from the same "
        "comparison.",
    )
