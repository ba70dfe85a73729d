"""Time, memory, calibration, and what a result was measured on."""

from course_utils.measure.calibration import FinalLogits, calibration_error
from course_utils.measure.memory import (
    PeakBytes,
    count_parameters,
    count_saved_bytes,
    peak_memory_bytes,
    reset_peak_memory,
)
from course_utils.measure.timing import StepCost, Throughput, loading_rate, measure_step, time_calls

__all__ = [
    "FinalLogits",
    "PeakBytes",
    "StepCost",
    "Throughput",
    "calibration_error",
    "count_parameters",
    "count_saved_bytes",
    "loading_rate",
    "measure_step",
    "peak_memory_bytes",
    "reset_peak_memory",
    "time_calls",
]
