"""Planted answers of lesson 00: `course_tools.publish.planted` says how to read them."""

EDGES = "stats.ttest_rel(treated, baseline).confidence_interval(0.95)"
WITHIN = "-margin <= interval.low and interval.high <= margin"
DIFFERENCE = "(treated - baseline)"
NORMAL = f"stats.norm.interval(0.95, {DIFFERENCE}.mean(), stats.sem{DIFFERENCE})"
BY_HAND = f"stats.t.interval(0.95, len(treated) - 1, {DIFFERENCE}.mean(), {{}})"
MEAN_WITHIN = f"abs({DIFFERENCE}.mean()) <= margin"
WIDTH = "The width is wrong. "

WRONG = {
    "judge": [
        ("rel(treated, baseline)", "rel(baseline, treated)",
         "The sign is turned round: a difference is treated minus baseline."),
        ("0.95", "0.0", "That judges the mean alone: the verdict follows from the interval."),
        ("_rel", "_ind",
         "That is the interval of two unpaired samples: take the differences, seed by seed."),
        (EDGES, f"pd.Series({NORMAL}, ['low', 'high'])",
         f"{WIDTH}1.96 is the normal quantile: with n − 1 degrees of freedom t is larger."),
        ("0.95", "0.9", f"{WIDTH}95 % inside leaves 2.5 % on each side, so 0.975."),
        (EDGES, f"pd.Series({BY_HAND.format(f'{DIFFERENCE}.std() / len(treated) ** 0.5')}, "
         "['low', 'high'])", f"{WIDTH}The standard deviation divides by n: use ddof=1."),
        (EDGES, f"pd.Series({BY_HAND.format(f'{DIFFERENCE}.std(ddof=1)')}, ['low', 'high'])",
         f"{WIDTH}That of one difference: the mean of n scatters less, divide by √n."),
        (WITHIN, f"interval.low <= 0 <= interval.high and {WITHIN}",
         "Zero comes before the margin: an interval within ±margin is equivalent even where it "
         "excludes zero, because such a difference does not matter."),
        (WITHIN, MEAN_WITHIN, "The mean lies within the margin, the interval does not: only the "
         "whole interval shows that two variants are equivalent."),
        ("inconclusive", "equivalent", "An interval that contains zero is not yet equivalent: if "
         "it is wider than the margin, it is inconclusive."),
        (WITHIN, "False", "An interval within ±margin is equivalent: ask that first."),
        ("margin <=", "1.0 <=", "<= margin", "<= 1.0",
         "The margin is an argument: you compare with ±1 point."),
        ("return \"inconclusive\"", "pass", "is there a return"),
        ("equivalent", "no evidence", "one of the words helps, hurts, equivalent, inconclusive, "),
        ("inconclusive", "hurts", "inconclusive, not hurts."),
        ("0.95", "0.999", "equivalent, not inconclusive."),
        ("interval =", "treated -= baseline\n    interval =", "changes the columns"),
    ],
}  # fmt: skip

RIGHT = {
    "judge": [
        """
def judge(baseline, treated, margin):
    return paired_difference(baseline, treated).verdict(margin=margin)
""",
        (EDGES, f"np.array({BY_HAND.format(f'stats.sem{DIFFERENCE}')})",
         WITHIN, "abs(interval).max() <= margin",
         "interval.low > 0", "interval.min() > 0", "interval.high < 0", "interval.max() < 0"),
    ],
}  # fmt: skip
