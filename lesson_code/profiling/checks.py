"""Checks of the exercises of lesson 19. None of them looks at a wall-clock time."""

import copy
import itertools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from course_utils.checking.checking import checks_exercise, fail, require
from course_utils.checking.outputs import Output, is_near
from course_utils.measure.paired import paired_difference
from course_utils.models.create import create_model
from lesson_code.profiling.counting import CountOperations
from lesson_code.profiling.noisy_machine import NoisyMachine
from lesson_code.profiling.slow_script import PARTS, Training, make_batch, run_step

__all__ = [
    "check_bound_linear",
    "check_compare_batches",
    "check_compare_fairly",
    "check_replace_slow",
    "make_training_step",
]

# ---- ☆ Experiment: two batch sizes.

LEAST_ROUNDS = 5
SMALL, LARGE = 32, 256  # images per batch


def make_training_step(size: int) -> Callable[[], None]:
    """A function that trains `convnet_small` for one step on ``size`` random images."""
    model = create_model("convnet_small", 10).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    images, targets = torch.randn(size, 3, 32, 32), torch.arange(size) % 10

    def step() -> None:
        F.cross_entropy(model(images), targets).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def read_seconds(values: Any) -> np.ndarray:
    """One time per round, if it is that."""
    try:
        seconds = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        fail("The times have to be numbers, in seconds.")
    require(seconds.ndim == 1, "Give one time per round: a list of numbers for each batch size.")
    require(
        np.isfinite(seconds).all() and (seconds > 0).all(),
        "A time is not a positive number: read time.perf_counter() before and after the step.",
    )
    return seconds


def find_ratio_edges(small: np.ndarray, large: np.ndarray) -> list[float]:
    """The 95 % interval of the geometric mean of large / small, round by round."""
    logs = np.log(large / small)
    found = paired_difference(np.zeros(len(logs)), logs)
    return [math.exp(found.low), math.exp(found.high)]


@checks_exercise()
def check_compare_batches(answer: Callable) -> None:
    """``answer(make_step, small, large) -> (small_s, large_s, low, high)``, per example."""
    calls: list[int] = []

    def make_step(size: int) -> Callable[[], None]:
        weights, inputs = torch.randn(64, 64), torch.randn(size, 64)

        def step() -> None:
            calls.append(size)
            (inputs @ weights).sum()

        return step

    found = answer(make_step, SMALL, LARGE)
    require(
        isinstance(found, tuple | list) and len(found) == 4,
        "Return four things: the times with the small batch, those with the large one, low, high.",
    )
    small, large = (read_seconds(values) for values in found[:2])
    require(len(small) == len(large), "Time both batch sizes in each round.")
    require(
        len(small) >= LEAST_ROUNDS,
        f"{len(small)} rounds say little: take {LEAST_ROUNDS} or more.",
    )
    for size in (SMALL, LARGE):
        require(
            calls.count(size) > len(small),
            f"The batch of {size} ran {calls.count(size)} times for {len(small)} times: call each "
            "step once before the clock starts, to warm up.",
        )
    turns = sum(one != other for one, other in itertools.pairwise(calls))
    require(turns >= len(small), "Take turns: one step of each size in each round.")
    try:
        edges = [float(edge) for edge in found[2:]]
    except (TypeError, ValueError):
        fail("low and high have to be numbers.")
    right = find_ratio_edges(small, large)
    require(
        not is_near(edges, find_ratio_edges(large, small), 1e-5),
        "That is the interval of small / large: divide large by small.",
    )
    require(
        not is_near(edges, find_ratio_edges(small * SMALL, large * LARGE), 1e-5),
        "Return times per example: divide the seconds by the batch size, in the lists too.",
    )
    require(
        is_near(edges, right, 1e-5),
        f"The 95 % interval of these ratios is {right[0]:.4f} to {right[1]:.4f}, and yours is "
        f"{edges[0]:.4f} to {edges[1]:.4f}: take logarithms, paired_difference, and exp.",
    )
    ratio = math.sqrt(right[0] * right[1])
    print(f"one example takes {ratio:.2f} times as long in the larger batch")


# ---- ★ The shortest time of a linear layer.

