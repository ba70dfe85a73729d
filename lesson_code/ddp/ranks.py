"""Run `measure(rank, size)` of several modules in every rank of one start."""

from course_utils.ranks import run_ranks

__all__ = ["run_ranks"]
