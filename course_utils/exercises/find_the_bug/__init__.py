"""Checks of the exercises of lesson 90, gathered from the modules that hold them by subject."""

from course_utils.exercises.find_the_bug.data import (
    check_repair_folder,
    check_repair_sessions,
    check_repair_shards,
)
from course_utils.exercises.find_the_bug.measuring import (
    check_repair_accuracy,
    check_repair_search,
    check_repair_smoothing,
)
from course_utils.exercises.find_the_bug.models import (
    check_repair_probabilities,
    check_repair_probe,
)
from course_utils.exercises.find_the_bug.script import (
    check_repair_script,
    load_script,
    read_script,
)
from course_utils.exercises.find_the_bug.steps import (
    check_repair_accumulation,
    check_repair_schedule,
)

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