LAYERS = (  # tokens, inputs, outputs; FLOP/s, bytes/s
    (1, 128, 512, 1e13, 1e10),
    (152, 128, 512, 1e11, 1e10),
    (4096, 4096, 4096, 1e11, 1e10),
    (64, 256, 10, 1e15, 3e12),
    (8, 1024, 1024, 1e9, 1e12),
)


@checks_exercise()
def check_bound_linear(answer: Callable) -> Iterator[Output]:
    """``answer(tokens, inputs, outputs, flops_per_s, bytes_per_s) -> seconds``."""
    for tokens, inputs, outputs, flops_per_s, bytes_per_s in LAYERS:
        found = answer(tokens, inputs, outputs, flops_per_s, bytes_per_s)
        require(isinstance(found, float), f"Return seconds, a Python float, not {found!r}.")
        case = (
            f"{tokens} × {inputs} → {outputs} at {flops_per_s:.0e} FLOP/s and {bytes_per_s:.0e} B/s"
        )
        otherwise = f"{found:.4g} s, and it is {{right}} s."
        yield Output(found, otherwise, f"{case}:")


# ---- ★★ Find the bugs that only cost time.

SIZES = (48, 64)  # images of two batches
# Most operations that a part without its fault needs; the slow ones need hundreds.
MOST_OPERATIONS = {"brighten": 12, "average": 30, "count_confusions": 40}
SENTENCES = {
    "brighten": "it loops over the images",
    "average": "it copies all weights, and more than once",
    "count_confusions": "it loops over pairs of classes and waits for a number in each",
}


def train(parts: dict[str, Callable]) -> Training:
    """Two steps from the same start."""
    training = Training()
    for seed, size in enumerate(SIZES):
        run_step(training, make_batch(size, seed), parts)
    return training


def count_parts(parts: dict[str, Callable]) -> dict[str, CountOperations]:
    """What each part asks of the device in one step."""
    counts: dict[str, CountOperations] = {}

    def counted(name: str) -> Callable:
        def run(*arguments: Any) -> Any:
            with CountOperations() as counts[name]:
                return parts[name](*arguments)

        return run

    run_step(Training(), make_batch(SIZES[0]), {name: counted(name) for name in parts})
    return counts


def list_state(training: Training) -> dict[str, Tensor]:
    """All that a step changes, by what a sentence calls another one."""
    return {
        "other weights": torch.cat([p.detach().flatten() for p in training.model.parameters()]),
        "other averaged weights": torch.cat([p.flatten() for p in training.averaged.parameters()]),
        "another table of confusions": training.confusions,
    }


def require_same_results(changed: dict[str, Callable]) -> None:
    """Each replaced part alone, and then all of them, train as the script does."""
    expected = list_state(train(dict(PARTS)))
    for names in [*([name] for name in changed), list(changed)]:
        parts = dict(PARTS) | {name: changed[name] for name in names}
        for what, value in list_state(train(parts)).items():
            same = is_near(value, expected[what], 1e-5)
            require(same, f"With your {' and '.join(names)}, training ends with {what}.")


@checks_exercise()
def check_replace_slow(answer: Callable) -> None:
    """``answer() -> {name: function}``: judged by operations, and by what they compute."""
    changed = answer()
    require(
        isinstance(changed, dict) and all(callable(part) for part in changed.values()),
        "Return a dictionary from the name of a part to its new function.",
    )
    unknown = sorted(map(str, changed.keys() - PARTS.keys()))
    require(not unknown, f"The script has no part {', '.join(unknown)}: see slow_script.PARTS.")
    before = {name: copy.copy(part) for name, part in PARTS.items()}
    require_same_results(changed)
    counts = count_parts(before | changed)
    slow = count_parts(before)
    left = [name for name, most in MOST_OPERATIONS.items() if counts[name].total > most]
    saved = sum(slow[name].total - counts[name].total for name in MOST_OPERATIONS)
    total = sum(slow[name].total for name in MOST_OPERATIONS)
    found = len(MOST_OPERATIONS) - len(left)
    for name in changed:
        if name not in MOST_OPERATIONS:
            print(f"{name} was no slow part: it took {slow[name].total} operations")
    for name in left:
        if name in changed:
            most = MOST_OPERATIONS[name]
            fail(
                f"Your {name} still takes {counts[name].total} operations, where {most} are "
                f"plenty: {SENTENCES[name]}."
            )
    require(
        not left,
        f"{found} of 3 slow parts are replaced ({saved / total:.0%} of their operations are "
        "saved): sort the profile by the time of the parts.",
    )
    waits = counts["count_confusions"].synchronisations
    require(
        not waits, f"count_confusions still asks the device (synchronisations per step: {waits})."
    )
    copied = counts["average"].copied_bytes
    require(not copied, f"average still copies {copied:,} bytes: change the weights in place.")
    print(f"all three found: {saved / total:.0%} of their operations are saved")


