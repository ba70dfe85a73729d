"""Planted wrong answers to ☆ exercises: columns that somebody made up, and edges that differ."""

__all__ = ["RETURN", "SEEDS", "plant_comparisons", "plant_experiments", "plant_reports"]

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


def plant_reports(baseline: str, changed: str) -> list[tuple[str, ...]]:
    """Patches of a solution for `judge_report`, by the names of its two variables."""
    both, verdict = f"return {baseline}, {changed}", f"difference({baseline}, {changed}).verdict()"
    return [
        (f"paired_{verdict}", '"no difference"', "The verdict is one of helps"),
        (both, f"return {changed}[:2], {baseline}[:2]", "With 2 paired seeds"),
        (both, f"return {baseline}, {changed}[1:]", "train both at the same seeds"),
        (both, f"return {baseline}, {baseline}", "the same accuracies, seed by seed"),
        (both, f"return {baseline}, [100 * x for x in {changed}]", "not percent"),
        (both, f"return {baseline}, [{changed}]", "one accuracy per seed"),
        (both, f"return {baseline}, ['good'] * 3", "have to be numbers"),
        (both, f"return {baseline}, [float('nan')] * 3", "not a finite number"),
        (f"{both}, paired_{verdict}", "pass", "Return three things"),
    ]


SEEDS = "range(4)"
RETURN = 'return answer | {"low": 100 * gap.low, "high": 100 * gap.high}'
SCIPY = "from scipy import stats\n    "
UNPAIRED = "stats.ttest_ind({}, {}, equal_var=False).confidence_interval(0.95)"
BY_HAND = (SCIPY + "half = {} * (gap.high - gap.low) / 2\n    return answer | "
           '{{"low": 100 * (gap.mean - half), "high": 100 * (gap.mean + half)}}')  # fmt: skip
T = "stats.t.ppf(0.975, gap.n - 1)"


def _list_intervals(baseline: str, changed: str, what: str) -> list[tuple[str, ...]]:
    unpaired = UNPAIRED.format(changed, baseline)
    return [
        (f"difference({baseline}, {changed})", f"difference({changed}, {baseline})",
         f"The interval has the wrong sign: it is of {what}."),
        (RETURN, f"{SCIPY}gap = {unpaired}\n    {RETURN}",
         "The interval is unpaired: take the differences seed by seed first."),
        (RETURN, BY_HAND.format(f"1.96 / {T}"),
         "The interval uses 1.96; with so few seeds take the t distribution, or "
         "paired_difference."),
        (RETURN, BY_HAND.format("(1 - 1 / gap.n) ** 0.5"),
         "The interval takes the standard deviation with ddof=0: few seeds need ddof=1."),
        (RETURN, BY_HAND.format("gap.n ** 0.5"),
         "The interval is not divided by √n: it is about the mean difference, not about one seed."),
        (RETURN, BY_HAND.format(f"1 / {T}"),
         "The interval is one standard error wide: a 95 % interval is wider."),
        (RETURN, RETURN.replace("100 * ", ""),
         "The interval is in units of 1, not in points: multiply by 100."),
    ]  # fmt: skip


def plant_comparisons(baseline: str, changed: str, what: str) -> list[tuple[str, ...]]:
    """Patches of a solution for `compare_planted`.

    Args:
        baseline, changed: the variables with the accuracies of both.
        what: in words, changed minus baseline.
    """
    intervals = _list_intervals(baseline, changed, what)
    of_seeds = [(SEEDS, f"range({n})", *fault) for n in (3, 4, 5) for fault in intervals]
    return [
        *of_seeds,
        ("gap.verdict()", '"equivalent" if gap.low < 0 < gap.high else gap.verdict()',
         "equivalent needs the whole interval within ±1 point"),
        ("gap.verdict()", "gap.verdict(margin=0)", "an interval within ±1 point is equivalent"),
        ("gap.verdict()", "gap.verdict(False)", "helps needs the whole interval above 0"),
        ("gap.verdict()", '"helps"', "hurts needs the whole interval below 0"),
        ("gap.verdict()", '"no difference"', "The verdict is one of helps"),
        ("100 * gap.low", "-0.5", "not the 95 % interval of the accuracies"),
        (f": {baseline}", ": [0.6, 0.61, 0.62, 0.6]", "does not hold the accuracies"),
        (f": {changed}", f": 100 * {changed}", "does not hold the accuracies"),
        (SEEDS, "(0, 0, 1)", "A seed is there twice"),
        (SEEDS, "(0, 1)", "three seeds or more"),
        (RETURN, f"return {baseline}, {changed}", "Return a dictionary"),
        (RETURN, "return answer", "lacks high, low"),
    ]  # fmt: skip
