"""Planted answers of lesson 01: `course_tools.publish.planted` says how to read them."""

from course_tools.publish.planted_experiments import plant_experiments

DIFFERENCE = "np.asarray(treated) - np.asarray(baseline)"
EDGES = "difference.mean() - half, difference.mean() + half"
UNPAIRED = "stats.ttest_ind(treated, baseline, equal_var={}).confidence_interval(0.95)"
WIDTH = "The width is wrong. "

WRONG = {
    "measure_change": plant_experiments("measure_change"),
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
    "evaluate": [
        (", reduction=\"sum\"", "", "len(targets)", "1",
         "That is the mean of the batches' means: the last batch is smaller, and each image counts "
         "once, so weigh each batch by its size."),
        ("model(images)", "model(images).softmax(dim=1)",
         "cross_entropy applies a softmax itself: give it the logits, not probabilities."),
        ("model.eval()", "model = copy.deepcopy(model).train()", "That is the loss in train mode, "
         "with the statistics of each batch: measure in eval mode."),
        ("total / count", "total", "That is the sum over the images: divide it by their number."),
        ("total / count", "total / len(batches)",
         "The sum is divided by the number of batches: divide it by the number of images."),
        ("total / count", "total / (len(batches) * len(batches[0][1]))",
         "The divisor counts all batches as large as the first one: the last batch is smaller."),
        ("in batches", "in batches[:-1]",
         "The smaller last batch is left out: every image counts."),
        ("total / count", "1.5", "yours is 1.5000."),
        ("return total / count", "pass", "is there a return"),
        ("total / count", "torch.tensor(total / count)", "plain Python float"),
        ("with torch.no_grad():", "torch.set_grad_enabled(False)\n    if True:",
         "Gradients are off for good"),
        ("    model.eval()\n", "", "BatchNorm must be in eval mode"),
        ("    model.train(was_training)\n", "", "came in train mode and is left in eval mode"),
        ("was_training)", ")", "came in eval mode and is left in train mode"),
        ("model.eval()", "model.eval().requires_grad_(False)", "parameters are frozen now"),
        ("no_grad", "enable_grad", "total += F", "loss = F",
         ".item()", "\n            loss.backward()\n            total += loss.item()",
         "have gradients now"),
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
    ],
}  # fmt: skip

RIGHT = {
    "measure_change": [
        ("\"make_loader\": type(data).plain_loader", "\"config\": config.replace(batch_size=48)",
         "seeds=(0, 1, 2)", "seeds=range(4)"),
        """
def measure_change(config, data):
    faster = config.replace(peak_lr=3 * config.peak_lr)
    columns = [
        [fit(setting, data, seed=seed).metrics["val_accuracy"] for seed in (5, 6, 7)]
        for setting in (config, faster)
    ]
    found = stats.ttest_rel(columns[1], columns[0]).confidence_interval(0.95)
    return columns[0], columns[1], found.low, found.high
""",
    ],
    "paired_interval": [
        (EDGES, "stats.ttest_rel(treated, baseline).confidence_interval(0.95)"),
        ("stats.t.ppf(0.975, n - 1) * difference.std(ddof=1) / np.sqrt(n)",
         "-stats.t.ppf(0.025, n - 1) * stats.sem(difference)"),
    ],
    "evaluate": [
        ("model.eval()", "model = copy.deepcopy(model).eval()", "no_grad", "inference_mode",
         "total / count", "np.float32(total / count)"),
        (", reduction=\"sum\").item()", ").item() * len(targets)"),
    ],
    "train_epoch": [
        ("        optimizer.zero_grad()\n", "",
         "optimizer.step()\n", "optimizer.step()\n        model.zero_grad()\n"),
        # hands the optimizer a closure, and the model back in the mode in which it came
        ("model.train()", "was_training = model.training\n    model.train()",
         "        loss.backward()\n", "", "step()", "step(lambda: loss.backward())",
         "    return", "    model.train(was_training)\n    return"),
    ],
}  # fmt: skip
