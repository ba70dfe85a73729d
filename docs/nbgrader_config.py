"""nbgrader for this course: copy it into the folder of your class, beside ``source/``."""

import os

c = get_config()  # noqa: F821 (nbgrader defines it)
c.CourseDirectory.course_id = "training"
c.ExecutePreprocessor.timeout = 120  # seconds for one cell
c.ExecutePreprocessor.interrupt_on_timeout = True  # a loop without end loses its own cell only
c.ExecutePreprocessor.startup_timeout = 120

os.environ["COURSE_PROFILE"] = "smoke"  # the exercises are the same, the trainings seconds
os.environ["COURSE_PROGRESS"] = "0"
try:
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (6 * 2**30, 6 * 2**30))  # bytes, for one notebook
except ImportError:  # Windows has no such limit
    pass
