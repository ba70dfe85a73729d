"""One training (`fit`), paired comparisons (`compare`), and what goes into their arguments."""

from course_utils.training.compare import Comparison, compare, paired_difference
from course_utils.training.fit import fit, quiet_trainer
from course_utils.training.lit_classifier import LitClassifier
from course_utils.training.run import Run
from course_utils.training.schedules import warmup_cosine

__all__ = [
    "Comparison",
    "LitClassifier",
    "Run",
    "compare",
    "fit",
    "paired_difference",
    "quiet_trainer",
    "warmup_cosine",
]
