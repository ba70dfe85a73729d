"""Checks of the exercises of lesson 20; ranks are threads, but for the ☆ one's."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from course_utils.checking.checking import checks_exercise, diagnose, fail, require
from course_utils.checking.group import Group, run_group
from course_utils.checking.outputs import Output
from lesson_code.sharding import memory, zero
from lesson_code.sharding.puzzles import PUZZLES, judge
from lesson_code.sharding.simulator import simulate

__all__ = [
    "check_count_beside_frozen",
    "check_measure_own",
    "check_schedule_pipeline",
    "check_train_sharded",
]

NAMES = "weights, gradients, optimizer state"


def _read_parts(found: Any, where: str) -> list[int]:
    """The bytes of the three parts, if it is that."""
    require(isinstance(found, Mapping), f"{where} is no dictionary with the keys {NAMES}.")
    missing = [part for part in memory.PARTS if part not in found]
    require(not missing, f"{where} has no key {', '.join(missing)}: its keys are {NAMES}.")
    values = [found[part] for part in memory.PARTS]
    whole = all(isinstance(value, int) and not isinstance(value, bool) for value in values)
    require(whole, f"{where}: give whole bytes, as ints.")
    return values


# ---- ☆ Predict and measure.

OWN = (1, 2)  # depth and ranks of the check's configuration

WRONG_PREDICTIONS: list[tuple[str, Callable[[list[int], int], dict[str, int]]]] = [
    (
        "The prediction is that of DDP: ZeRO 3 divides all three parts.",
        lambda units, ranks: memory.held_bytes(units, 0, ranks),
    ),
    (
        "The prediction is that of ZeRO 1: stage 3 divides weights and gradients too.",
        lambda units, ranks: memory.held_bytes(units, 1, ranks),
    ),
    (
        "The prediction is that of ZeRO 2: stage 3 divides the weights too.",
        lambda units, ranks: memory.held_bytes(units, 2, ranks),
    ),
    (
        "The prediction has numbers, not bytes: fp32 has 4 bytes for each.",
        lambda units, ranks: {
            part: size // 4 for part, size in memory.held_bytes(units, 3, ranks).items()
        },
    ),
]


@checks_exercise()
def check_measure_own(answer: Callable) -> None:
    """``answer(depth, ranks) -> (predicted, measured)``: bytes of rank 0 under `fully_shard`."""
    depth, ranks = OWN
    found = answer(depth, ranks)
    pair = isinstance(found, tuple | list) and len(found) == 2
    require(pair, "Return two dictionaries: predicted and measured bytes of rank 0.")
    predicted = _read_parts(found[0], "The prediction")
    measured = _read_parts(found[1], "The measurement")
    units = zero.list_unit_sizes(zero.make_model(depth))
    right = list(memory.held_bytes(units, 3, ranks).values())
    require(
        measured == right,
        f"The measured bytes {measured} are not those of rank 0 of {ranks} with {depth} block: run "
        'the ranks with "names": ["fully_shard"], and read "held" of rank 0.',
    )
    diagnose(
        predicted,
        lambda predict: list(predict(units, ranks).values()),
        lambda units, ranks: memory.held_bytes(units, 3, ranks),
        WRONG_PREDICTIONS,
        f"The prediction {predicted} is not what rank 0 holds, {right}: count the parameters with "
        "zero.list_unit_sizes(zero.make_model(depth)).",
        tolerance=0,
    )
    print(f"rank 0 of {ranks} holds {sum(measured):,} bytes, as predicted")


# ---- ★ The calculator with a frozen part.

# trained, frozen, stage, ranks: parts that divide and parts that do not, one rank, nothing frozen
FROZEN = (
    (1000, 0, 0, 4),
    (1001, 3, 0, 4),
    (1000, 9000, 0, 2),
    (1001, 9002, 1, 4),
    (1001, 9002, 2, 4),
    (1001, 9002, 3, 4),
    (7, 3, 3, 8),
    (1000, 9000, 3, 1),
)


@checks_exercise()
def check_count_beside_frozen(answer: Callable) -> Iterator[Output]:
    """``answer(trained, frozen, stage, ranks) -> bytes`` of one rank in fp32, by part."""
    for trained, frozen, stage, ranks in FROZEN:
        case = f"{trained} trained, {frozen} frozen, stage {stage}, {ranks} ranks:"
        found = _read_parts(answer(trained, frozen, stage, ranks), "The answer")
        for part, value in zip(memory.PARTS, found, strict=True):
            otherwise = f"{value:,} bytes, where {{right}} are right."
            yield Output(value, otherwise, case=f"{case} {part}:", tolerance=1e-9)


# ---- ★★ Find the bugs of a ZeRO 1.

TOLERANCE = 1e-6
LR, SAVED_STEPS, STEPS = 0.05, 3, 3
SHARDED_CASES = ((6, 2), (12, 3))  # numbers, ranks


def _target(numbers: int, rank: int) -> Tensor:
    """What the weights of this rank's loss are drawn to; all numbers are different."""
    places = torch.arange(numbers, dtype=torch.float64)
    return torch.sin(places + 7 * rank) * (1 + places)


