"""Planted answers of lesson 25: `course_tools.publish.planted` says how to read them."""

from itertools import chain, combinations

from course_tools.publish.planted_experiments import plant_experiments

DROP = "    judging = np.setdiff1d(judging, choosing)\n"
RETURN = "return int(best), seen[best], hits[best, judging].mean()"
P_VALUE = "stats.binomtest(int(only_rival), int(throws)).pvalue if throws else 1.0"
HOLM = "(len(rivals) - rank)"

NEW = "        model = make_model()\n        train"
EVAL = "        model.eval()\n"
BEST = 'found["val"]))'
DIVIDE = "/ len(targets)"
FOUR = (
    ('found = {"val"', 'model, found = make_model(), {"val"', NEW, "        train"),
    (EVAL, ""),
    (BEST, 'found["test"]))'),
    (DIVIDE, '/ len(parts["val"][1])'),
)
SOME_OF_FOUR = [
    (*chain(*some), f"{word} of the four faults are left.")
    for count, word in ((2, "Two"), (3, "Three"), (4, "All"))
    for some in combinations(FOUR, count)
]

WRONG = {
    "measure_optimism": plant_experiments("measure_optimism"),
    "judge_winner": [
        (DROP, "", "Images that are in both sets must not judge."),
        (DROP, "    choosing = np.setdiff1d(choosing, judging)\n",
         "Images that are in both sets choose, and do not judge: take them out of judging."),
        ("hits[best, judging]", "hits[best, choosing]",
         "The images that chose have judged: take those of judging."),
        ("hits[best, judging]", "hits[best]", "All images have judged: take those of judging."),
        ("seen = hits[:, choosing]", "seen = hits[:, judging]",
         "The images that judge have chosen."),
        ("seen.argmax()", "len(seen) - 1 - seen[::-1].argmax()",
         "Of equally good candidates the first one is asked for."),
        ("seen.argmax()", "seen.argmin()", "The candidate with the highest accuracy wins."),
        (RETURN, "return int(best), hits[best, judging].mean(), seen[best]",
         "These are swapped: first the accuracy on the images that choose, then that of the "
         "others."),
        (RETURN, "return int(best), 100 * seen[best], 100 * hits[best, judging].mean()",
         "Give accuracies from 0 to 1, not percent."),
        (RETURN, "return int(best), seen[best], hits[:, judging].mean(axis=1).max()",
         "This is the best accuracy of any candidate on the images that judge: take the winner's."),
        (RETURN, "return seen[best], hits[best, judging].mean()", "Return three numbers"),
        (RETURN, "return int(best) + 1, seen[best], hits[best, judging].mean()",
         "not the numbers that are asked for"),
        (RETURN, "return 7, seen[best], hits[best, judging].mean()",
         "The candidate is its number in hits"),
        (DROP, DROP + "    hits[:] = hits[::-1].copy()\n", "must stay as they were"),
        ("seen[best], hits", "seen[best] / 2, hits", "not the numbers that are asked for"),
    ],
    "find_different": [
        (HOLM, "1", "The p-values are not corrected for the number of comparisons."),
        (HOLM, "len(rivals)",
         "That is Bonferroni's correction: with Holm's the factor falls by one from each "
         "comparison to the next one."),
        ("            break\n", "            continue\n",
         "After the first comparison that does not differ, no other one does."),
        ("np.argsort(p_values)", "range(len(rivals))", "Sort the p-values first."),
        ("np.argsort(p_values)", "np.argsort(p_values)[::-1]",
         "Begin with the smallest p-value, which has the largest factor."),
        ("int(only_rival), int(throws)).pvalue",
         'int(only_rival), int(throws), alternative="greater").pvalue',
         "The test is two-sided: a rival that is worse differs, too."),
        (P_VALUE, "stats.fisher_exact([[rival.sum(), (~rival).sum()], [baseline.sum(), "
         "(~baseline).sum()]]).pvalue",
         "This test takes the two accuracies as if they were of different images: count the images "
         "on which exactly one network is right."),
        (">= 0.05", ">= 0.01", "The level is 5 %."),
        ("different[number] = True", "different[rank] = True",
         "The answers are in the order of the p-values: put each one at the place of its rival."),
        ("return different", "return ~different", "True is for a rival that differs."),
        ("return different", "return different.astype(int)", "Return booleans"),
        ("return different", "return different[:1] if len(different) > 1 else different[:0]",
         "one boolean for each rival"),
        ("    p_values = []", "    rivals[:] = rivals[::-1].copy()\n    p_values = []",
         "must stay as they were"),
        ("return different", "return different & (np.arange(len(rivals)) != 1)",
         "It should be another answer"),
    ],
    "search_settings": [
        (*FOUR[0], "One network is trained on for all settings, so from the second one on it goes "
         "on from the one before: make a new one for each setting."),
        (*FOUR[1], "The network judges in train mode: call eval()."),
        (*FOUR[2], "The test images choose: let the validation images choose."),
        (*FOUR[3], "The number of right images is divided by the number of validation images: "
         "divide by the images that were counted."),
        ('return best, found["test"][best]', 'return best, found["val"][best]',
         "The images that chose have judged: report the accuracy on the test images."),
        ('return best, found["test"][best]', 'return best, max(found["test"])',
         "This is the best accuracy of any setting on the test images: take that of the setting "
         "that was chosen."),
        ('int(np.argmax(found["val"]))',
         'len(settings) - 1 - int(np.argmax(found["val"][::-1]))',
         "Of equally good settings the first one is asked for."),
        *SOME_OF_FOUR,
        ('return best, found["test"][best]', "return best", "Return two numbers"),
        ('return best, found["test"][best]', 'return best + 9, found["test"][best]',
         "The first number is that of the setting"),
        ("model = make_model()", 'model = make_model()\n        parts["val"][0].add_(1)',
         "must stay as they were"),
        ("def search", "@torch.no_grad()\ndef search", "needs gradients"),
        ('return best, found["test"][best]', 'return best, found["test"][best] / 2',
         "not the numbers that are asked for"),
    ],
}  # fmt: skip

