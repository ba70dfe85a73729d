"""What a training may use: seconds, steps of the optimizer, memory."""

from dataclasses import dataclass

from course_utils.errors import CourseError

__all__ = ["Budget"]

LONGEST_S = 86_400  # a day
LEAST_GIB, MOST_GIB = 2, 4096  # PyTorch and the course need about 1 GiB


@dataclass(frozen=True)
class Budget:
    """Of one training at one seed.

    Args:
        seconds: from before the recipe is imported to the end of its training. Without ``steps``
            a training is stopped then and judged as it is; with ``steps`` it is refused.
        steps: of all optimizers together; None: as many as the seconds allow. They are counted
            in the recipe's own process, which could hide some.
        memory_gib: of all its processes together (Linux).

    Raises:
        CourseError: a number that cannot be a budget.
    """

    seconds: float = 60
    steps: int | None = None
    memory_gib: float = 6

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= LONGEST_S:
            raise CourseError(f"--seconds {self.seconds:g}: give 1 to {LONGEST_S}")
        if self.steps is not None and self.steps < 1:
            raise CourseError(f"--steps {self.steps}: give 1 or more")
        if not LEAST_GIB <= self.memory_gib <= MOST_GIB:
            raise CourseError(f"--memory {self.memory_gib:g}: give {LEAST_GIB} to {MOST_GIB} GiB")

    @property
    def grace_s(self) -> float:
        """Seconds beyond the budget until the process is ended: it may be validating."""
        return 5 + 0.1 * self.seconds

    @property
    def answer_s(self) -> float:
        """Seconds to classify the hidden images.

        A process that says too early that its training has ended gains them at most, and they
        count as its time.
        """
        return 10 + 0.25 * self.seconds

    def describe(self) -> str:
        """In words."""
        if self.steps is None:
            return f"{self.seconds:g} s for each training"
        return f"{self.steps:,} steps for each training, in {self.seconds:g} s at most"