def _compute_gradient(target: Tensor, weights: Tensor) -> Tensor:
    """Of half of the squared distance from the target, and of a part that is not linear."""
    return (weights - target) + 0.1 * torch.sin(3 * weights)


class _Gradients:
    """The gradient of one rank, and at which weights it was asked for."""

    def __init__(self, numbers: int, rank: int) -> None:
        self.target, self.asked = _target(numbers, rank), 0

    def __call__(self, weights: Tensor) -> Tensor:
        self.asked += 1
        require(weights.shape == self.target.shape, "compute_gradient takes all weights, (P,).")
        return _compute_gradient(self.target, weights.detach())


def _train_alone(numbers: int, ranks: int, steps: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Weights (P,) and AdamW's state after some steps of one process."""
    weights = nn.Parameter(torch.linspace(-1, 1, numbers, dtype=torch.float64))
    optimizer = AdamW([weights], lr=LR)
    for _ in range(steps):
        gradients = [_compute_gradient(_target(numbers, r), weights.detach()) for r in range(ranks)]
        weights.grad = torch.stack(gradients).mean(dim=0)
        optimizer.step()
    return weights.detach().clone(), dict(optimizer.state[weights])


def _make_states(state: dict[str, Tensor], ranks: int) -> list[dict]:
    """What each rank has saved: the `state_dict` of an AdamW of its part."""
    found = []
    for rank in range(ranks):
        cut = {
            name: value.chunk(ranks)[rank].clone() if value.ndim else value.clone()
            for name, value in state.items()
        }
        part = nn.Parameter(torch.zeros(len(cut["exp_avg"]), dtype=torch.float64))
        optimizer = AdamW([part], lr=LR)
        found.append(optimizer.state_dict() | {"state": {0: cut}})
    return found


@checks_exercise()
def check_train_sharded(answer: Callable) -> Iterator[Output]:
    """``answer(weights, compute_gradient, states, rank, size, group, steps) -> weights``."""
    for numbers, ranks in SHARDED_CASES:
        start, state = _train_alone(numbers, ranks, SAVED_STEPS)
        gradients = [_Gradients(numbers, rank) for rank in range(ranks)]

        def run(
            group: Group,
            rank: int,
            start: Tensor = start,
            state: dict[str, Tensor] = state,
            gradients: list[_Gradients] = gradients,
        ) -> object:
            size = len(gradients)
            states = _make_states(state, size)
            return answer(start.clone(), gradients[rank], states, rank, size, group, STEPS)

        found = run_group([partial(run, rank=rank) for rank in range(ranks)])
        for rank, weights in enumerate(found):
            if not isinstance(weights, Tensor) or weights.shape != (numbers,):
                fail(f"Rank {rank} returns no tensor of the {numbers} weights.")
        case = f"{numbers} weights on {ranks} ranks:"
        same = all(torch.equal(weights, found[0]) for weights in found)
        require(same, f"{case} the ranks end with different weights: gather all parts.")
        asked = {count.asked for count in gradients}
        require(asked == {STEPS}, f"{case} compute the gradient once in each of {STEPS} steps.")
        yield Output(
            found[0],
            "not the weights of one process: look at the parts, the mean, the state, the gather.",
            case=case,
            tolerance=TOLERANCE,
        )


# ---- ★★★ A puzzle.

OTHER_SIZES = ((2, 5), (4, 2))  # ranks and batches, without limits


@checks_exercise()
def check_schedule_pipeline(answer: Callable) -> None:
    """``answer(rank, ranks, layers, batches)`` yields the instructions of a rank."""
    puzzle = PUZZLES["pipeline"]
    said = judge(puzzle, simulate(answer, puzzle.task))
    require(said is None, said or "")
    for ranks, batches in OTHER_SIZES:
        other = replace(puzzle.task, ranks=ranks, layers=ranks, batches=batches)
        problem = simulate(answer, other).problem
        require(
            problem is None,
            f"It solves the puzzle, but not {ranks} ranks with {batches} batches: {problem}",
        )
