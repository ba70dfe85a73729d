"""Four puzzles: write the schedule of each rank, within a time and within a memory.

The idea of puzzles whose answer is a schedule of collectives is that of S. Rush, LLM Training
Puzzles, https://github.com/srush/LLM-Training-Puzzles, 2023.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from course_utils import plots
from course_utils.gantt import draw_bars, make_legend
from course_utils.ranks import ON_CPU, run_ranks
from lesson_code.sharding import messages
from lesson_code.sharding.schedules import Schedule
from lesson_code.sharding.simulator import Simulation, Task, simulate

__all__ = ["PUZZLES", "Puzzle", "draw_simulation", "judge", "run_solved", "try_puzzle"]

COLOURS = {
    "forward": plots.COLOURS[0],
    "backward": plots.COLOURS[1],
    "update": plots.COLOURS[2],
    "communication": plots.COLOURS[3],
    "wait": "#d0d0d0",
}


@dataclass(frozen=True)
class Puzzle:
    """A task with limits for the slowest and the fullest rank, and for the bytes of each rank."""

    task: Task
    most_time: float  # in units of one forward pass through one layer
    most_bytes: int  # in the memory of a rank at any moment
    most_sent_bytes: int  # by a rank


PUZZLES: Mapping[str, Puzzle] = {
    "data parallel": Puzzle(Task(), 16, 19 * 1024, 6 * 1024),
    "sharded optimizer state": Puzzle(Task(), 15, 13 * 1024, 6 * 1024),
    "fully sharded": Puzzle(Task(), 15, 11 * 1024, 9 * 1024),
    "pipeline": Puzzle(Task(batches=8), 38, 9 * 1024, 16 * 1024),
}


def find_puzzle(name: str) -> Puzzle:
    """The puzzle of this name.

    Raises:
        ValueError: there is none.
    """
    if name not in PUZZLES:
        raise ValueError(f"there is no puzzle {name!r}: take one of {', '.join(PUZZLES)}")
    return PUZZLES[name]


def judge(puzzle: Puzzle, found: Simulation) -> str | None:
    """What is wrong with a simulated schedule, in one sentence; None: nothing."""
    if found.problem:
        return found.problem
    rank = max(range(len(found.peak_bytes)), key=found.peak_bytes.__getitem__)
    if found.peak_bytes[rank] > puzzle.most_bytes:
        return (
            f"Rank {rank} needs {found.peak_bytes[rank]:,} bytes in {found.peak_at[rank]}, and "
            f"{puzzle.most_bytes:,} are allowed. It holds {found.peak_of[rank]}: store less, free "
            "earlier, or run fewer forward passes ahead."
        )
    if found.time > puzzle.most_time:
        return (
            f"The step takes {found.time:g} units of time, and {puzzle.most_time:g} are allowed: "
            "look for ranks that wait, compute what another one computes, or communicate more than "
            "they have to."
        )
    rank = max(range(len(found.sent_bytes)), key=found.sent_bytes.__getitem__)
    if found.sent_bytes[rank] > puzzle.most_sent_bytes:
        return (
            f"Rank {rank} sends {found.sent_bytes[rank]:,} bytes, and {puzzle.most_sent_bytes:,} "
            "are allowed."
        )
    return None


def draw_simulation(found: Simulation, most_bytes: int, title: str) -> Figure:
    """Above what each rank does and when, below the bytes that it holds, with the limit."""
    task = found.task
    names = [f"rank {rank}" for rank in range(task.ranks)]
    figure, (gantt, memory) = plt.subplots(
        2, 1, figsize=(8.6, 1.8 + 0.3 * task.ranks), sharex=True, height_ratios=[1.2, 1]
    )
    draw_bars(gantt, found.bars, COLOURS, names)
    are_equal = all(curve == found.curves[0] for curve in found.curves)
    for rank, curve in enumerate(found.curves[: 1 if are_equal else None]):
        label = "each rank" if are_equal else names[rank]
        colour = plots.COLOURS[rank % len(plots.COLOURS)]
        memory.step(*zip(*curve, strict=True), where="post", color=colour, label=label, alpha=0.8)
    memory.axhline(most_bytes, color="black", ls="--", lw=1, label="limit of the peak")
    memory.set(xlabel="time (forward passes of a layer)", ylabel="held (bytes)", ylim=(0, None))
    memory.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    handles = make_legend(found.bars, COLOURS)
    gantt.legend(handles=handles, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    gantt.set_title(title)
    return figure


def try_puzzle(name: str, schedule: Schedule) -> Simulation:
    """Play a schedule, draw it as far as it came, and say what is wrong or what it needs.

    Raises:
        ValueError: there is no such puzzle.
    """
    puzzle = find_puzzle(name)
    found = simulate(schedule, puzzle.task)
    problem = judge(puzzle, found)
    if found.bars:
        verdict = "not solved yet" if problem else "solved"
        draw_simulation(found, puzzle.most_bytes, f"{name}: {verdict}")
        plt.show()
    if problem:
        print(f"✗ {problem}")
    else:
        print(
            f"✓ {name}: time {found.time:g} of {puzzle.most_time:g}, peak "
            f"{max(found.peak_bytes):,} of {puzzle.most_bytes:,} bytes, at most "
            f"{max(found.sent_bytes):,} of {puzzle.most_sent_bytes:,} bytes sent by a rank"
        )
    return found


def _simulate_solved(name: str, schedule: Schedule, ranks: int) -> Simulation | None:
    """The schedule on ``ranks`` ranks, if it solves its puzzle; else a line says that it does not.

    A pipeline has a layer for each rank, and the other puzzles have a batch for each. The layers
    are smaller, with 144 weights, so that 2, 3 and 4 ranks can share them.
    """
    puzzle = find_puzzle(name)
    try:
        problem = judge(puzzle, simulate(schedule, puzzle.task))
    except NotImplementedError:  # the stub of an exercise
        problem = "it is not written yet"
    if problem:
        print(f"{name}: not solved yet, and not run")
        return None
    smaller = {"layers": ranks} if name == "pipeline" else {"batches": ranks}
    found = simulate(schedule, replace(puzzle.task, ranks=ranks, width=12, rows=12, **smaller))
    if found.problem:
        print(f"{name}: solves its puzzle, but not {ranks} ranks: {found.problem}")
        return None
    return found


def run_solved(attempts: Mapping[str, Schedule], ranks: int) -> dict[str, tuple[float, bool]]:
    """Run the schedules that solve their puzzles in real processes.

    Args:
        attempts: schedules by the names of puzzles.
        ranks: processes that are started.

    Returns:
        By name, the largest difference of a weight from one process, and whether every rank sent
        and held the bytes of the simulator.
    """
    simulated = {
        name: found
        for name, schedule in attempts.items()
        if (found := _simulate_solved(name, schedule, ranks))
    }
    messages.write_programs(simulated)
    measured = run_ranks(messages, processes=ranks, environment=ON_CPU)
    results = {}
    for name, found in simulated.items():
        gap = max(rank["gap"] for rank in measured[name])
        sent = [rank["sent_bytes"] for rank in measured[name]]
        held = [rank["held_bytes"] for rank in measured[name]]
        results[name] = gap, sent == found.sent_bytes and held == found.held_bytes
        print(f"{name}: weights differ by {gap:.0e}; bytes sent, by rank: {sent} counted, "
              f"{found.sent_bytes} simulated")  # fmt: skip
    return results
