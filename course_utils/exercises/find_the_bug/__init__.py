"""Checks of the exercises of lesson 90, gathered from the modules that hold them by subject."""

from course_utils.exercises.find_the_bug.data import check_repair_shards, check_repair_worker
from course_utils.exercises.find_the_bug.measuring import (
    check_repair_accuracy,
    check_repair_search,
    check_repair_smoothing,
)
from course_utils.exercises.find_the_bug.models import (
    check_repair_probabilities,
    check_repair_probe,
)
from course_utils.exercises.find_the_bug.steps import (
    check_repair_scaler,
    check_repair_schedule,
    check_repair_window,
)

__all__ = [
    "check_repair_accuracy",
    "check_repair_probabilities",
    "check_repair_probe",
    "check_repair_scaler",
    "check_repair_schedule",
    "check_repair_search",
    "check_repair_shards",
    "check_repair_smoothing",
    "check_repair_window",
    "check_repair_worker",
]
