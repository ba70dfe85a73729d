"""Checks of the exercises of lesson 90, gathered from the modules that hold them by subject."""

from lesson_code.find_the_bug.checks.data import (
    check_repair_folder,
    check_repair_sessions,
    check_repair_shards,
)
from lesson_code.find_the_bug.checks.measuring import (
    check_repair_accuracy,
    check_repair_search,
    check_repair_smoothing,
)
from lesson_code.find_the_bug.checks.models import check_repair_probabilities, check_repair_probe
from lesson_code.find_the_bug.checks.script import check_repair_script, load_script, read_script
from lesson_code.find_the_bug.checks.steps import check_repair_accumulation, check_repair_schedule

__all__ = [
    "check_repair_accumulation",
    "check_repair_accuracy",
    "check_repair_folder",
    "check_repair_probabilities",
    "check_repair_probe",
    "check_repair_schedule",
    "check_repair_script",
    "check_repair_search",
    "check_repair_sessions",
    "check_repair_shards",
    "check_repair_smoothing",
    "load_script",
    "read_script",
]
