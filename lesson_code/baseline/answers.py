"""Planted answers of lesson 01: `course_tools.publish.planted` says how to read them."""

DIFFERENCE = "np.asarray(treated) - np.asarray(baseline)"
EDGES = "difference.mean() - half, difference.mean() + half"
UNPAIRED = "stats.ttest_ind(treated, baseline, equal_var={}).confidence_interval(0.95)"
WIDTH = "The width is wrong. "
NOISE = "100 * np.std(accuracies, ddof=1)"
GAIN = "best - lucky.mean()"
SHARE = "np.mean(lucky >= best)"

WRONG = {
    "report_noise": [
        (NOISE, "np.std(accuracies, ddof=1)", "in the unit of the accuracies"),
        (", ddof=1", "", "divides by n: use ddof=1"),
        (NOISE, "1e4 * np.var(accuracies, ddof=1)", "That is the variance"),
        (NOISE, "100 * np.ptp(accuracies)", "the best seed from the worst"),
        (NOISE, "7.5", "and yours is 7.5"),
        (NOISE, "None", "has to be a number"),
        (f"return accuracies, {NOISE}", "pass", "Return two things"),
        ("return accuracies", "return accuracies[:2]", "2 accuracies say little"),
        ("return accuracies", "return [100 * x for x in accuracies]", "not percent"),
        ("return accuracies", "return [accuracies]", "one accuracy per seed"),
        ("return accuracies", "return ['good'] * 3", "have to be numbers"),
        ("return accuracies", "return [math.nan] * 3", "not a finite number"),
        ("return accuracies", "return [0.5] * 3", "All accuracies are equal"),
    ],
    "paired_interval": [
        (DIFFERENCE, "np.asarray(baseline) - np.asarray(treated)",
         "The sign is turned round: a difference is treated minus baseline."),
        ("half =", "half = -", "The lower edge comes first: (low, high)."),
        (EDGES, "difference.mean(), half",
         "Those are the mean and half the width: return both edges, (low, high)."),
        (" - np.asarray(baseline)", "",
         "That is the interval of the treated accuracies: subtract the baseline, seed by seed."),
        (EDGES, "np.percentile(difference, (2.5, 97.5))",
         "Those are percentiles of the differences: take mean ± t · s / √n."),
        (EDGES, UNPAIRED.format(True),
         f"{WIDTH}That of two unpaired samples: take the differences, one per seed."),
        (EDGES, UNPAIRED.format(False),
         f"{WIDTH}That of two unpaired samples (Welch): take the differences."),
        ("difference.std(ddof=1)", "np.hypot(np.std(baseline, ddof=1), np.std(treated, ddof=1))",
         f"{WIDTH}That of the two columns: take the spread of the differences."),
        ("ddof=1", "", f"{WIDTH}The standard deviation divides by n: use ddof=1."),
        ("stats.t.ppf(0.975, n - 1)", "1.96",
         f"{WIDTH}1.96 is the normal quantile: with n − 1 degrees of freedom t is larger."),
        ("0.975", "0.95", f"{WIDTH}95 % inside leaves 2.5 % on each side, so 0.975."),
        ("n - 1", "n", f"{WIDTH}The mean uses one degree of freedom, n − 1 are left."),
        (" / np.sqrt(n)", "",
         f"{WIDTH}That of one difference: the mean of n scatters less, divide by √n."),
        ("np.sqrt(n)", "n", f"{WIDTH}It divides by n: the mean of n scatters less by √n only."),
        ("sqrt(n)", "sqrt(n - 1)",
         f"{WIDTH}It divides by √(n − 1): with ddof=1 the divisor is √n."),
        ("0.975", "0.995", "the interval is too wide"),
        ("0.975", "0.9", "the interval is too narrow"),
        (EDGES, "half", "Return two numbers"),
        (EDGES, "0.0, 1.0", "The middle of the interval is 0.500, and the mean"),
        (DIFFERENCE, "np.subtract(treated, baseline, out=treated)", "changes the arrays"),
    ],
    "train_epoch": [
        ("        optimizer.zero_grad()\n", "",
         "A step sees the gradients of all batches so far, not the gradient of its own batch "
         "alone: call zero_grad before each backward."),
        ("model(images)", "model(images).softmax(dim=1)",
         "cross_entropy applies a softmax itself: give it the logits, not probabilities."),
        ("cross_entropy(model(images)", "nll_loss(model(images).softmax(dim=1)",
         "nll_loss takes the logarithms of probabilities: give cross_entropy the logits."),
        ("        optimizer.zero_grad()\n", "", "        optimizer.step()\n", "",
         "    return", "    optimizer.step()\n    return",
         "One step is taken for all batches: take one after each batch."),
        ("loss.backward", "(loss / len(batches)).backward",
         "The loss is divided by the number of batches before backward: that shortens every step."),
        ("targets)", "targets, reduction=\"sum\")",
         "The loss is the sum over a batch's images: take their mean."),
        ("loss.item()", "loss.item() * len(targets)",
         "len(batches)", "sum(len(targets) for _, targets in batches)",
         "The returned value is the mean over images, not the mean of the batches' losses."),
        (" / len(batches)", "",
         "The returned value is the sum, not the mean of the batches' losses."),
        ("total / len(batches)", "loss.item()",
         "The returned value is the last loss, not the mean of the batches' losses."),
        (".item()", "", "drags its history along"),
        ("    model.train()\n", "", "came in eval mode and was trained in it"),
        ("+= loss", "+= F.cross_entropy(model(images), targets)", "each before its step, is"),
        ("loss.backward", "(2 * loss).backward", "differ from those of a correct loop"),
        ("backward()", "backward()\n        model.zero_grad()", "No weight has changed"),
        (".item()", ".detach()", "Return a plain Python float"),
        ("return total", "total", "Nothing came back"),
    ],
    "find_fair_gain": [
        (GAIN, "best - np.mean(baseline)",
         "That is the gain over the mean: the baseline gets the best of k tries, too."),
        (GAIN, "best - max(baseline)",
         "That is the gain over the best of all n seeds: the baseline gets k tries, as many as the "
         "colleague."),
        (GAIN, "best - max(baseline[:k])",
         "Only the first k seeds are tried: take the mean over all choices of k seeds."),
        (GAIN, "lucky.mean() - best",
         "The sign is turned round: the gain is the colleague's accuracy minus the control's."),
        (GAIN, "best - np.median(lucky)",
         "That is the median of the best ones: the expected one is their mean."),
        (">= best", "> best", "An equally good choice counts as well: use >=."),
        (SHARE, "np.mean(lucky < best)",
         "That is how often luck is worse: count the choices that reach the colleague's accuracy."),
        (SHARE, "np.mean(np.asarray(baseline) >= best)",
         "That is the share of single seeds: count choices of k seeds by their best one."),
        (SHARE, "np.sum(lucky >= best)",
         "That is the number of choices: divide it by how many there are."),
        ("combinations(baseline, k)", "combinations_with_replacement(baseline, k)",
         "A seed is counted more than once: choose k different seeds."),
        ("max(chosen)", "min(chosen)",
         "That is the worst of k tries: the colleague reports the best, so take the largest."),
        (GAIN, "3.0", "and yours is 3"),
        (f"return {GAIN}, {SHARE}", "return best", "Return two numbers"),
        ("    lucky =", "    baseline.sort()\n    lucky =", "changes the array"),
        (SHARE, "0.123", "of all choices, and yours is 0.123"),
    ],
}  # fmt: skip

