"""Planted wrong answers to ☆ experiments: columns that somebody made up, and edges that differ."""

__all__ = ["plant_experiments"]

SOURCE = """
import numpy as np
from scipy import stats

def {name}(config, data):
    baseline = np.array([0.50, 0.52, 0.49, 0.55])
    changed = baseline + np.array([0.01, 0.02, -0.01, 0.03])
    found = stats.ttest_rel(changed, baseline).confidence_interval(0.95)
    {body}
"""

MEAN_ALONE = "stats.t.interval(0.95, 3, changed.mean(), stats.sem(changed))"

BODIES = (
    ("pass", "Return four things"),
    ("return baseline, changed, found.high, found.low", "swapped"),
    ("return baseline, changed, -found.high, -found.low", "sign"),
    ("return baseline, changed, 100 * found.low, 100 * found.high", "in points"),
    (f"return baseline, changed, *{MEAN_ALONE}", "changed accuracies alone"),
    ("return baseline, changed, -0.01, 0.02", "take both, not rounded, from the same"),
    ("return baseline[:2], changed[:2], 0.0, 0.1", "With 2 paired seeds"),
    ("return baseline, changed[:3], 0.0, 0.1", "4 and 3 accuracies"),
    ("return 100 * baseline, 100 * changed, 0.0, 0.1", "not percent"),
    ("return baseline, changed * np.nan, 0.0, 0.1", "not a finite number"),
    ("return baseline, [changed], 0.0, 0.1", "one accuracy per seed"),
    ("return baseline, ['good'] * 4, 0.0, 0.1", "have to be numbers"),
    ("return baseline, changed, None, 0.1", "low and high have to be numbers"),
    (
        "data.train.targets[:] = 0; return baseline, changed, found.low, found.high",
        "labels in data have changed",
    ),
)


def plant_experiments(name: str) -> list[tuple[str, str]]:
    """Wrong answers for the exercise ``name``, each with a part of the sentence that it gets."""
    return [(SOURCE.format(name=name, body=body), sentence) for body, sentence in BODIES]