# ---- ★★★ A fair timing on a noisy machine.

RATIO = 0.98
ROUNDS = 40
MACHINES = 40
WARM_UP = 5  # calls of each step that an answer may spend before it measures
MOST_BIAS = 0.0015  # of the ratio, in the mean over machines
WIDEST = 0.03  # interval that still decides on 2 %
LEAST_COVERED = 0.85


@contextmanager
def clock_of(machine: NoisyMachine) -> Iterator[None]:
    """`time.perf_counter` reads the machine's clock inside."""
    with mock.patch.object(time, "perf_counter", machine.read_clock):
        yield


def measure_on(machine: NoisyMachine, answer: Callable) -> list[float]:
    """``[ratio, low, high]`` of an answer, if it is that."""
    with clock_of(machine):
        found = answer(machine.old, machine.new, ROUNDS)
    require(
        isinstance(found, tuple | list) and len(found) == 3,
        "Return three numbers: the ratio, and both ends of its interval.",
    )
    numbers = [float(number) for number in found]
    require(all(map(math.isfinite, numbers)), "The ratio or an end is no finite number.")
    ratio, low, high = numbers
    require(low <= ratio <= high, "The ratio lies outside of its interval: low comes first.")
    for name in ("old", "new"):
        count = machine.calls.count(name)
        require(
            count <= ROUNDS + WARM_UP,
            f"The {name} step ran {count} times: call it {ROUNDS} times, and before that at most "
            f"{WARM_UP} to warm up.",
        )
    return numbers


@checks_exercise()
def check_compare_fairly(answer: Callable) -> None:
    """``answer(old, new, rounds) -> (ratio, low, high)``, on simulated machines."""
    machines = [NoisyMachine(RATIO, seed) for seed in range(MACHINES)]
    found = np.array([measure_on(machine, answer) for machine in machines])  # (machines, 3)
    ratios, low, high = found.T
    calls = machines[0].calls
    require(
        abs(ratios.mean() - 1 / RATIO) > MOST_BIAS,
        "That is old / new: the ratio is the time of the new step, divided by the old one's.",
    )
    turns = sum(one != other for one, other in itertools.pairwise(calls))
    require(
        turns >= ROUNDS,
        "One step runs many times before the other, and the machine becomes slower meanwhile: take "
        "turns.",
    )
    bias = ratios.mean() - RATIO
    starts = [calls[-2 * ROUNDS :][place] for place in range(0, 2 * ROUNDS, 2)]
    same_order = len(set(starts)) == 1
    require(
        abs(bias) <= MOST_BIAS or not same_order,
        f"The ratio is off by {bias:+.4f} on average: the {calls[-1]} step always comes last, on a "
        "machine that becomes slower. Change the order from round to round.",
    )
    width = float(np.median(high - low))
    require(
        width <= WIDEST,
        f"The interval is {width:.3f} wide, which cannot decide about 2 %: some calls were "
        "interrupted, and they move a mean. Take a median.",
    )
    require(abs(bias) <= MOST_BIAS, f"The ratio is off by {bias:+.4f} on average.")
    covered = float(np.mean((low <= RATIO) & (high >= RATIO)))
    require(
        covered >= LEAST_COVERED,
        f"Only {covered:.0%} of the intervals hold the true ratio, where 95 % should.",
    )
    print(
        f"{MACHINES} machines: the ratio is off by {bias:+.4f} on average, {covered:.0%} of the "
        f"intervals hold the true one, and they are {width:.3f} wide"
    )