RIGHT = {
    "report_noise": [
        (NOISE, "round(100 * stats.tstd(accuracies), 2)"),
        """
def report_noise():
    accuracies = np.array([0.512, 0.498, 0.533])
    return accuracies, 1.76
""",
    ],
    "paired_interval": [
        (EDGES, "stats.ttest_rel(treated, baseline).confidence_interval(0.95)"),
        ("stats.t.ppf(0.975, n - 1) * difference.std(ddof=1) / np.sqrt(n)",
         "-stats.t.ppf(0.025, n - 1) * stats.sem(difference)"),
    ],
    "train_epoch": [
        ("        optimizer.zero_grad()\n", "",
         "optimizer.step()\n", "optimizer.step()\n        model.zero_grad()\n"),
        # hands the optimizer a closure, and the model back in the mode in which it came
        ("model.train()", "was_training = model.training\n    model.train()",
         "        loss.backward()\n", "", "step()", "step(lambda: loss.backward())",
         "    return", "    model.train(was_training)\n    return"),
    ],
    "find_fair_gain": [
        (GAIN, "best - sum(lucky) / math.comb(len(baseline), k)", SHARE,
         "sum(lucky >= best) / len(lucky)"),
        # the i-th smallest of n is the best of C(i - 1, k - 1) choices
        """
def find_fair_gain(baseline, best, k):
    ordered = np.sort(baseline)
    ways = np.array([math.comb(i, k - 1) for i in range(len(ordered))])
    weights = ways / ways.sum()
    return best - weights @ ordered, weights[ordered >= best].sum()
""",
    ],
}  # fmt: skip
