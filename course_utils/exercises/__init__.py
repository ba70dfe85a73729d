"""Checks of the exercises: one module a lesson, one function an exercise.

A check calls the student's function on random inputs, compares it with an oracle and either
prints that it passed or raises `CheckFailed` with one sentence on what is wrong.
"""

from course_utils.exercises.checking import CheckFailed

__all__ = ["CheckFailed"]
