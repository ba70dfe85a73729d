"""Time, memory, calibration, and what a result was measured on."""

from typing import TYPE_CHECKING

from course_utils.measure.memory import (
    PeakBytes,
    count_parameters,
    count_saved_bytes,
    peak_memory_bytes,
    reset_peak_memory,
)

if TYPE_CHECKING:  # for editors and mypy; when the program runs, `__getattr__` imports these
    from course_utils.measure.calibration import FinalLogits, calibration_error
    from course_utils.measure.timing import (
        StepCost,
        Throughput,
        loading_rate,
        measure_step,
        time_calls,
    )

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


def __getattr__(name: str) -> object:
    """Import Lightning, which takes seconds, when the first name that needs it is used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from course_utils.measure import calibration, timing

    return getattr(calibration if name in calibration.__all__ else timing, name)
