"""Run `measure(rank, size)` of several modules in every rank of one start."""

from course_utils.processes.ranks import run_ranks

__all__ = ["run_ranks"]
