"""A simulated computer on which every timing is wrong in the ways of a real one.

Its clock takes the place of `time.perf_counter`, so that a check needs no real second and finds
the same numbers each time. The machine becomes slower and faster while it runs, as a processor does
that gets warm or has neighbours; the first calls of a step take longer, because something is still
to be compiled or loaded; and now and then another program takes the processor for a while.
"""

import math
import random
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["NoisyMachine", "Step"]

STEP_S = 0.010  # of the old step, on a machine without noise
FIRST_CALLS = (6.0, 2.5)  # the first two calls of a step take so many times as long
DRIFT = 0.006  # per call: how much slower the machine becomes while it gets warm, as a share
WARM_CALLS = 80.0  # it is warm after about so many calls
JITTER = 0.004  # standard deviation of a call's time, as a share
INTERRUPTED = 0.06  # share of the calls that another program interrupts
INTERRUPTION = (1.2, 2.5)  # they take between so many times as long


class Step(NamedTuple):
    """A step that can be called, and what a call takes on a machine without noise."""

    name: str
    seconds: float
    run: Callable[[], None]

    def __call__(self) -> None:
        self.run()


class NoisyMachine:
    """A clock, and two steps whose true ratio is known.

    Args:
        ratio: time of the new step, divided by the old one's.
        seed: of its noise.
    """

    def __init__(self, ratio: float, seed: int):
        self.ratio = ratio
        self.now = 1000.0  # seconds
        self.calls: list[str] = []  # names of the steps, as they were called
        self._random = random.Random(seed)
        self.old = self._make_step("old", STEP_S)
        self.new = self._make_step("new", ratio * STEP_S)

    def read_clock(self) -> float:
        """Seconds; the clock moves while a step runs, and at no other time."""
        return self.now

    def _make_step(self, name: str, seconds: float) -> Step:
        return Step(name, seconds, lambda: self._run(name, seconds))

    def _run(self, name: str, seconds: float) -> None:
        before = self.calls.count(name)
        self.calls.append(name)
        factor = FIRST_CALLS[before] if before < len(FIRST_CALLS) else 1.0
        factor *= 1 + DRIFT * WARM_CALLS * (1 - math.exp(-len(self.calls) / WARM_CALLS))
        factor *= math.exp(JITTER * self._random.gauss(0, 1))
        if self._random.random() < INTERRUPTED:
            factor *= self._random.uniform(*INTERRUPTION)
        self.now += seconds * factor