RIGHT = {
    "measure_optimism": [
        ("(0.0005, 0.001, 0.002)", "(0.001, 0.002, 0.004)", "(0, 1, 2)", "(3, 4, 5)"),
        ('"pretrained": True, ', "", "return fresh, seen", "return np.array(fresh), tuple(seen)"),
    ],
    "judge_winner": [
        (DROP, "    judging = [image for image in judging if image not in set(choosing)]\n",
         "int(best), seen", "best, seen"),
        """\
def judge_winner(hits, choosing, judging):
    others = np.zeros(hits.shape[1], dtype=bool)
    others[judging], others[choosing] = True, False
    seen = [row[choosing].sum() for row in hits]
    best = seen.index(max(seen))
    return [best, seen[best] / len(choosing), hits[best, others].sum() / others.sum()]
""",
    ],
    "find_different": [
        """\
def find_different(baseline, rivals):
    p_values = np.ones(len(rivals))
    for number, rival in enumerate(rivals):
        rival_wins = int(np.sum(rival > baseline))
        differ = int(np.sum(rival != baseline))
        tail = stats.binom.cdf(min(rival_wins, differ - rival_wins), differ, 0.5)
        p_values[number] = min(1.0, 2 * tail)
    order = np.argsort(p_values)
    corrected = np.maximum.accumulate(p_values[order] * np.arange(len(order), 0, -1))
    return corrected[np.argsort(order)] < 0.05
""",
        ("np.argsort(p_values)", "sorted(range(len(rivals)), key=p_values.__getitem__)",
         "(rival & ~baseline).sum(), (baseline & ~rival).sum()",
         "(rival > baseline).sum(), (rival < baseline).sum()"),
    ],
    "search_settings": [
        ('/ len(targets)', "/ targets.numel()", "model.eval()", "model.train(False)"),
        """\
def search_settings(make_model, train, settings, parts):
    seen, networks = [], []
    for setting in settings:
        networks.append(make_model())
        train(networks[-1], *parts["train"], setting)
        seen.append(measure(networks[-1].eval(), *parts["val"]))
    best = max(range(len(seen)), key=seen.__getitem__)
    return best, measure(networks[best], *parts["test"])

@torch.no_grad()
def measure(model, inputs, targets):
    return (model(inputs).argmax(dim=1) == targets).float().mean().item()
""",
    ],
}  # fmt: skip
