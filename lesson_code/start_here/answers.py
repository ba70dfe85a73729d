"""Planted answers of the lesson's exercises."""

JUDGE = """
def judge(baseline, treated, margin):
    {edges}
    if -margin <= low and high <= margin:
        return "{equivalent}"
    if low > 0:
        return "helps"
    {otherwise}
"""


INTERVAL = "low, high = stats.ttest_rel(treated, baseline).confidence_interval(0.95)"


LAST = 'return "hurts" if high < 0 else "inconclusive"'


def _judge(edges=INTERVAL, equivalent="equivalent", otherwise=LAST):
    return JUDGE.format(edges=edges, equivalent=equivalent, otherwise=otherwise)


WRONG_ANSWERS = {
    "judge": [
        (JUDGE.replace("{edges}", "pass").partition("    if")[0], "is there a return"),
        (_judge(equivalent="no evidence"), "Return one of the words helps, .* not 'no evidence'"),
        (_judge(otherwise='return "hurts"'), "the interval is .*: inconclusive, not hurts"),
        (_judge(edges=INTERVAL.replace("0.95", "0.999")), "the interval is .* inconclusive"),
        (
            _judge(edges=f"treated -= baseline\n    {INTERVAL}"),
            "changes the columns",
        ),
        (_judge(edges="low, high = 1 / 0"), "stopped with ZeroDivisionError"),
    ],
}


OTHER_RIGHT_ANSWERS = {
    "judge": [
        """
def judge(baseline, treated, margin):
    return paired_difference(baseline, treated).verdict(margin=margin)
""",
        """
def judge(baseline, treated, margin):
    pairs = [after - before for before, after in zip(baseline, treated, strict=True)]
    mean, error = np.mean(pairs), stats.sem(pairs)
    half_width = stats.t.ppf(0.975, len(pairs) - 1) * error
    if abs(mean) + half_width <= margin:
        return "equivalent"
    if abs(mean) <= half_width:
        return "inconclusive"
    return "helps" if mean > 0 else "hurts"
""",
    ],
}
