"""Checks of the exercises: one module per lesson, one function per exercise.

A check calls the student's function on random inputs, compares it with an oracle and either
prints that it passed or raises `CheckFailed` with one sentence on what is wrong. A check of a few
lines may stand in its cell of the lesson instead; the names here are what it needs.
"""

from course_utils.checking.checking import CheckFailed, checks_exercise, diagnose, fail, require

__all__ = ["CheckFailed", "checks_exercise", "diagnose", "fail", "require"]
